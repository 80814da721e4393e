//! Embeddings of texts.

use crate::errors::{bad_value, exception};
use crate::model::Results;
use crate::prompts::Texts;
use crate::watch::WorkWatch;
use millrace::{Error, Pooling, Session};
use pyo3::prelude::*;

/// Embeddings, `[d_model]` for each text. `pooling` is `mean`, `first` or `last`; None leaves it to the model's files.
/// `truncate` cuts a text to the context.
pub(crate) fn embed(
    py: Python<'_>,
    session: &Session,
    text: &Texts,
    pooling: Option<&str>,
    normalize: bool,
    truncate: bool,
) -> PyResult<Results<Vec<f32>>> {
    let pooling = match pooling {
        None => None,
        Some("mean") => Some(Pooling::Mean),
        Some("first") => Some(Pooling::First),
        Some("last") => Some(Pooling::Last),
        Some(other) => {
            let message = format!("no pooling `{other}`: there are mean, first and last");
            return Err(bad_value(py, &message, None));
        }
    };
    let embed = |text: &String| {
        let pooling = match pooling {
            Some(pooling) => pooling,
            None => Pooling::of(session.model().loaded())?.unwrap_or(Pooling::Mean),
        };
        let mut tokens = session.model().tokenize(text)?;
        if truncate {
            tokens.truncate(session.n_ctx());
        }
        session.embed_tokens(&tokens, pooling, normalize)
    };
    let watch = WorkWatch::new(None);
    let embeddings = watch.run(py, || match text {
        Texts::One(text) => embed(text).map(Results::One),
        Texts::Many(texts) => {
            let mut all = Vec::with_capacity(texts.len());
            for text in texts {
                if watch.cancel.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                all.push(embed(text)?);
            }
            Ok(Results::Many(all))
        }
    })?;
    embeddings.map_err(|error| exception(py, &error))
}
