//! Memory that crosses the boundary: reading through a caller's pointers, and buffers that callers free.

use crate::guard::CallFailure;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::slice;

/// Tokens. Freed by millrace_tokens_free.
#[repr(C)]
#[derive(Debug)]
pub struct TokenBuffer {
    /// The tokens; NULL when there are none.
    pub data: *mut u32,
    /// Number of tokens.
    pub n: usize,
}

/// Rows of numbers, one after the other. Freed by millrace_floats_free.
#[repr(C)]
#[derive(Debug)]
pub struct FloatBuffer {
    /// `n_rows` times `n_columns` numbers; NULL when there are none.
    pub data: *mut f32,
    /// Number of rows.
    pub n_rows: usize,
    /// Numbers in a row.
    pub n_columns: usize,
}

/// Frees a text that a call returned. NULL is ignored.
///
/// # Safety
/// `text` is NULL, or came from a call of this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `c_text` made it by `into_raw`, and the caller frees it once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Frees tokens that a call returned, and leaves the struct empty. NULL is ignored.
///
/// # Safety
/// `tokens` is NULL, or points to a struct that a call of this library filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_tokens_free(tokens: *mut TokenBuffer) {
    if !tokens.is_null() {
        // SAFETY: not NULL, and as the caller promised.
        let held = unsafe { ptr::replace(tokens, TokenBuffer::of(Vec::new())) };
        // SAFETY: `TokenBuffer::of` made it, and it was replaced by an empty one, so that it is freed once.
        unsafe { free(held.data, held.n) };
    }
}

/// Frees numbers that a call returned, and leaves the struct empty. NULL is ignored.
///
/// # Safety
/// `floats` is NULL, or points to a struct that a call of this library filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_floats_free(floats: *mut FloatBuffer) {
    if !floats.is_null() {
        // SAFETY: not NULL, and as the caller promised.
        let held = unsafe { ptr::replace(floats, FloatBuffer::of(Vec::new(), 1)) };
        // SAFETY: `FloatBuffer::of` made it, and it was replaced by an empty one, so that it is freed once.
        unsafe { free(held.data, held.n_rows * held.n_columns) };
    }
}

impl TokenBuffer {
    pub(crate) fn of(tokens: Vec<u32>) -> TokenBuffer {
        let (data, n) = leak(tokens);
        TokenBuffer { data, n }
    }
}

impl FloatBuffer {
    /// Rows of `n_columns` numbers.
    pub(crate) fn of(numbers: Vec<f32>, n_columns: usize) -> FloatBuffer {
        let (data, n) = leak(numbers);
        FloatBuffer {
            data,
            n_rows: n / n_columns.max(1),
            n_columns,
        }
    }
}

/// Leaks values: the holder of the pointer owns them.
fn leak<T>(values: Vec<T>) -> (*mut T, usize) {
    let n = values.len();
    match n {
        0 => (ptr::null_mut(), 0),
        _ => (Box::into_raw(values.into_boxed_slice()).cast(), n),
    }
}

/// # Safety
/// `data` and `n` came from [`leak`], and were not freed.
unsafe fn free<T>(data: *mut T, n: usize) {
    if !data.is_null() {
        // SAFETY: `leak` made it from a boxed slice of `n` values.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(data, n)) });
    }
}

/// A text for C. A NUL within it, which C could not read past, becomes U+FFFD.
pub(crate) fn c_text(text: String) -> *mut c_char {
    let text = match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}"),
        false => text,
    };
    CString::new(text).map_or(ptr::null_mut(), CString::into_raw)
}

/// Reads a caller's text, which the caller keeps.
///
/// # Safety
/// `text` is NULL or ends with a NUL, and does not change during `'a`.
pub(crate) unsafe fn text_at<'a>(text: *const c_char, name: &str) -> Result<&'a str, CallFailure> {
    // SAFETY: as the caller promised.
    let text = unsafe { optional_text_at(text, name) }?;
    text.ok_or_else(|| CallFailure::argument(format!("`{name}` is NULL")))
}

/// As [`text_at`]; NULL means no text.
///
/// # Safety
/// As [`text_at`].
pub(crate) unsafe fn optional_text_at<'a>(
    text: *const c_char,
    name: &str,
) -> Result<Option<&'a str>, CallFailure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and as the caller promised.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text
        .to_str()
        .map_err(|error| CallFailure::argument(format!("`{name}` is not UTF-8: {error}")))?;
    Ok(Some(text))
}

/// Reads a caller's values, which the caller keeps.
///
/// # Safety
/// `data` is NULL or points to `n` values, which do not change during `'a`.
pub(crate) unsafe fn slice_at<'a, T>(
    data: *const T,
    n: usize,
    name: &str,
) -> Result<&'a [T], CallFailure> {
    if n == 0 {
        return Ok(&[]);
    }
    let fits = n
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| isize::try_from(bytes).is_ok());
    match (data.is_null(), fits && data.is_aligned()) {
        (true, _) => Err(CallFailure::argument(format!("`{name}` is NULL"))),
        (false, false) => Err(CallFailure::argument(format!(
            "`{name}`: {n} values at {data:p} cannot be"
        ))),
        // SAFETY: not NULL, aligned, of a possible size, and as the caller promised.
        (false, true) => Ok(unsafe { slice::from_raw_parts(data, n) }),
    }
}

/// Reads a caller's value.
///
/// # Safety
/// `value` is NULL or points to a value that does not change during `'a`.
pub(crate) unsafe fn value_at<'a, T>(value: *const T, name: &str) -> Result<&'a T, CallFailure> {
    // SAFETY: as the caller promised.
    let value = unsafe { value.as_ref() };
    value.ok_or_else(|| CallFailure::argument(format!("`{name}` is NULL")))
}

/// Checks the destination of a result: a pointer that may be written to.
pub(crate) fn output_at<T>(output: *mut T, name: &str) -> Result<*mut T, CallFailure> {
    match output.is_null() {
        true => Err(CallFailure::argument(format!("`{name}` is NULL"))),
        false => Ok(output),
    }
}
