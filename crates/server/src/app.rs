//! What all handlers share.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::lora;
use crate::api::openai::stored::ResponseStore;
use crate::api::params::Caller;
use crate::audit::{AuditLog, RequestLog};
use crate::batch::BatchStore;
use crate::http::HttpOptions;
use crate::http::drain::drain;
use crate::keys::KeyUsage;
use crate::models::{Registry, ServedModel};

/// State of the server.
pub(crate) struct App {
    pub(crate) registry: Registry,
    pub(crate) options: HttpOptions,
    pub(crate) start: Instant,
    /// Files and batches, where they have a folder.
    pub(crate) batches: Option<Arc<BatchStore>>,
    /// Responses, where they are kept.
    pub(crate) responses: Option<Arc<ResponseStore>>,
    pub(crate) http: HttpCounters,
    /// Of each API key.
    pub(crate) usage: Vec<Arc<KeyUsage>>,
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// It was asked to stop, and `/ready` says so; requests are accepted for a while yet.
    pub(crate) is_leaving: AtomicBool,
    /// No request is accepted any more.
    pub(crate) is_draining: AtomicBool,
    /// What the program knows of the machine, for `/v1/system`.
    pub(crate) system: Arc<dyn Fn() -> Value + Send + Sync>,
}

/// Counts of requests by what became of them.
#[derive(Debug, Default)]
pub(crate) struct HttpCounters {
    /// By hundreds of the status: 2xx, 3xx, 4xx, 5xx.
    pub(crate) by_class: [AtomicU64; 4],
    pub(crate) n_connections: AtomicU64,
    pub(crate) n_rejected_connections: AtomicU64,
}

impl HttpCounters {
    pub(crate) fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(2, 5) - 2;
        self.by_class[class].fetch_add(1, Relaxed);
    }
}

/// Who asks, as the guard found: put among a request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) client: Arc<str>,
    /// The request's name.
    pub(crate) request: Arc<str>,
    /// Of requests that do not say: lower is served earlier.
    pub(crate) priority: i32,
    /// Of the key that it showed.
    pub(crate) usage: Option<Arc<KeyUsage>>,
}

fn owner_of_key(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The scope of those who show a key: the same whatever other keys there are, since what is cached may outlive this run.
fn scope_of_key(key: &str) -> u64 {
    let digest = Sha256::digest(format!("scope of {key}"));
    // Scope 0 is that of those without a key.
    digest
        .iter()
        .take(8)
        .fold(0, |scope, byte| scope << 8 | u64::from(*byte))
        .max(1)
}

/// How a client is called that shows the key of this index.
pub(crate) fn key_name(index: usize) -> Arc<str> {
    Arc::from(format!("key {index}"))
}

/// A request that was read.
pub(crate) struct Incoming {
    pub(crate) body: Value,
    pub(crate) caller: Caller,
}

/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(60);

impl App {
    /// Reads a request of JSON whole, within the limits.
    pub(crate) async fn read(&self, request: Request) -> Result<Incoming, ApiError> {
        let (_, bytes, caller) = self.read_bytes(request).await?;
        Ok(Incoming {
            body: parse(&bytes)?,
            caller,
        })
    }

    /// Reads a request whole, within the limits: its headers, its body, and who asks.
    pub(crate) async fn read_bytes(
        &self,
        request: Request,
    ) -> Result<(HeaderMap, Bytes, Caller), ApiError> {
        let (parts, body) = request.into_parts();
        let limit = self.options.max_body_bytes;
        if let Some(coding) = parts.headers.get(header::CONTENT_ENCODING)
            && coding != "identity"
        {
            let message = format!("the body is compressed ({coding:?}); send it as it is");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        // Without waiting for what will be refused.
        if announced_length(&parts.headers).is_some_and(|length| length > limit) {
            if !parts.headers.contains_key(header::EXPECT) {
                drain(body);
            }
            return Err(too_long(limit));
        }
        let read = axum::body::to_bytes(body, limit);
        let bytes = match tokio::time::timeout(BODY_TIME, read).await {
            Err(_) => {
                return Err(ApiError::new(
                    StatusCode::REQUEST_TIMEOUT,
                    format!("the body did not arrive within {} s", BODY_TIME.as_secs()),
                ));
            }
            Ok(Err(error)) => return Err(unread(limit, &error)),
            Ok(Ok(bytes)) => bytes,
        };
        let asker = parts.extensions.get::<Asker>();
        let client = asker.map_or_else(|| Arc::from(""), |asker| Arc::clone(&asker.client));
        let log = asker.map(|asker| self.request_log(Arc::clone(&asker.request)));
        if let (Some(audit), Some(asker)) = (&self.audit, asker)
            && audit.with_text
        {
            let text = String::from_utf8_lossy(&bytes);
            audit.write(&json!({"request": &*asker.request, "body": text}));
        }
        let scope = self.scope(&client);
        let caller = Caller::new(client, &parts.headers, self.options.request_timeout, log)?;
        let priority = asker.map_or(0, |asker| asker.priority);
        let caller = Caller {
            scope,
            priority,
            usage: asker.and_then(|asker| asker.usage.clone()),
            ..caller
        };
        Ok((parts.headers, bytes, caller))
    }

    /// Who sent a request.
    pub(crate) fn client(&self, request: &Request) -> Arc<str> {
        let asker = request.extensions().get::<Asker>();
        asker.map_or_else(|| Arc::from(""), |asker| Arc::clone(&asker.client))
    }

    /// Whose files a client's are: those of its key, by what nobody reads the key from; without keys everybody's.
    pub(crate) fn owner(&self, client: &Arc<str>) -> String {
        let keys = self.options.api_keys.iter().enumerate();
        let own = keys
            .into_iter()
            .find(|(index, _)| key_name(*index) == *client);
        own.map_or_else(String::new, |(_, key)| owner_of_key(key))
    }

    /// The client of an owner, as long as its key is one.
    pub(crate) fn client_of(&self, owner: &str) -> Arc<str> {
        let index = self
            .options
            .api_keys
            .iter()
            .position(|key| owner_of_key(key) == owner);
        index.map_or_else(|| Arc::from("batch"), key_name)
    }

    /// What the key of a client has used; without keys nothing is counted by them.
    pub(crate) fn usage_of(&self, client: &Arc<str>) -> Option<Arc<KeyUsage>> {
        let index = (0..self.usage.len()).find(|index| key_name(*index) == *client)?;
        self.usage.get(index).cloned()
    }

    /// Where what becomes of a request of that name is written.
    pub(crate) fn request_log(&self, request: Arc<str>) -> RequestLog {
        RequestLog {
            request,
            to_stderr: self.options.log,
            audit: self.audit.clone(),
        }
    }

    /// Whose cache a client finds: its key's own, unless all share one.
    fn scope(&self, client: &Arc<str>) -> u64 {
        let keys: &[String] = match self.options.share_cache {
            true => &[],
            false => &self.options.api_keys,
        };
        let mut keys = keys.iter().enumerate();
        let own = keys.find(|(index, _)| key_name(*index) == *client);
        own.map_or(0, |(_, key)| scope_of_key(key))
    }

    /// The model that a request names, ready to run.
    pub(crate) async fn served(&self, fields: &Fields<'_>) -> Result<ServedModel, ApiError> {
        let name = fields.need("model", fields.text("model")?)?;
        lora::chosen(fields, self.served_by_name(name).await?)
    }

    pub(crate) async fn served_by_name(&self, name: &str) -> Result<ServedModel, ApiError> {
        let found = self.registry.locate(name);
        let (entry, adapter) =
            found.ok_or_else(|| ApiError::unknown_model(name, &self.registry.ids()))?;
        let served = self.registry.serve(entry).await?;
        Ok(match adapter {
            Some(adapter) => served.with_adapter(adapter, name),
            None => served,
        })
    }
}

/// Nesting that serde_json refuses, numbers that are none, control characters: all are told with their place.
fn parse(bytes: &Bytes) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::bad(format!("the body is not JSON: {error}")))
}

fn announced_length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

fn too_long(limit: usize) -> ApiError {
    let message = format!(
        "the body is longer than the {limit} bytes that are accepted; send less, or start the server with a larger --max-body"
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// `axum` gives the reason only as text.
fn unread(limit: usize, error: &axum::Error) -> ApiError {
    let source = std::error::Error::source(error);
    match source.is_some_and(|source| source.to_string().contains("length limit exceeded")) {
        true => too_long(limit),
        false => ApiError::bad(format!("the body could not be read: {error}")),
    }
}

/// Whose shape errors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Dialect {
    /// By the path of a request.
    pub(crate) fn of_path(path: &str) -> Dialect {
        if path.starts_with("/api/") {
            Dialect::Ollama
        } else if path.starts_with("/v1/messages") {
            Dialect::Anthropic
        } else {
            Dialect::OpenAi
        }
    }

    /// An error as this dialect's clients understand it.
    pub(crate) fn body(self, error: &ApiError) -> Value {
        match self {
            Dialect::OpenAi => error.openai(),
            Dialect::Anthropic => error.anthropic(),
            Dialect::Ollama => error.ollama(),
        }
    }

    pub(crate) fn response(self, error: &ApiError) -> Response {
        let mut response = json(error.status, &self.body(error));
        if let Some(seconds) = error.retry_after {
            let value = HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        if error.status == StatusCode::NOT_IMPLEMENTED {
            // Clients of OpenAI and Anthropic try again after 5xx, unless they are told not to.
            let never = HeaderValue::from_static("false");
            response.headers_mut().insert("x-should-retry", never);
        }
        response
    }

    /// What a handler made of a request.
    pub(crate) fn answer(self, result: Result<Response, ApiError>) -> Response {
        result.unwrap_or_else(|error| self.response(&error))
    }
}

/// What of a request the server went without, a piece each, parted by `; `.
pub(crate) static LEFT_OUT: HeaderName = HeaderName::from_static("x-millrace-left-out");

/// Bytes of that header at most: proxies have limits.
const MAX_LEFT_OUT_BYTES: usize = 2048;

/// An answer that tells what the server went without.
pub(crate) fn with_left_out(mut response: Response, left_out: &[String]) -> Response {
    if left_out.is_empty() {
        return response;
    }
    let mut text = String::new();
    for (i, piece) in left_out.iter().enumerate() {
        if text.len() + piece.len() > MAX_LEFT_OUT_BYTES {
            text += &format!("; and {} more", left_out.len() - i);
            break;
        }
        if i > 0 {
            text += "; ";
        }
        let plain = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        text.extend(piece.chars().map(plain));
    }
    if let Ok(value) = HeaderValue::from_str(text.trim_start_matches("; ")) {
        response.headers_mut().insert(&LEFT_OUT, value);
    }
    response
}

/// Writes a line of the log. Whoever read standard error may have gone (`millrace serve … 2>&1 | head`): no reason to
/// stop answering.
pub(crate) fn log(line: &Value) {
    let line = format!("{line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, body.to_string()).into_response()
}
