//! State that all handlers share.

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
    /// Files and batches, if a folder is configured.
    pub(crate) batches: Option<Arc<BatchStore>>,
    /// Stored responses, if any are kept.
    pub(crate) responses: Option<Arc<ResponseStore>>,
    pub(crate) http: HttpCounters,
    /// For each API key.
    pub(crate) usage: Vec<Arc<KeyUsage>>,
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// The server was asked to stop, and `/ready` reports it; requests are still accepted for a while.
    pub(crate) is_leaving: AtomicBool,
    /// No more requests are accepted.
    pub(crate) is_draining: AtomicBool,
    /// Information about the machine, for `/v1/system`.
    pub(crate) system: Arc<dyn Fn() -> Value + Send + Sync>,
}

/// Counts of requests by outcome.
#[derive(Debug, Default)]
pub(crate) struct HttpCounters {
    /// By class of the status: 2xx, 3xx, 4xx, 5xx.
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

/// The client of a request, as identified by the guard. Stored among the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) client: Arc<str>,
    /// The request's id.
    pub(crate) request: Arc<str>,
    /// Priority of requests that set none: lower is served earlier.
    pub(crate) priority: i32,
    /// Usage of its API key.
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

/// The scope of clients with this key. It does not depend on the other keys, since cached data may outlive this run.
fn scope_of_key(key: &str) -> u64 {
    let digest = Sha256::digest(format!("scope of {key}"));
    // Scope 0 is for clients without a key.
    digest
        .iter()
        .take(8)
        .fold(0, |scope, byte| scope << 8 | u64::from(*byte))
        .max(1)
}

/// The name of a client with the key of this index.
pub(crate) fn key_name(index: usize) -> Arc<str> {
    Arc::from(format!("key {index}"))
}

/// A request that was read.
pub(crate) struct Incoming {
    pub(crate) body: Value,
    pub(crate) caller: Caller,
}

/// Time limit for a client to send a body.
const BODY_TIME: Duration = Duration::from_secs(60);

impl App {
    /// Reads a JSON request whole, within the limits.
    pub(crate) async fn read(&self, request: Request) -> Result<Incoming, ApiError> {
        let (_, bytes, caller) = self.read_bytes(request).await?;
        Ok(Incoming {
            body: parse(&bytes)?,
            caller,
        })
    }

    /// Reads a request whole, within the limits: its headers, its body, and its client.
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
        // Refuses an announced length at once, without waiting for the body.
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

    /// The client that sent a request.
    pub(crate) fn client(&self, request: &Request) -> Arc<str> {
        let asker = request.extensions().get::<Asker>();
        asker.map_or_else(|| Arc::from(""), |asker| Arc::clone(&asker.client))
    }

    /// The owner of a client's files: derived from its key in a way that does not reveal the key. Without keys all
    /// clients are one owner.
    pub(crate) fn owner(&self, client: &Arc<str>) -> String {
        let keys = self.options.api_keys.iter().enumerate();
        let own = keys
            .into_iter()
            .find(|(index, _)| key_name(*index) == *client);
        own.map_or_else(String::new, |(_, key)| owner_of_key(key))
    }

    /// The client of an owner, as long as its key is configured.
    pub(crate) fn client_of(&self, owner: &str) -> Arc<str> {
        let index = self
            .options
            .api_keys
            .iter()
            .position(|key| owner_of_key(key) == owner);
        index.map_or_else(|| Arc::from("batch"), key_name)
    }

    /// The usage of a client's key; `None` without keys.
    pub(crate) fn usage_of(&self, client: &Arc<str>) -> Option<Arc<KeyUsage>> {
        let index = (0..self.usage.len()).find(|index| key_name(*index) == *client)?;
        self.usage.get(index).cloned()
    }

    /// Where the outcome of a request with this id is logged.
    pub(crate) fn request_log(&self, request: Arc<str>) -> RequestLog {
        RequestLog {
            request,
            to_stderr: self.options.log,
            audit: self.audit.clone(),
        }
    }

    /// The cache scope of a client: its key's own, unless all share one.
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

/// Parses JSON, behind a byte order mark if there is one (PowerShell sends it). Nesting beyond serde_json's limit, invalid numbers and control characters are reported with their
/// position.
fn parse(bytes: &Bytes) -> Result<Value, ApiError> {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    serde_json::from_slice(text)
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

/// The error for a body that cannot be read. `axum` gives the reason only as text.
fn unread(limit: usize, error: &axum::Error) -> ApiError {
    let source = std::error::Error::source(error);
    match source.is_some_and(|source| source.to_string().contains("length limit exceeded")) {
        true => too_long(limit),
        false => ApiError::bad(format!("the body could not be read: {error}")),
    }
}

/// The API whose error format applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Dialect {
    /// The dialect of a request's path.
    pub(crate) fn of_path(path: &str) -> Dialect {
        if path.starts_with("/api/") {
            Dialect::Ollama
        } else if path.starts_with("/v1/messages") {
            Dialect::Anthropic
        } else {
            Dialect::OpenAi
        }
    }

    /// The body of an error in this dialect.
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

    /// The response for a handler's result.
    pub(crate) fn answer(self, result: Result<Response, ApiError>) -> Response {
        result.unwrap_or_else(|error| self.response(&error))
    }
}

/// Parts of a request that the server ignored, separated by `; `.
pub(crate) static LEFT_OUT: HeaderName = HeaderName::from_static("x-millrace-left-out");

/// Maximum size of that header in bytes: proxies have limits.
const MAX_LEFT_OUT_BYTES: usize = 2048;

/// Adds the ignored parts to a response.
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

/// Writes a line of the log. The reader of standard error may be gone (`millrace serve … 2>&1 | head`), which must
/// not stop the server.
pub(crate) fn log(line: &Value) {
    let line = format!("{line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, body.to_string()).into_response()
}
