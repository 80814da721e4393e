//! `/v1/files` and `/v1/batches`.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::time::unix_s;
use crate::api::unique;
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::batch::{BatchError, BatchState, BatchStore, StoredBatch, StoredFile};

/// The endpoints that a batch may request, by `url`.
const ENDPOINTS: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/responses",
];

impl From<BatchError> for ApiError {
    fn from(error: BatchError) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

fn store(app: &App) -> Result<&Arc<BatchStore>, ApiError> {
    let message = "this server keeps no files; start it with --batches FOLDER";
    let store = app.batches.as_ref();
    store.ok_or_else(|| ApiError::new(StatusCode::NOT_IMPLEMENTED, message))
}

fn unknown(what: &str, id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no {what} `{id}`"))
}

/// Runs work on files outside the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
}

fn list(data: Vec<Value>) -> Response {
    let end = |value: Option<&Value>| value.map_or(Value::Null, |value| value["id"].clone());
    let (first, last) = (end(data.first()), end(data.last()));
    let body = json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": false});
    json_response(StatusCode::OK, &body)
}

fn file_json(store: &BatchStore, file: &StoredFile) -> Value {
    json!({
        "id": file.id, "object": "file", "bytes": store.n_bytes(&file.id), "created_at": file.created_at,
        "filename": file.filename, "purpose": file.purpose, "status": "processed",
    })
}

/// `POST /v1/files`, a form.
pub(crate) async fn upload(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let store = Arc::clone(store(&app)?);
        let (headers, body, caller) = app.read_bytes(request).await?;
        let owner = app.owner(&caller.client);
        let form = form(&headers, &body)?;
        let part = |name: &str| form.iter().find(|part| part.name == name);
        let purpose =
            part("purpose").map(|part| String::from_utf8_lossy(part.content).into_owned());
        let purpose = purpose.unwrap_or_else(|| "batch".to_owned());
        if purpose != "batch" {
            return Err(ApiError::field(
                "purpose",
                "expected batch: no other files are kept",
            ));
        }
        let file = part("file").ok_or_else(|| ApiError::field("file", "this field is required"))?;
        let filename = file
            .filename
            .clone()
            .unwrap_or_else(|| "batch.jsonl".to_owned());
        let content = file.content.to_vec();
        let body = blocking(move || {
            let file = store.add_file(&filename, &purpose, &owner, &content)?;
            Ok(file_json(&store, &file))
        });
        Ok(json_response(StatusCode::OK, &body.await?))
    };
    Dialect::OpenAi.answer(work.await)
}

/// `GET /v1/files`.
pub(crate) async fn files(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = || {
        let store = store(&app)?;
        let own = store.files(&app.owner(&app.client(&request)));
        Ok(list(
            own.iter().map(|file| file_json(store, file)).collect(),
        ))
    };
    Dialect::OpenAi.answer(work())
}

/// The owner whose files the sender of a request may see.
fn owner(app: &App, request: &Request) -> String {
    app.owner(&app.client(request))
}

/// The store, and a file of it that this owner may see.
fn file_of(app: &App, id: &str, owner: &str) -> Result<(Arc<BatchStore>, StoredFile), ApiError> {
    let store = Arc::clone(store(app)?);
    let file = store.file(id, owner).ok_or_else(|| unknown("file", id))?;
    Ok((store, file))
}

/// `GET /v1/files/{id}`.
pub(crate) async fn file(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let found = file_of(&app, &id, &owner(&app, &request));
    let answer =
        found.map(|(store, file)| json_response(StatusCode::OK, &file_json(&store, &file)));
    Dialect::OpenAi.answer(answer)
}

/// `DELETE /v1/files/{id}`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let owner = owner(&app, &request);
    let work = async {
        let (store, file) = file_of(&app, &id, &owner)?;
        let removed = blocking(move || Ok(store.remove_file(&file.id)?)).await?;
        let message = "a batch that is not complete reads or writes it; cancel that first";
        match removed {
            true => Ok(json_response(
                StatusCode::OK,
                &json!({"id": id, "object": "file", "deleted": true}),
            )),
            false => Err(ApiError::new(StatusCode::CONFLICT, message)),
        }
    };
    Dialect::OpenAi.answer(work.await)
}

/// `GET /v1/files/{id}/content`.
pub(crate) async fn content(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let owner = owner(&app, &request);
    let work = async {
        let (store, file) = file_of(&app, &id, &owner)?;
        let bytes = blocking(move || Ok(store.content(&file.id)?)).await?;
        let headers = [(header::CONTENT_TYPE, "application/jsonl")];
        Ok((StatusCode::OK, headers, bytes).into_response())
    };
    Dialect::OpenAi.answer(work.await)
}

fn batch_json(batch: &StoredBatch) -> Value {
    let ended = |state: BatchState| match batch.state == state {
        true => json!(batch.ended_at),
        false => Value::Null,
    };
    let errors = batch.failure.as_ref().map(|(line, message)| {
        let error =
            json!({"code": "invalid_request", "message": message, "param": null, "line": line});
        json!({"object": "list", "data": [error]})
    });
    // Empty files are not shown, as in OpenAI's API.
    let file = |id: &str, n: usize| match n {
        0 => Value::Null,
        _ => id.into(),
    };
    let n_completed = batch.n_answered - batch.n_failed.min(batch.n_answered);
    json!({
        "id": batch.id, "object": "batch", "endpoint": batch.endpoint, "errors": errors,
        "input_file_id": batch.input_file_id, "completion_window": batch.completion_window,
        "status": batch.state, "output_file_id": file(&batch.output_file_id, n_completed),
        "error_file_id": file(&batch.error_file_id, batch.n_failed),
        "created_at": batch.created_at, "in_progress_at": batch.created_at, "expires_at": null,
        "finalizing_at": ended(BatchState::Completed), "completed_at": ended(BatchState::Completed),
        "failed_at": ended(BatchState::Failed), "expired_at": null,
        "cancelling_at": ended(BatchState::Cancelled), "cancelled_at": ended(BatchState::Cancelled),
        "request_counts": {"total": batch.n_requests, "completed": n_completed, "failed": batch.n_failed},
        "metadata": batch.metadata,
    })
}

/// `POST /v1/batches`.
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let store = Arc::clone(store(&app)?);
        let Incoming { body, caller } = app.read(request).await?;
        let fields = Fields::of(&body)?;
        let owner = app.owner(&caller.client);
        let input = fields.need("input_file_id", fields.text("input_file_id")?)?;
        let input = store.file(input, &owner);
        let input =
            input.ok_or_else(|| ApiError::field("input_file_id", "there is no such file"))?;
        let endpoint = fields.need("endpoint", fields.text("endpoint")?)?;
        if !ENDPOINTS.contains(&endpoint) {
            let message = format!(
                "expected one of {}, found \"{endpoint}\"",
                ENDPOINTS.join(", ")
            );
            return Err(ApiError::field("endpoint", message));
        }
        let metadata = match fields.get("metadata") {
            None => None,
            Some(metadata) => {
                let object = metadata.as_object().cloned();
                Some(object.ok_or_else(|| ApiError::field("metadata", "expected an object"))?)
            }
        };
        let window = fields.text("completion_window")?.unwrap_or("24h");
        let batch = StoredBatch {
            id: unique("batch_"),
            endpoint: endpoint.to_owned(),
            input_file_id: input.id,
            output_file_id: String::new(),
            error_file_id: String::new(),
            completion_window: window.to_owned(),
            metadata,
            state: BatchState::InProgress,
            created_at: unix_s(),
            ended_at: None,
            failure: None,
            n_requests: 0,
            n_answered: 0,
            n_failed: 0,
            owner,
        };
        let batch = {
            let app = Arc::clone(&app);
            let handle = tokio::runtime::Handle::current();
            blocking(move || {
                let _entered = handle.enter();
                Ok(store.begin(&app, batch)?)
            })
        };
        Ok(json_response(StatusCode::OK, &batch_json(&batch.await?)))
    };
    Dialect::OpenAi.answer(work.await)
}

/// `GET /v1/batches`.
pub(crate) async fn batches(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = || {
        let own = store(&app)?.batches(&app.owner(&app.client(&request)));
        Ok(list(own.iter().map(batch_json).collect()))
    };
    Dialect::OpenAi.answer(work())
}

/// `GET /v1/batches/{id}`.
pub(crate) async fn batch(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let work = || {
        let owner = app.owner(&app.client(&request));
        let batch = store(&app)?
            .batch(&id, &owner)
            .ok_or_else(|| unknown("batch", &id))?;
        Ok(json_response(StatusCode::OK, &batch_json(&batch)))
    };
    Dialect::OpenAi.answer(work())
}

/// `POST /v1/batches/{id}/cancel`.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let owner = owner(&app, &request);
    let work = async {
        let store = Arc::clone(store(&app)?);
        store
            .batch(&id, &owner)
            .ok_or_else(|| unknown("batch", &id))?;
        let cancelled = blocking(move || Ok(store.cancel(&id)?)).await?;
        let message = "the batch has ended";
        let batch = cancelled.ok_or_else(|| ApiError::new(StatusCode::CONFLICT, message))?;
        Ok(json_response(StatusCode::OK, &batch_json(&batch)))
    };
    Dialect::OpenAi.answer(work.await)
}

/// A part of a form.
#[derive(Debug, PartialEq)]
struct FormPart<'a> {
    name: String,
    filename: Option<String>,
    content: &'a [u8],
}

/// The parts of a body of `multipart/form-data` (RFC 7578).
fn form<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Vec<FormPart<'a>>, ApiError> {
    let wrong = || ApiError::bad("the body must be multipart/form-data with a boundary");
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = kind.filter(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"));
    let boundary = kind
        .and_then(|kind| parameter(kind, "boundary"))
        .ok_or_else(wrong)?;
    let mark = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut rest = body;
    let start = find(rest, mark.as_bytes()).ok_or_else(wrong)?;
    rest = &rest[start + mark.len()..];
    let next = format!("\r\n{mark}");
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, next.as_bytes()).ok_or_else(wrong)?;
        let (part, after) = (&part[..end], &part[end + next.len()..]);
        let head = find(part, b"\r\n\r\n").ok_or_else(wrong)?;
        let text = String::from_utf8_lossy(&part[..head]).into_owned();
        let is_it = |line: &&str| {
            line.to_ascii_lowercase()
                .starts_with("content-disposition:")
        };
        let disposition = text.lines().find(is_it).unwrap_or_default();
        parts.push(FormPart {
            name: parameter(disposition, "name").unwrap_or_default(),
            filename: parameter(disposition, "filename"),
            content: &part[head + 4..],
        });
        rest = after;
    }
    match rest.starts_with(b"--") {
        true => Ok(parts),
        false => Err(wrong()),
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// A parameter of a header, quoted or not.
fn parameter(text: &str, name: &str) -> Option<String> {
    text.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        let is_it = key.trim().eq_ignore_ascii_case(name);
        is_it.then(|| value.trim().trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        headers
    }

    #[test]
    fn forms_are_read_as_clients_write_them() {
        let body = b"--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\n\
            content-disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\nContent-Type: text/plain\r\n\r\n{}\r\n--y\n\r\n--x--\r\n";
        for kind in [
            "multipart/form-data; boundary=x",
            "Multipart/Form-Data; charset=utf-8; boundary=\"x\"",
        ] {
            let parts = form(&headers(kind), body).unwrap();
            assert_eq!(parts.len(), 2);
            assert_eq!(
                (parts[0].name.as_str(), parts[0].content),
                ("purpose", &b"batch"[..])
            );
            assert_eq!(parts[1].filename.as_deref(), Some("in.jsonl"));
            assert_eq!(parts[1].content, b"{}\r\n--y\n");
        }
        // A body cut anywhere is refused.
        for n in 0..body.len() - 4 {
            assert!(
                form(&headers("multipart/form-data; boundary=x"), &body[..n]).is_err(),
                "{n}"
            );
        }
        for kind in [
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=z",
        ] {
            assert!(form(&headers(kind), body).is_err(), "{kind}");
        }
    }
}
