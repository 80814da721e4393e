//! Models.

use crate::guard::{CallFailure, StatusCode, guarded};
use crate::memory::{c_text, output_at, text_at, value_at};
use crate::settings::OpenSettings;
use millrace::{Model, OpenOptions, Session};
use std::ffi::c_char;

/// A model on a device.
#[derive(Debug)]
pub struct ModelHandle {
    pub(crate) session: Session,
}

/// Clones a handle's session, which the call keeps while it works.
///
/// # Safety
/// `model` is NULL, or came from millrace_open and was not closed.
pub(crate) unsafe fn session_of(model: *const ModelHandle) -> Result<Session, CallFailure> {
    // SAFETY: as the caller promised.
    Ok(unsafe { value_at(model, "model") }?.session.clone())
}

/// Opens a model: `demo`, a file, a folder, or `hf:OWNER/REPO[:QUANT]`. It runs on the device of `options`, or on the
/// CPU if that is NULL. Closed by millrace_close.
///
/// # Safety
/// Pointers are NULL or point to values of their types; texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_open(
    name: *const c_char,
    options: *const OpenSettings,
    model: *mut *mut ModelHandle,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(model, "model")?;
        // SAFETY: as the caller promised.
        let name = unsafe { text_at(name, "name") }?;
        let default = OpenSettings::default();
        // SAFETY: as the caller promised.
        let settings = unsafe { options.as_ref() }.unwrap_or(&default);
        // SAFETY: as the caller promised.
        let device = unsafe { settings.device() }?;
        let open = OpenOptions::new().offline(settings.offline);
        let session = Model::open_with(name, &open)?.on(device)?;
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(Box::into_raw(Box::new(ModelHandle { session }))) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}

/// Closes a model. Calls of other threads that have begun continue; none may begin. NULL is ignored.
///
/// # Safety
/// `model` is NULL, or came from millrace_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_close(model: *mut ModelHandle) {
    if model.is_null() {
        return;
    }
    let work = || {
        // SAFETY: `millrace_open` made it, and the caller closes it once.
        drop(unsafe { Box::from_raw(model) });
        Ok(())
    };
    // SAFETY: nothing is written to NULL. A panic in a drop cannot be handled here.
    let _ = unsafe { guarded(std::ptr::null_mut(), work) };
}

/// A number of a model; 0 for NULL.
///
/// # Safety
/// As [`session_of`].
unsafe fn number(model: *const ModelHandle, of: impl Fn(&Session) -> usize) -> usize {
    // SAFETY: as the caller promised.
    unsafe { model.as_ref() }.map_or(0, |model| of(&model.session))
}

/// Tokens of a sequence, prompt and answer together; 0 for NULL.
///
/// # Safety
/// `model` is NULL, or came from millrace_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_n_ctx(model: *const ModelHandle) -> usize {
    // SAFETY: as the caller promised.
    unsafe { number(model, Session::n_ctx) }
}

/// Tokens of the vocabulary; 0 for NULL.
///
/// # Safety
/// `model` is NULL, or came from millrace_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_vocab_size(model: *const ModelHandle) -> usize {
    // SAFETY: as the caller promised.
    unsafe { number(model, |session| session.model().vocab_size()) }
}

/// Elements of an embedding; 0 for NULL.
///
/// # Safety
/// `model` is NULL, or came from millrace_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_d_model(model: *const ModelHandle) -> usize {
    // SAFETY: as the caller promised.
    unsafe { number(model, |session| session.model().d_model()) }
}

/// Where the model runs, as in `cpu (avx512)`. Freed by millrace_text_free.
///
/// # Safety
/// Pointers are NULL or point to values of their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_device_name(
    model: *const ModelHandle,
    name: *mut *mut c_char,
    error: *mut *mut c_char,
) -> StatusCode {
    let work = || {
        let output = output_at(name, "name")?;
        // SAFETY: as the caller promised.
        let session = unsafe { session_of(model) }?;
        // SAFETY: not NULL, and as the caller promised.
        unsafe { output.write(c_text(session.device_name().to_owned())) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { guarded(error, work) }
}
