//! Generation options that the dialects share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use millrace_runtime::{GenerateParams, SamplingParams};

use super::error::ApiError;
use super::fields::{Fields, natural, wrong};
use super::random;
use super::shape::OutputForm;
use crate::audit::RequestLog;
use crate::grammar::Grammar;
use crate::keys::KeyUsage;
use crate::scheduler::{Job, ModelInfo, SubmitError};

/// Maximum number of stop texts of a request, and bytes of each.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// Maximum number of stop tokens.
const MAX_STOP_TOKENS: usize = 128;

/// Maximum number of answers to one prompt.
pub(crate) const MAX_ANSWERS: usize = 32;

/// The client of a request, and its deadline.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) client: Arc<str>,
    /// The scope of its cache.
    pub(crate) scope: u64,
    /// Priority of requests that set none: lower is served earlier.
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Instant>,
    /// Usage of its API key.
    pub(crate) usage: Option<Arc<KeyUsage>>,
    /// Where the outcome of the request is logged.
    pub(crate) log: Option<RequestLog>,
}

impl Caller {
    /// From the request's headers: `x-request-timeout-ms` says how long the caller waits. It can only shorten the
    /// server's own limit.
    pub(crate) fn new(
        client: Arc<str>,
        headers: &HeaderMap,
        limit: Option<Duration>,
        log: Option<RequestLog>,
    ) -> Result<Caller, ApiError> {
        const NAME: &str = "x-request-timeout-ms";
        let asked = match headers.get(NAME) {
            None => None,
            Some(value) => {
                let number = value.to_str().ok().and_then(|text| text.parse().ok());
                let wrong = || ApiError::field(NAME, "expected a number of milliseconds");
                Some(Duration::from_millis(number.ok_or_else(wrong)?))
            }
        };
        let wait = match (asked, limit) {
            (Some(asked), Some(limit)) => Some(asked.min(limit)),
            (one, other) => one.or(other),
        };
        Ok(Caller {
            client,
            scope: 0,
            priority: 0,
            usage: None,
            log,
            // A time beyond the clock's range means no limit.
            deadline: wait.and_then(|wait| Instant::now().checked_add(wait)),
        })
    }

    /// Waits for work that precedes submitting a job. From then on the scheduler enforces the deadline.
    ///
    /// # Errors
    /// The errors of the work, or that the deadline passed.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        match self.deadline {
            None => work.await,
            Some(deadline) => {
                let work = tokio::time::timeout_at(deadline.into(), work);
                let passed = |_| Err(SubmitError::Deadline.into());
                work.await.unwrap_or_else(passed)
            }
        }
    }

    /// A job of this caller.
    pub(crate) fn job(&self, prompt: Vec<u32>, params: GenerateParams) -> Job {
        Job {
            client: Arc::clone(&self.client),
            scope: self.scope,
            priority: self.priority,
            usage: self.usage.clone(),
            deadline: self.deadline,
            ..Job::new(prompt, params)
        }
    }
}

/// Default sampling of a model: its authors' recommendation, else the defaults of the command line.
pub(crate) fn default_sampling(loaded: &ModelInfo) -> SamplingParams {
    // An unreadable recommendation counts as none.
    let recommended = loaded.model.recommended_sampling().ok().flatten();
    recommended.unwrap_or(SamplingParams {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        ..SamplingParams::default()
    })
}

/// Reads `top_k`; -1 and 0 keep all.
pub(crate) fn top_k(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    Ok(fields
        .i64("top_k")?
        .map(|k| usize::try_from(k).unwrap_or(0)))
}

pub(crate) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// The seed of a request. Absent or -1 means a random seed; other negative values are seeds.
pub(crate) fn seed(fields: &Fields<'_>) -> Result<u64, ApiError> {
    // Values beyond i64.
    if let Some(large) = fields.get("seed").and_then(serde_json::Value::as_u64) {
        return Ok(large);
    }
    match fields.i64("seed")? {
        None | Some(-1) => Ok(random() >> 32),
        Some(seed) => Ok(seed.cast_unsigned()),
    }
}

/// Token ids, each checked against the model's vocabulary.
pub(crate) fn token_ids(
    value: &serde_json::Value,
    path: &str,
    expected: &str,
    loaded: &ModelInfo,
) -> Result<Vec<u32>, ApiError> {
    let list = value
        .as_array()
        .ok_or_else(|| wrong(path, expected, value))?;
    let vocab_size = loaded.model.model().config.vocab_size;
    let id = |(i, one): (usize, &serde_json::Value)| {
        let expected = format!("token ids, a whole number in place {i}");
        let number = natural(one).ok_or_else(|| wrong(path, &expected, one))?;
        let id = u32::try_from(number).ok();
        let id = id.filter(|id| (*id as usize) < vocab_size);
        id.ok_or_else(|| {
            let message =
                format!("token {number} is not in the vocabulary, which has {vocab_size} tokens");
            ApiError::field(path, message)
        })
    };
    list.iter().enumerate().map(id).collect()
}

/// Stop tokens, by vLLM's name.
pub(crate) fn stop_tokens(fields: &Fields<'_>, loaded: &ModelInfo) -> Result<Vec<u32>, ApiError> {
    const NAME: &str = "stop_token_ids";
    let Some(value) = fields.get(NAME) else {
        return Ok(Vec::new());
    };
    let tokens = token_ids(value, &fields.path(NAME), "a list of token ids", loaded)?;
    if tokens.len() > MAX_STOP_TOKENS {
        let message = format!("at most {MAX_STOP_TOKENS} tokens are accepted");
        return Err(ApiError::field(&fields.path(NAME), message));
    }
    Ok(tokens)
}

/// One stop text or a list.
pub(crate) fn stop_texts(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    texts(fields, name, MAX_STOPS, MAX_STOP_BYTES)
}

/// One text or a list, with limits on the number of texts and the bytes of each; empty ones are left out.
pub(super) fn texts(
    fields: &Fields<'_>,
    name: &str,
    most: usize,
    most_bytes: usize,
) -> Result<Vec<String>, ApiError> {
    let path = fields.path(name);
    let expected = "a string or a list of strings";
    let texts: Vec<String> = match fields.get(name) {
        None => Vec::new(),
        Some(value) => match (value.as_str(), value.as_array()) {
            (Some(text), _) => vec![text.to_owned()],
            (_, Some(list)) => {
                let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
                let texts: Option<Vec<String>> = list.iter().map(text).collect();
                texts.ok_or_else(|| wrong(&path, expected, value))?
            }
            _ => return Err(wrong(&path, expected, value)),
        },
    };
    if texts.len() > most || texts.iter().any(|text| text.len() > most_bytes) {
        let message = format!("at most {most} texts of {most_bytes} bytes are accepted");
        return Err(ApiError::field(&path, message));
    }
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// `response_format` of OpenAI's chat completions, or the `format` inside `text` of its responses.
pub(crate) fn response_format(format: Option<Fields<'_>>) -> Result<Option<OutputForm>, ApiError> {
    let Some(format) = format else {
        return Ok(None);
    };
    match format.need("type", format.text("type")?)? {
        "text" => Ok(None),
        "json_object" => Ok(Some(OutputForm {
            grammar: Grammar::JsonObject,
            path: format.path("type"),
        })),
        "json_schema" => {
            let inner = format
                .object("json_schema")?
                .unwrap_or_else(|| format.clone());
            let schema = inner.need("schema", inner.get("schema"))?;
            if !schema.is_object() && !schema.is_boolean() {
                return Err(wrong(&inner.path("schema"), "a JSON schema", schema));
            }
            Ok(Some(OutputForm::of_schema(schema, inner.path("schema"))?))
        }
        other => {
            let message = format!("expected text, json_object or json_schema, found \"{other}\"");
            Err(ApiError::field(&format.path("type"), message))
        }
    }
}
