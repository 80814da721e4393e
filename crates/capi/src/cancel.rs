//! Handles that stop work.

use millrace::Cancel;

/// Stops the work that it was given to, from any thread.
#[derive(Debug, Default)]
pub struct CancelHandle {
    pub(crate) cancel: Cancel,
}

/// Makes a new handle. Freed by millrace_cancel_free.
#[unsafe(no_mangle)]
pub extern "C" fn millrace_cancel_new() -> *mut CancelHandle {
    Box::into_raw(Box::default())
}

/// Stops the work that has this handle, and all work that gets it before millrace_cancel_reset. NULL is ignored. It
/// only sets a flag, so a signal handler may call it.
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

/// Makes the handle usable for new work. NULL is ignored.
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

/// Frees a handle. Work that has it continues. NULL is ignored.
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
