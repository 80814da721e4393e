//! Messages to the user: through the host's log where there is one, and to stderr.

use super::host::Functions;
use std::ffi::CString;

/// `GGML_LOG_LEVEL_ERROR`.
const LEVEL_ERROR: std::ffi::c_int = 4;

/// Reports an error in the host's log. Programs can silence it.
pub(crate) fn error(host: &Functions, message: &str) {
    let text = CString::new(format!("{message}\n").replace('\0', "?")).unwrap_or_default();
    match host.log {
        // SAFETY: ggml's function, with a format that takes one string.
        Some(log) => unsafe { log(LEVEL_ERROR, c"%s".as_ptr(), text.as_ptr()) },
        None => eprint!("{}", text.to_string_lossy()),
    }
}
