//! Statuses, texts of errors, and the guard around every call.

use crate::memory::c_text;
use millrace::{Error, engine};
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Outcome of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    /// The call succeeded.
    Ok = 0,
    /// A required pointer is NULL, a text is not UTF-8, or a value is outside its range.
    InvalidArgument = 1,
    /// No model has the given name.
    ModelNotFound = 2,
    /// A model's file is damaged, or this version does not run the model.
    ModelFile = 3,
    /// A device does not exist, cannot run the model, or failed.
    Device = 4,
    /// A prompt does not fit the context.
    ContextOverflow = 5,
    /// The work was stopped before it had a result.
    Cancelled = 6,
    /// Any other failure; the text describes it.
    Failed = 7,
    /// A bug in the library. The model remains usable.
    Panic = 8,
}

/// Reason why a call has no result.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl CallFailure {
    pub(crate) fn argument(text: impl Into<String>) -> CallFailure {
        CallFailure {
            status: StatusCode::InvalidArgument,
            text: text.into(),
        }
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> CallFailure {
        use engine::Error as Inner;
        let status = match &error {
            Error::NoModel { .. } | Error::NoHub { .. } => StatusCode::ModelNotFound,
            Error::File(_) | Error::Model(_) | Error::NoWeights { .. } => StatusCode::ModelFile,
            Error::NoDevice { .. } | Error::Device(_) | Error::Lower(_) => StatusCode::Device,
            Error::Engine(Inner::ContextOverflow { .. }) => StatusCode::ContextOverflow,
            Error::Engine(Inner::BadOption { .. })
            | Error::BiasBeyond { .. }
            | Error::EmptyStop
            | Error::NpuSetting { .. }
            | Error::KvType { .. }
            | Error::Setting(_) => StatusCode::InvalidArgument,
            Error::Cancelled => StatusCode::Cancelled,
            _ => StatusCode::Failed,
        };
        let text = match error.advice() {
            Some(advice) => format!("{error}; {}", in_c(&advice)),
            None => error.to_string(),
        };
        CallFailure { status, text }
    }
}

/// Advice in C's words: a builder's method in Rust is a member of a struct here.
fn in_c(advice: &str) -> String {
    ["Device::", "OpenOptions::", "Options::"]
        .iter()
        .fold(advice.to_owned(), |text, builder| {
            text.replace(&format!("`{builder}"), "`")
        })
}

/// Does the work of a call: no panic leaves it, and the text of a failure is written to `error`.
///
/// # Safety
/// `error` is NULL or points to memory that a pointer can be written to.
pub(crate) unsafe fn guarded(
    error: *mut *mut c_char,
    work: impl FnOnce() -> Result<(), CallFailure>,
) -> StatusCode {
    // The engine is consistent between steps, and sessions recover their locks: a panic leaves no visible half-done
    // work.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let failure = match outcome {
        Ok(Ok(())) => return StatusCode::Ok,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned());
            CallFailure {
                status: StatusCode::Panic,
                text: format!(
                    "a fault of Millrace: {}",
                    text.unwrap_or_else(|| "unknown".to_owned())
                ),
            }
        }
    };
    if !error.is_null() {
        // SAFETY: not NULL, and as the caller promised.
        unsafe { error.write(c_text(failure.text)) };
    }
    failure.status
}
