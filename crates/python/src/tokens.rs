//! Texts and tokens of a model's tokenizer.

use crate::errors::exception;
use millrace::engine::EncodeOptions;
use millrace::{Error, Session};
use pyo3::prelude::*;

/// The tokens of a text.
pub(crate) fn encode(
    py: Python<'_>,
    session: &Session,
    text: &str,
    options: EncodeOptions,
) -> PyResult<Vec<u32>> {
    let tokens = py.detach(|| {
        let tokenizer = session.model().loaded().tokenizer()?;
        Ok(tokenizer.encode(text, options))
    });
    tokens.map_err(|error: Error| exception(py, &error))
}

/// The text of tokens.
pub(crate) fn decode(
    py: Python<'_>,
    session: &Session,
    tokens: &[u32],
    show_special: bool,
) -> PyResult<String> {
    let text = py.detach(|| {
        let tokenizer = session.model().loaded().tokenizer()?;
        Ok(tokenizer.decode(tokens, !show_special))
    });
    text.map_err(|error: Error| exception(py, &error))
}

/// The bytes of tokens, each as it continues a text.
pub(crate) fn bytes(
    py: Python<'_>,
    session: &Session,
    tokens: &[u32],
    show_special: bool,
) -> PyResult<Vec<u8>> {
    let bytes = py.detach(|| {
        let tokenizer = session.model().loaded().tokenizer()?;
        let mut bytes = Vec::with_capacity(tokens.len() * 4);
        for token in tokens {
            if show_special || !tokenizer.is_special(*token) {
                bytes.extend_from_slice(&tokenizer.token_bytes(*token));
            }
        }
        Ok(bytes)
    });
    bytes.map_err(|error: Error| exception(py, &error))
}
