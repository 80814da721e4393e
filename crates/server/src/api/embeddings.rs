//! Embeddings, independent of an API: texts to vectors.

use std::collections::VecDeque;

use millrace_runtime::{GenerateParams, Pooling, SamplingParams, cut_embedding};

use super::error::ApiError;
use super::fields::Fields;
use super::generation::Generation;
use super::params::Caller;
use super::shape::AnswerShape;
use crate::models::ServedModel;
use crate::scheduler::{Job, Receipt};

/// Maximum number of texts of a request, as in OpenAI's API.
pub(crate) const MAX_INPUTS: usize = 2048;

/// How a text's rows become a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorForm {
    /// How rows are pooled.
    pub(crate) pooling: Pooling,
    /// Elements to keep of a vector, which then has length 1; `None` for the whole pooled row, unscaled.
    width: Option<usize>,
}

impl VectorForm {
    /// Pooled rows, unscaled.
    pub(crate) fn rows(pooling: Pooling) -> VectorForm {
        let width = None;
        VectorForm { pooling, width }
    }
}

/// How to pool: `pooling` of the request, else the setting in the model's file, else the mean.
///
/// # Errors
/// A model or a device without embeddings; an invalid field; more `dimensions` than the model has.
pub(crate) fn pooling(fields: &Fields<'_>, served: &ServedModel) -> Result<VectorForm, ApiError> {
    let wrong = |reason: &String| ApiError::field("model", reason);
    let (embedder, of_model) = served.loaded.embedder.as_ref().map_err(wrong)?;
    let d_model = embedder.width();
    let width = fields.usize("dimensions")?.unwrap_or(d_model);
    if !(1..=d_model).contains(&width) {
        let message = format!("this model's embeddings have {d_model} elements, found {width}");
        return Err(ApiError::field("dimensions", message));
    }
    let pooling = match fields.text("pooling")? {
        None => of_model.unwrap_or(Pooling::Mean),
        Some("mean") => Pooling::Mean,
        Some("first" | "cls") => Pooling::First,
        Some("last") => Pooling::Last,
        Some(other) => {
            let message = format!("expected mean, first or last, found \"{other}\"");
            return Err(ApiError::field("pooling", message));
        }
    };
    let width = Some(width);
    Ok(VectorForm { pooling, width })
}

/// The prefix of every text: the prompt of the model's folder that `prompt_name` names, else the default one.
///
/// # Errors
/// A name that the folder does not contain.
pub(crate) fn prefix<'a>(
    fields: &Fields<'_>,
    served: &'a ServedModel,
) -> Result<&'a str, ApiError> {
    let prompts = &served.loaded.embedding_prompts;
    match fields.text("prompt_name")? {
        Some(name) => {
            let prompt = prompts.named(name);
            prompt.map_err(|message| ApiError::field("prompt_name", message))
        }
        None => Ok(prompts.usual()),
    }
}

/// The embeddings of all inputs in their order, each of length 1 unless rows are requested. As many are computed
/// together as the engine has sequences, so a long list does not fill the queue.
///
/// # Errors
/// The first error of an input.
pub(crate) async fn embed(
    served: &ServedModel,
    caller: &Caller,
    inputs: Vec<Vec<u32>>,
    how: VectorForm,
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
            embed: Some(how.pooling),
            embed_rows: how.width.is_none(),
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
        let (vector, receipt) = first.embedding().await?;
        let vector = match how.width {
            Some(width) => cut_embedding(vector, width),
            None => vector,
        };
        done.push((vector, receipt));
    }
}
