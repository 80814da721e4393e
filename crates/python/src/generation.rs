//! Result of a generation.

use millrace::{Finish, Generation};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A finished text with its tokens, the reason of its end, and its times.
#[pyclass(frozen, module = "millrace")]
#[derive(Debug)]
pub(crate) struct Completion(pub(crate) Generation);

/// Why a text ended, as the server's APIs and the type stubs spell it.
fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::StopText => "stop_text",
        Finish::Length => "length",
        Finish::ContextFull => "context_full",
        Finish::Cancelled => "cancelled",
    }
}

#[pymethods]
impl Completion {
    /// The text, up to a stop text.
    #[getter]
    fn text(&self) -> &str {
        &self.0.text
    }

    /// Tokens drawn, without the one that ended the text.
    #[getter]
    fn tokens(&self) -> Vec<u32> {
        self.0.tokens.clone()
    }

    /// `stop`, `stop_text`, `length`, `context_full` or `cancelled`.
    #[getter]
    fn finish_reason(&self) -> &'static str {
        reason(self.0.finish)
    }

    /// Tokens of the prompt, including those from the cache.
    #[getter]
    fn prompt_tokens(&self) -> usize {
        self.0.timings.n_cached + self.0.timings.n_prefill
    }

    /// Counts and seconds: `cached_tokens`, `prefill_tokens`, `prefill_s`, `decode_tokens`, `decode_s`.
    #[getter]
    fn timings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let timings = &self.0.timings;
        let dict = PyDict::new(py);
        dict.set_item("cached_tokens", timings.n_cached)?;
        dict.set_item("prefill_tokens", timings.n_prefill)?;
        dict.set_item("prefill_s", timings.prefill.as_secs_f64())?;
        dict.set_item("decode_tokens", timings.n_decode)?;
        dict.set_item("decode_s", timings.decode.as_secs_f64())?;
        Ok(dict)
    }

    fn __str__(&self) -> &str {
        &self.0.text
    }

    fn __repr__(&self) -> String {
        format!(
            "<millrace.Completion of {} tokens, finish_reason='{}'>",
            self.0.tokens.len(),
            reason(self.0.finish)
        )
    }
}
