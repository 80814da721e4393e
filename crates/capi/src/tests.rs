//! The interface from the view of a C program.
#![allow(clippy::unwrap_used)] // A test may panic.

use crate::cancel::*;
use crate::guard::{StatusCode, guarded};
use crate::memory::*;
use crate::model::*;
use crate::numbers::*;
use crate::settings::*;
use crate::text::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

/// A demo model that is closed when dropped.
struct Demo(*mut ModelHandle);

impl Demo {
    fn open() -> Demo {
        let options = OpenSettings {
            n_threads: 1,
            n_ctx: 128,
            ..OpenSettings::default()
        };
        let mut model = null_mut();
        // SAFETY: the pointers are this function's.
        let status = unsafe { millrace_open(c"demo".as_ptr(), &options, &mut model, null_mut()) };
        assert_eq!(status, StatusCode::Ok);
        Demo(model)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // SAFETY: opened above, closed here.
        unsafe { millrace_close(self.0) };
    }
}

fn greedy(max_tokens: i64) -> TextSettings {
    TextSettings {
        temperature: 0.0,
        max_tokens,
        ..TextSettings::default()
    }
}

fn nothing() -> TextResult {
    TextResult {
        text: null_mut(),
        tokens: TokenBuffer::of(Vec::new()),
        finish: FinishCode::Stop,
        n_prompt_tokens: 0,
        prefill_s: 0.0,
        decode_s: 0.0,
    }
}

/// Takes the text of an error, and frees it.
fn told(error: *mut c_char) -> String {
    assert!(!error.is_null(), "a failure has a text");
    // SAFETY: the text came from this library.
    let text = unsafe { CStr::from_ptr(error) }
        .to_str()
        .unwrap()
        .to_owned();
    // SAFETY: as above, freed once.
    unsafe { millrace_text_free(error) };
    text
}

/// Collects pieces, and stops after `most` of them.
struct CallbackPieces {
    text: String,
    n: usize,
    most: usize,
}

unsafe extern "C" fn collect(text: *const c_char, n_bytes: usize, user: *mut c_void) -> bool {
    // SAFETY: the pointer that `generate` passed to `millrace_generate`.
    let pieces = unsafe { &mut *user.cast::<CallbackPieces>() };
    // SAFETY: the text is valid during this call.
    let piece = unsafe { CStr::from_ptr(text) }.to_str().unwrap();
    assert_eq!(piece.len(), n_bytes);
    pieces.text += piece;
    pieces.n += 1;
    pieces.n < pieces.most
}

/// A text after a prompt with a callback: status, pieces, result.
fn generate(demo: &Demo, options: &TextSettings, most: usize) -> (CallbackPieces, TextResult) {
    let mut result = nothing();
    let mut pieces = CallbackPieces {
        text: String::new(),
        n: 0,
        most,
    };
    // SAFETY: the pointers are this function's.
    let status = unsafe {
        millrace_generate(
            demo.0,
            c"Once upon a time".as_ptr(),
            options,
            Some(collect),
            (&raw mut pieces).cast(),
            &mut result,
            null_mut(),
        )
    };
    assert_eq!(status, StatusCode::Ok);
    (pieces, result)
}

fn text(result: &TextResult) -> String {
    // SAFETY: the result came from this library.
    unsafe { CStr::from_ptr(result.text) }
        .to_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_callback_gets_the_text_and_may_end_it() {
    let demo = Demo::open();
    let (pieces, mut whole) = generate(&demo, &greedy(12), usize::MAX);
    assert_eq!((pieces.text, whole.tokens.n), (text(&whole), 12));
    assert_eq!(whole.finish, FinishCode::Length);
    let cancel = millrace_cancel_new();
    let options = TextSettings {
        cancel,
        ignore_end: true,
        ..greedy(-1)
    };
    let (pieces, mut ended) = generate(&demo, &options, 3);
    assert_eq!((pieces.n, ended.finish), (3, FinishCode::Cancelled));
    assert!(text(&whole).starts_with(&pieces.text) && text(&ended).starts_with(&pieces.text));
    // The handle did not end that one; it ends the next one.
    let (_, mut again) = generate(
        &demo,
        &TextSettings {
            cancel,
            ..greedy(12)
        },
        usize::MAX,
    );
    assert_eq!(again.finish, FinishCode::Length);
    // SAFETY: the handle came from this library.
    unsafe { millrace_cancel_stop(cancel) };
    let (pieces, mut stopped) = generate(
        &demo,
        &TextSettings {
            cancel,
            ..greedy(12)
        },
        9,
    );
    assert_eq!((pieces.n, stopped.finish), (0, FinishCode::Cancelled));
    for result in [&mut whole, &mut ended, &mut again, &mut stopped] {
        // SAFETY: results of this library; the second call finds an empty result.
        unsafe { millrace_generation_free(result) };
        // SAFETY: as above.
        unsafe { millrace_generation_free(result) };
        assert!(result.text.is_null() && result.tokens.data.is_null());
    }
    // SAFETY: the handle came from this library.
    unsafe { millrace_cancel_free(cancel) };
}

#[test]
fn chats_and_batches_answer() {
    let demo = Demo::open();
    let message = ChatMessage {
        role: c"user".as_ptr(),
        content: c"What is 7 plus 5?".as_ptr(),
    };
    let mut answer = nothing();
    // SAFETY: the pointers are this function's.
    let status = unsafe {
        let options = greedy(-1);
        millrace_chat(
            demo.0,
            &message,
            1,
            &options,
            None,
            null_mut(),
            &mut answer,
            null_mut(),
        )
    };
    assert_eq!(status, StatusCode::Ok);
    assert_eq!(text(&answer), "7 plus 5 is 12.");
    let (_, mut alone) = generate(&demo, &greedy(12), usize::MAX);
    let prompts = [c"The dog".as_ptr(), c"Once upon a time".as_ptr()];
    let mut together = [nothing(), nothing()];
    // SAFETY: the pointers are this function's.
    let status = unsafe {
        let options = greedy(12);
        millrace_generate_batch(
            demo.0,
            prompts.as_ptr(),
            2,
            &options,
            together.as_mut_ptr(),
            null_mut(),
        )
    };
    assert_eq!(status, StatusCode::Ok);
    assert_eq!(text(&together[1]), text(&alone));
    let [first, second] = &mut together;
    for result in [&mut answer, &mut alone, first, second] {
        // SAFETY: the results came from this library.
        unsafe { millrace_generation_free(result) };
    }
}

#[test]
fn numbers_have_their_shapes() {
    let demo = Demo::open();
    let prompt = c"The dog saw a ball.".as_ptr();
    let mut tokens = TokenBuffer::of(Vec::new());
    let (mut row, mut logits) = (
        FloatBuffer::of(Vec::new(), 1),
        FloatBuffer::of(Vec::new(), 1),
    );
    let mut back = null_mut();
    // SAFETY: the pointers are this function's, freed at its end.
    unsafe {
        let error = null_mut();
        assert_eq!(
            millrace_tokenize(demo.0, prompt, true, false, &mut tokens, error),
            StatusCode::Ok
        );
        let status = millrace_detokenize(demo.0, tokens.data, tokens.n, false, &mut back, error);
        assert_eq!(status, StatusCode::Ok);
        assert_eq!(CStr::from_ptr(back), CStr::from_ptr(prompt));
        assert_eq!(
            millrace_embed(demo.0, prompt, &mut row, error),
            StatusCode::Ok
        );
        assert_eq!((row.n_rows, row.n_columns), (1, millrace_d_model(demo.0)));
        assert_eq!(
            millrace_logits(demo.0, prompt, &mut logits, error),
            StatusCode::Ok
        );
        assert_eq!(
            (logits.n_rows, logits.n_columns),
            (tokens.n, millrace_vocab_size(demo.0))
        );
        assert_eq!(millrace_n_ctx(demo.0), 128);
        millrace_text_free(back);
        millrace_tokens_free(&mut tokens);
        millrace_floats_free(&mut row);
        millrace_floats_free(&mut logits);
    }
    assert!(tokens.data.is_null() && logits.data.is_null());
}

/// Every call with a required pointer NULL, or with an invalid value.
#[test]
fn what_cannot_be_is_refused_in_words() {
    let demo = Demo::open();
    let bytes = CString::new(vec![0xff, 0xfe]).unwrap();
    let old = TextSettings {
        size_bytes: 8,
        ..TextSettings::default()
    };
    let cold = TextSettings {
        temperature: f32::NAN,
        ..TextSettings::default()
    };
    let level = OpenSettings {
        level: c"mmx".as_ptr(),
        ..OpenSettings::default()
    };
    let long = CString::new("a long text ".repeat(200)).unwrap();
    let text = c"x".as_ptr();
    type Call<'a> = &'a dyn Fn(*mut *mut c_char) -> StatusCode;
    let run = |prompt: *const c_char, options: *const TextSettings, error| {
        // SAFETY: refused arguments are not read.
        unsafe { millrace_generate(demo.0, prompt, options, None, null_mut(), null_mut(), error) }
    };
    // SAFETY: refused arguments are not read.
    let calls: [(Call<'_>, StatusCode, &str); 13] = unsafe {
        [
            (
                &|e| millrace_open(text, null(), null_mut(), e),
                StatusCode::InvalidArgument,
                "`model` is NULL",
            ),
            (
                &|e| millrace_open(null(), null(), &mut null_mut(), e),
                StatusCode::InvalidArgument,
                "`name` is NULL",
            ),
            (
                &|e| millrace_open(c"dmeo".as_ptr(), null(), &mut null_mut(), e),
                StatusCode::ModelNotFound,
                "did you mean `demo`?",
            ),
            (
                &|e| millrace_open(text, &level, &mut null_mut(), e),
                StatusCode::InvalidArgument,
                "mmx",
            ),
            (
                &|e| run(null(), null(), e),
                StatusCode::InvalidArgument,
                "`prompt` is NULL",
            ),
            (
                &|e| run(bytes.as_ptr(), null(), e),
                StatusCode::InvalidArgument,
                "not UTF-8",
            ),
            (
                &|e| run(text, &old, e),
                StatusCode::InvalidArgument,
                "millrace_options_init",
            ),
            (
                &|e| run(text, &cold, e),
                StatusCode::InvalidArgument,
                "temperature",
            ),
            (
                &|e| run(long.as_ptr(), null(), e),
                StatusCode::ContextOverflow,
                "128",
            ),
            (
                &|e| millrace_tokenize(null(), text, true, true, null_mut(), e),
                StatusCode::InvalidArgument,
                "`tokens` is NULL",
            ),
            (
                &|e| millrace_detokenize(demo.0, null(), 3, true, &mut null_mut(), e),
                StatusCode::InvalidArgument,
                "`tokens` is NULL",
            ),
            (
                &|e| {
                    millrace_detokenize(
                        demo.0,
                        std::ptr::dangling(),
                        usize::MAX,
                        true,
                        &mut null_mut(),
                        e,
                    )
                },
                StatusCode::InvalidArgument,
                "cannot be",
            ),
            (
                &|e| millrace_embed(null(), text, &mut FloatBuffer::of(Vec::new(), 1), e),
                StatusCode::InvalidArgument,
                "`model` is NULL",
            ),
        ]
    };
    for (call, status, words) in calls {
        let mut error = null_mut();
        assert_eq!(call(&mut error), status, "{words}");
        let found = told(error);
        assert!(found.contains(words), "{found}: expected {words}");
        // Without `error`, no text is returned.
        assert_eq!(call(null_mut()), status);
    }
    // SAFETY: all of these ignore NULL.
    unsafe {
        millrace_close(null_mut());
        millrace_cancel_stop(null());
        millrace_cancel_reset(null());
        millrace_cancel_free(null_mut());
        millrace_generation_free(null_mut());
        millrace_tokens_free(null_mut());
        millrace_floats_free(null_mut());
        millrace_options_init(null_mut());
        millrace_open_options_init(null_mut());
        assert_eq!(millrace_n_ctx(null()), 0);
    }
}

#[test]
fn a_panic_ends_at_the_boundary() {
    let mut error = null_mut();
    // SAFETY: the pointer is this function's.
    let status = unsafe { guarded(&mut error, || panic!("on purpose")) };
    assert_eq!(status, StatusCode::Panic);
    assert!(told(error).contains("on purpose"));
}
