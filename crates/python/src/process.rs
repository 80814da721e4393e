//! The process that owns a model's compute threads. A fork has none of them, and locks that a lost thread held stay locked.

use crate::errors::bad_value;
use pyo3::prelude::*;

/// Process that made an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pid: u32,
}

impl Owner {
    /// This process.
    pub(crate) fn new() -> Owner {
        Owner {
            pid: std::process::id(),
        }
    }

    /// Whether this is a fork of the process that made the object.
    pub(crate) fn is_lost(self) -> bool {
        std::process::id() != self.pid
    }

    /// Refuses work in a fork.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if !self.is_lost() {
            return Ok(());
        }
        let advice = "make the model in the process that uses it, or start processes by `spawn`";
        let message = "this model belongs to another process, and a fork has none of its threads";
        Err(bad_value(py, message, Some(advice.to_owned())))
    }
}
