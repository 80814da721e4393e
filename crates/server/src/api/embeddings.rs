//! Embeddings, in no API's words: texts to vectors.

use std::collections::VecDeque;

use millrace_runtime::{GenerateParams, Pooling, SamplingParams};

use super::error::ApiError;
use super::fields::Fields;
use super::generation::Generation;
use super::params::Caller;
use super::shape::AnswerShape;
use crate::models::ServedModel;
use crate::scheduler::{Job, Receipt};

/// Texts of a request at most, as in OpenAI's API.
pub(crate) const MAX_INPUTS: usize = 2048;

/// How to pool: `pooling` of the request, else what the model's file says, else the mean.
///
/// # Errors
/// A model or a device that makes no embeddings; a wrong field; a length other than the model's.
pub(crate) fn pooling(fields: &Fields<'_>, served: &ServedModel) -> Result<Pooling, ApiError> {
    let wrong = |reason: &String| ApiError::field("model", reason);
    let (embedder, of_model) = served.loaded.embedder.as_ref().map_err(wrong)?;
    let d_model = embedder.d_model();
    if let Some(found) = fields.usize("dimensions")?
        && found != d_model
    {
        let message = format!(
            "this model's embeddings have {d_model} elements and are not cut, found {found}"
        );
        return Err(ApiError::field("dimensions", message));
    }
    match fields.text("pooling")? {
        None => Ok(of_model.unwrap_or(Pooling::Mean)),
        Some("mean") => Ok(Pooling::Mean),
        Some("last") => Ok(Pooling::Last),
        Some(other) => {
            let message = format!("expected mean or last, found \"{other}\"");
            Err(ApiError::field("pooling", message))
        }
    }
}

/// The embeddings of all inputs in their order, each of length 1. As many are computed together as the engine
/// has sequences, so that a long list fills no queue.
///
/// # Errors
/// Those of the first input that has one.
pub(crate) async fn embed(
    served: &ServedModel,
    caller: &Caller,
    inputs: Vec<Vec<u32>>,
    pooling: Pooling,
) -> Result<Vec<(Vec<f32>, Receipt)>, ApiError> {
    let params = GenerateParams {
        sampling: SamplingParams::default(),
        max_tokens: Some(1),
        stop: Vec::new(),
        stop_tokens: Vec::new(),
        ignore_end: false,
        show_special: false,
    };
    let start = |input| {
        let job = Job {
            embed: Some(pooling),
            ..caller.job(input, params.clone())
        };
        Generation::start(served, job, AnswerShape::default(), caller.log.clone())
    };
    let mut done = Vec::with_capacity(inputs.len());
    let mut inputs = inputs.into_iter();
    let mut running = VecDeque::new();
    loop {
        while running.len() < served.loaded.limits.max_sequences
            && let Some(input) = inputs.next()
        {
            running.push_back(start(input).await?);
        }
        let Some(first) = running.pop_front() else {
            return Ok(done);
        };
        done.push(first.embedding().await?);
    }
}
