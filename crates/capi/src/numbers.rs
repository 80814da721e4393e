//! Tokens, embeddings and logits.

use crate::guard::{StatusCode, guarded};
use crate::memory::{FloatBuffer, TokenBuffer, c_text, output_at, slice_at, text_at};
use crate::model::{ModelHandle, session_of};
use millrace::Error;
use millrace::engine::EncodeOptions;
use std::ffi::c_char;

/// The tokens of a text. `add_special` adds the tokens that the model puts around every text; `parse_special` reads
/// spelled-out control tokens as control tokens. Freed by millrace_tokens_free.
///
/// # Safety
/// Pointers are NULL or point to values of their types; texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_tokenize(
    model: *const ModelHandle,
    text: *const c_char,
    add_special: bool,
    parse_special: bool,
    tokens: *mut TokenBuffer,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(tokens, "tokens")?;
        // SAFETY: as the caller promised.
        let (session, text) = unsafe { (session_of(model)?, text_at(text, "text")?) };
        let options = EncodeOptions {
            add_special,
            parse_special,
        };
        let tokenizer = session.model().loaded().tokenizer().map_err(Error::from)?;
        let found = tokenizer.encode(text, options);
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(TokenBuffer::of(found)) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// The text of tokens; with `show_special`, control tokens are shown. Freed by millrace_text_free.
///
/// # Safety
/// Pointers are NULL or point to values of their types: `tokens` to `n_tokens` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_detokenize(
    model: *const ModelHandle,
    tokens: *const u32,
    n_tokens: usize,
    show_special: bool,
    text: *mut *mut c_char,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(text, "text")?;
        // SAFETY: as the caller promised.
        let session = unsafe { session_of(model) }?;
        // SAFETY: as the caller promised.
        let tokens = unsafe { slice_at(tokens, n_tokens, "tokens") }?;
        let tokenizer = session.model().loaded().tokenizer().map_err(Error::from)?;
        let found = tokenizer.decode(tokens, !show_special);
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(c_text(found)) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// The embedding of a text: one row of length 1. Freed by millrace_floats_free.
///
/// # Safety
/// Pointers are NULL or point to values of their types; texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_embed(
    model: *const ModelHandle,
    text: *const c_char,
    embedding: *mut FloatBuffer,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(embedding, "embedding")?;
        // SAFETY: as the caller promised.
        let (session, text) = unsafe { (session_of(model)?, text_at(text, "text")?) };
        let row = session.embed(text)?;
        let n_columns = row.len();
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(FloatBuffer::of(row, n_columns)) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// The logits after every token of a prompt: a row for each token, a column for each token of the vocabulary. Freed
/// by millrace_floats_free.
///
/// # Safety
/// Pointers are NULL or point to values of their types; texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_logits(
    model: *const ModelHandle,
    prompt: *const c_char,
    logits: *mut FloatBuffer,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(logits, "logits")?;
        // SAFETY: as the caller promised.
        let (session, prompt) = unsafe { (session_of(model)?, text_at(prompt, "prompt")?) };
        let found = session.logits(prompt)?;
        let n_columns = found.vocab_size();
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(FloatBuffer::of(found.into_data(), n_columns)) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}
