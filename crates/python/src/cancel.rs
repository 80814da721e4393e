//! Tokens that stop work from another thread.

use millrace::Cancel;
use pyo3::prelude::*;

/// Stops the work that it was given to, from any thread.
#[pyclass(frozen, module = "millrace", from_py_object)]
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelToken(pub(crate) Cancel);

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Stops the work that has this token, and all work that gets it before `reset`.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Makes the token usable for new work.
    fn reset(&self) {
        self.0.reset();
    }

    /// Whether cancellation was requested.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    fn __repr__(&self) -> String {
        let cancelled = if self.0.is_cancelled() {
            "True"
        } else {
            "False"
        };
        format!("<millrace.CancelToken cancelled={cancelled}>")
    }
}
