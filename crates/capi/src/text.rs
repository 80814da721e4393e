//! Text: generations, chats, batches.

use crate::guard::{CallFailure, StatusCode, guarded};
use crate::memory::{TokenBuffer, c_text, output_at, slice_at, text_at};
use crate::memory::{millrace_text_free, millrace_tokens_free};
use crate::model::{ModelHandle, session_of};
use crate::settings::TextSettings;
use millrace::{Finish, Generation, Message, Options, Prompt, Session};
use std::ffi::{CString, c_char, c_void};
use std::ptr;

/// Why a text ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishCode {
    /// The model ended it.
    Stop = 0,
    /// One of the stop texts appeared.
    StopText = 1,
    /// `max_tokens` were drawn.
    Length = 2,
    /// The context is full.
    ContextFull = 3,
    /// It was cancelled.
    Cancelled = 4,
}

impl From<Finish> for FinishCode {
    fn from(finish: Finish) -> FinishCode {
        match finish {
            Finish::Stop => FinishCode::Stop,
            Finish::StopText => FinishCode::StopText,
            Finish::Length => FinishCode::Length,
            Finish::ContextFull => FinishCode::ContextFull,
            Finish::Cancelled => FinishCode::Cancelled,
        }
    }
}

/// A message of a conversation.
#[repr(C)]
#[derive(Debug)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: *const c_char,
    /// The text of the message.
    pub content: *const c_char,
}

/// A finished text. Freed by millrace_generation_free.
#[repr(C)]
#[derive(Debug)]
pub struct TextResult {
    /// The text, up to a stop text. A NUL that the model wrote is U+FFFD here.
    pub text: *mut c_char,
    /// Tokens drawn, without the one that ended the text.
    pub tokens: TokenBuffer,
    /// Why it ended.
    pub finish: FinishCode,
    /// Tokens of the prompt, including those from the cache.
    pub n_prompt_tokens: usize,
    /// Time of the prompt's passes, in seconds.
    pub prefill_s: f64,
    /// Time of the passes after the first token, in seconds.
    pub decode_s: f64,
}

/// Gets a piece of text and `user`, on the thread of the call. The piece is `n_bytes` of UTF-8, followed by a NUL.
/// Returning false ends the text. It may call this library, but must not close the model. It must leave only by
/// returning.
pub type TextCallback =
    Option<unsafe extern "C" fn(text: *const c_char, n_bytes: usize, user: *mut c_void) -> bool>;

/// Frees the buffers of a result, and leaves the struct empty. NULL is ignored.
///
/// # Safety
/// `generation` is NULL, or points to a struct that a call of this library filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_generation_free(generation: *mut TextResult) {
    // SAFETY: as the caller promised.
    if let Some(result) = unsafe { generation.as_mut() } {
        let text = std::mem::replace(&mut result.text, ptr::null_mut());
        // SAFETY: `TextResult::of` made it, and it was replaced by NULL, so that it is freed once.
        unsafe { millrace_text_free(text) };
        // SAFETY: `TextResult::of` made it; the call leaves an empty one.
        unsafe { millrace_tokens_free(&mut result.tokens) };
    }
}

impl TextResult {
    fn of(generation: Generation) -> TextResult {
        let timings = generation.timings;
        TextResult {
            text: c_text(generation.text),
            tokens: TokenBuffer::of(generation.tokens),
            finish: generation.finish.into(),
            n_prompt_tokens: timings.n_cached + timings.n_prefill,
            prefill_s: timings.prefill.as_secs_f64(),
            decode_s: timings.decode.as_secs_f64(),
        }
    }
}

/// The options of a call; NULL leaves everything to the model's files.
///
/// # Safety
/// `options` is NULL or points to settings whose pointers are as documented there.
unsafe fn options_of(options: *const TextSettings) -> Result<Options, CallFailure> {
    // SAFETY: as the caller promised.
    match unsafe { options.as_ref() } {
        // SAFETY: as the caller promised.
        Some(settings) => unsafe { settings.options() },
        None => Ok(Options::new()),
    }
}

/// Generates a text, and passes its pieces on.
///
/// # Safety
/// `on_text` may be called with `user`.
unsafe fn write(
    session: &Session,
    prompt: Prompt,
    options: &Options,
    on_text: TextCallback,
    user: *mut c_void,
) -> Result<Generation, CallFailure> {
    let Some(on_text) = on_text else {
        return Ok(session.generate_with(prompt, options)?);
    };
    let mut stream = session.stream(prompt, options)?;
    while let Some(piece) = stream.next() {
        let piece = piece?.replace('\0', "\u{fffd}");
        let n_bytes = piece.len();
        let Ok(piece) = CString::new(piece) else {
            continue;
        };
        // SAFETY: the text is alive until the call returns, and as the caller promised.
        if !unsafe { on_text(piece.as_ptr(), n_bytes, user) } {
            return Ok(stream.stop()?);
        }
    }
    Ok(stream.finish()?)
}

/// Writes a generation to its destination. NULL is for callers for whom the callback is enough.
///
/// # Safety
/// `output` is NULL or points to memory for the struct.
unsafe fn give(output: *mut TextResult, generation: Generation) {
    if !output.is_null() {
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(TextResult::of(generation)) };
    }
}

/// Generates text after a prompt. `on_text`, if it is not NULL, gets it piece by piece with `user`. `generation` may
/// be NULL. Freed by millrace_generation_free.
///
/// # Safety
/// Pointers are NULL or point to values of their types; texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_generate(
    model: *const ModelHandle,
    prompt: *const c_char,
    options: *const TextSettings,
    on_text: TextCallback,
    user: *mut c_void,
    generation: *mut TextResult,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        // SAFETY: as the caller promised.
        let (session, prompt) = unsafe { (session_of(model)?, text_at(prompt, "prompt")?) };
        // SAFETY: as the caller promised.
        let options = unsafe { options_of(options) }?;
        // SAFETY: as the caller promised.
        let done = unsafe { write(&session, Prompt::text(prompt), &options, on_text, user) }?;
        // SAFETY: as the caller promised.
        unsafe { give(generation, done) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// As millrace_generate, after `n_tokens` tokens.
///
/// # Safety
/// Pointers are NULL or point to values of their types: `tokens` to `n_tokens` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_generate_tokens(
    model: *const ModelHandle,
    tokens: *const u32,
    n_tokens: usize,
    options: *const TextSettings,
    on_text: TextCallback,
    user: *mut c_void,
    generation: *mut TextResult,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        // SAFETY: as the caller promised.
        let session = unsafe { session_of(model) }?;
        // SAFETY: as the caller promised.
        let tokens = unsafe { slice_at(tokens, n_tokens, "tokens") }?;
        // SAFETY: as the caller promised.
        let options = unsafe { options_of(options) }?;
        // SAFETY: as the caller promised.
        let done = unsafe { write(&session, Prompt::tokens(tokens), &options, on_text, user) }?;
        // SAFETY: as the caller promised.
        unsafe { give(generation, done) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// The answer to messages in the model's chat template; else as millrace_generate. To continue a conversation, append
/// the answer and the next message to the messages: their common beginning is not computed again.
///
/// # Safety
/// Pointers are NULL or point to values of their types: `messages` to `n_messages` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_chat(
    model: *const ModelHandle,
    messages: *const ChatMessage,
    n_messages: usize,
    options: *const TextSettings,
    on_text: TextCallback,
    user: *mut c_void,
    generation: *mut TextResult,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        // SAFETY: as the caller promised.
        let session = unsafe { session_of(model) }?;
        let mut all = Vec::new();
        // SAFETY: as the caller promised.
        for message in unsafe { slice_at(messages, n_messages, "messages") }? {
            // SAFETY: as the caller promised.
            let (role, content) = unsafe {
                (
                    text_at(message.role, "message.role")?,
                    text_at(message.content, "message.content")?,
                )
            };
            all.push(Message::new(role, content));
        }
        // SAFETY: as the caller promised.
        let options = unsafe { options_of(options) }?;
        // SAFETY: as the caller promised.
        let done = unsafe { write(&session, Prompt::messages(all), &options, on_text, user) }?;
        // SAFETY: as the caller promised.
        unsafe { give(generation, done) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// Texts after `n_prompts` prompts, computed together. Each equals the text that millrace_generate gives for its
/// prompt alone. `generations` has room for `n_prompts` results, each freed by millrace_generation_free. A failure
/// fills none.
///
/// # Safety
/// Pointers are NULL or point to values of their types: `prompts` and `generations` to `n_prompts` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_generate_batch(
    model: *const ModelHandle,
    prompts: *const *const c_char,
    n_prompts: usize,
    options: *const TextSettings,
    generations: *mut TextResult,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(generations, "generations")?;
        // SAFETY: as the caller promised.
        let session = unsafe { session_of(model) }?;
        // SAFETY: as the caller promised.
        let prompts = unsafe { slice_at(prompts, n_prompts, "prompts") }?;
        let texts = prompts.iter().map(|prompt| {
            // SAFETY: as the caller promised.
            unsafe { text_at(*prompt, "prompts") }
        });
        let texts = texts.collect::<Result<Vec<&str>, CallFailure>>()?;
        // SAFETY: as the caller promised.
        let options = unsafe { options_of(options) }?;
        for (index, done) in session.batch(texts, &options)?.into_iter().enumerate() {
            // SAFETY: there is room for as many as there are prompts.
            unsafe { output.add(index).write(TextResult::of(done)) };
        }
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}
