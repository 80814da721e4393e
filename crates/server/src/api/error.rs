//! Errors of requests, before they are put into an API's own form.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::grammar::GrammarError;
use crate::scheduler::{JobFailure, SubmitError};

/// Reason why a request fails.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The invalid field.
    pub(crate) param: Option<String>,
    /// An error code for programs.
    pub(crate) code: Option<&'static str>,
    /// Seconds to wait before trying again.
    pub(crate) retry_after: Option<u64>,
    /// For a prompt that is too long: its number of tokens, and the limit.
    pub(crate) too_long: Option<(usize, usize)>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
            too_long: None,
        }
    }

    /// The request is wrong, without a field to blame.
    pub(crate) fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// An invalid field.
    pub(crate) fn field(param: &str, message: impl std::fmt::Display) -> ApiError {
        ApiError {
            param: Some(param.to_owned()),
            ..ApiError::bad(format!("{param}: {message}"))
        }
    }

    /// A prompt, and `n_new` tokens to write, that do not fit a context of `n_ctx`. Clients shorten a conversation
    /// when they read "maximum context length", or in Anthropic's API "prompt is too long".
    pub(crate) fn overflow(n_prompt: usize, n_new: usize, n_ctx: usize) -> ApiError {
        let message = format!(
            "this model's maximum context length is {n_ctx} tokens, and the prompt of {n_prompt} tokens and {n_new} to \
             write do not fit; shorten the messages, or start the server with a larger --ctx"
        );
        ApiError {
            too_long: Some((n_prompt, n_ctx.saturating_sub(n_new))),
            ..ApiError::bad(message).code("context_length_exceeded")
        }
    }

    /// Appends advice to the message.
    pub(super) fn advice(mut self, advice: &str) -> ApiError {
        self.message = format!("{}; {advice}", self.message);
        self
    }

    pub(crate) fn unknown_model(name: &str, known: &[String]) -> ApiError {
        ApiError {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..ApiError::new(
                StatusCode::NOT_FOUND,
                format!(
                    "the model `{name}` does not exist; this server has: {}",
                    known.join(", ")
                ),
            )
        }
    }

    pub(super) fn code(self, code: &'static str) -> ApiError {
        ApiError {
            code: Some(code),
            ..self
        }
    }

    /// In the form of OpenAI's API.
    pub(crate) fn openai(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        json!({"error": {
            "message": self.message, "type": kind, "param": self.param, "code": self.code,
        }})
    }

    /// In the form of Anthropic's API.
    pub(crate) fn anthropic(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let message = match self.too_long {
            Some((found, most)) => {
                format!(
                    "prompt is too long: {found} tokens > {most} maximum; {}",
                    self.message
                )
            }
            None => self.message.clone(),
        };
        json!({"type": "error", "error": {"type": kind, "message": message}})
    }

    /// In the form of Ollama's API.
    pub(crate) fn ollama(&self) -> Value {
        json!({"error": self.message})
    }
}

impl From<SubmitError> for ApiError {
    fn from(refusal: SubmitError) -> ApiError {
        let message = refusal.to_string();
        let with = |status| ApiError::new(status, message.clone());
        match refusal {
            SubmitError::QueueFull { retry_after, .. } => ApiError {
                retry_after: Some(retry_after.as_secs()),
                ..with(StatusCode::TOO_MANY_REQUESTS).code("queue_full")
            },
            SubmitError::Draining | SubmitError::Unloading | SubmitError::Loading => ApiError {
                retry_after: Some(5),
                ..with(StatusCode::SERVICE_UNAVAILABLE).code("unavailable")
            },
            SubmitError::Deadline => with(StatusCode::GATEWAY_TIMEOUT).code("deadline"),
            SubmitError::Grammar(GrammarError::Untried { .. }) => ApiError {
                retry_after: Some(5),
                ..with(StatusCode::SERVICE_UNAVAILABLE).code("unavailable")
            },
            SubmitError::NotRunning(_) => {
                with(StatusCode::SERVICE_UNAVAILABLE).code("model_not_running")
            }
            SubmitError::TooLong { n_prompt, capacity } => {
                let error = ApiError::overflow(n_prompt, 1, capacity);
                error.advice("that is the size of the cache")
            }
            SubmitError::Bad(millrace_runtime::Error::ContextOverflow {
                n_prompt,
                n_new,
                n_ctx,
                ..
            }) => ApiError::overflow(n_prompt, n_new, n_ctx),
            SubmitError::Bad(millrace_runtime::Error::BadOption {
                option,
                found,
                expected,
            }) => ApiError::field(
                &option.replace('-', "_"),
                format!("found {found}; it must be {expected}"),
            ),
            SubmitError::Bad(_)
            | SubmitError::Grammar(_)
            | SubmitError::NoEmbeddings(_)
            | SubmitError::NoText => with(StatusCode::BAD_REQUEST),
        }
    }
}

impl From<JobFailure> for ApiError {
    fn from(failure: JobFailure) -> ApiError {
        let message = failure.to_string();
        match failure {
            JobFailure::Deadline => {
                ApiError::new(StatusCode::GATEWAY_TIMEOUT, message).code("deadline")
            }
            JobFailure::ShuttingDown => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("unavailable")
            }
            // The grammar came with the request.
            JobFailure::Grammar(_) => ApiError::bad(message).code("grammar"),
            JobFailure::Engine(_) => {
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("engine")
            }
        }
    }
}
