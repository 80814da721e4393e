//! Handles that stop work.

use millrace::Cancel;

/// Stops what it was given to, from any thread.
#[derive(Debug, Default)]
pub struct CancelHandle {
    pub(crate) cancel: Cancel,
}

/// A handle that nobody has used. Freed by millrace_cancel_free.
#[unsafe(no_mangle)]
pub extern "C" fn millrace_cancel_new() -> *mut CancelHandle {
    Box::into_raw(Box::default())
}

/// Stops the work that has this handle, and all that gets it before millrace_cancel_reset. NULL is left alone. It only sets a
/// flag, so a signal handler may call it.
///
/// # Safety
/// `cancel` is NULL, or came from millrace_cancel_new and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_cancel_stop(cancel: *const CancelHandle) {
    // SAFETY: as the caller promised.
    if let Some(handle) = unsafe { cancel.as_ref() } {
        handle.cancel.cancel();
    }
}

/// Lets the handle serve for new work. NULL is left alone.
///
/// # Safety
/// As millrace_cancel_stop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_cancel_reset(cancel: *const CancelHandle) {
    // SAFETY: as the caller promised.
    if let Some(handle) = unsafe { cancel.as_ref() } {
        handle.cancel.reset();
    }
}

/// Frees a handle. Work that has it goes on. NULL is left alone.
///
/// # Safety
/// `cancel` is NULL, or came from millrace_cancel_new and was not freed; no other call has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_cancel_free(cancel: *mut CancelHandle) {
    if !cancel.is_null() {
        // SAFETY: `millrace_cancel_new` made it, and the caller frees it once.
        drop(unsafe { Box::from_raw(cancel) });
    }
}
