//! Stored responses: the next request can name one and need not send its conversation again.
//!
//! They are kept in memory, for one run, and are visible only to clients with the same key. The least recently used
//! is dropped first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::unique;
use crate::app::{App, Dialect, json as json_response};

/// Maximum number of responses kept, however small they are.
const MAX_RESPONSES: usize = 16_384;

/// Items of a page: the default, and the maximum.
const PAGE: (usize, usize) = (20, 100);

/// Responses of all clients.
pub(crate) struct ResponseStore {
    /// Maximum size of their JSON.
    most_bytes: usize,
    state: Mutex<StoreState>,
}

#[derive(Default)]
struct StoreState {
    by_id: HashMap<String, (Arc<StoredResponse>, u64)>,
    /// Their ids by time of last use.
    by_age: BTreeMap<u64, String>,
    n_bytes: usize,
    /// The next age to assign.
    next: u64,
}

/// A response with its input.
#[derive(Debug, PartialEq)]
pub(crate) struct StoredResponse {
    owner: String,
    response: Value,
    /// The whole input of the model, including that of earlier responses.
    input: Vec<Value>,
    n_bytes: usize,
}

impl StoredResponse {
    /// The conversation up to this response, as input items.
    pub(super) fn items(&self) -> impl Iterator<Item = &Value> {
        let output = self.response["output"].as_array().into_iter().flatten();
        self.input.iter().chain(output)
    }
}

impl ResponseStore {
    /// A store for at most this many bytes of JSON.
    pub(crate) fn new(most_bytes: usize) -> ResponseStore {
        ResponseStore {
            most_bytes,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a response of this owner. False if the response alone exceeds the limit.
    pub(super) fn put(&self, owner: &str, response: &Value, input: &[Value]) -> bool {
        let id = response["id"].as_str().unwrap_or_default().to_owned();
        let n_input: usize = input.iter().map(|item| item.to_string().len()).sum();
        let n_bytes = n_input + response.to_string().len();
        if n_bytes > self.most_bytes {
            return false;
        }
        let stored = StoredResponse {
            owner: owner.to_owned(),
            response: response.clone(),
            input: input.to_vec(),
            n_bytes,
        };
        let mut state = self.state();
        state.remove(&id);
        while state.by_id.len() >= MAX_RESPONSES || state.n_bytes + n_bytes > self.most_bytes {
            let Some(oldest) = state.by_age.values().next().cloned() else {
                break;
            };
            state.remove(&oldest);
        }
        state.n_bytes += n_bytes;
        let age = state.next;
        state.next += 1;
        state.by_age.insert(age, id.clone());
        state.by_id.insert(id, (Arc::new(stored), age));
        true
    }

    /// A response, if this owner may see it.
    pub(super) fn get(&self, id: &str, owner: &str) -> Option<Arc<StoredResponse>> {
        let mut state = self.state();
        let state = &mut *state;
        let (stored, age) = state
            .by_id
            .get_mut(id)
            .filter(|(stored, _)| stored.owner == owner)?;
        state.by_age.remove(age);
        *age = state.next;
        state.next += 1;
        state.by_age.insert(*age, id.to_owned());
        Some(Arc::clone(stored))
    }

    /// Forgets a response, if this owner may see it.
    fn forget(&self, id: &str, owner: &str) -> bool {
        let mut state = self.state();
        let is_own = state
            .by_id
            .get(id)
            .is_some_and(|(stored, _)| stored.owner == owner);
        if is_own {
            state.remove(id);
        }
        is_own
    }
}

impl StoreState {
    fn remove(&mut self, id: &str) {
        if let Some((stored, age)) = self.by_id.remove(id) {
            self.by_age.remove(&age);
            self.n_bytes -= stored.n_bytes;
        }
    }
}

/// Items of a request's input, each with a unique id.
pub(super) fn named_items(input: &Value) -> Vec<Value> {
    let items = match input {
        Value::String(text) => vec![json!({
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
        })],
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    };
    let named = |mut item: Value| {
        if let Some(object) = item.as_object_mut() {
            let kind = object.entry("type").or_insert_with(|| "message".into());
            let prefix = if *kind == "message" { "msg_" } else { "item_" };
            object.entry("id").or_insert_with(|| unique(prefix).into());
        }
        item
    };
    items.into_iter().map(named).collect()
}

/// The response that a request continues from.
///
/// # Errors
/// There is no store, or no such response of this owner.
pub(super) fn previous(app: &App, id: &str, owner: &str) -> Result<Arc<StoredResponse>, ApiError> {
    const NAME: &str = "previous_response_id";
    let Some(store) = &app.responses else {
        let message = "this server keeps no responses; send the whole conversation as input (what was computed of it \
                       is kept), or start the server with --store-responses MIB";
        return Err(ApiError::field(NAME, message));
    };
    store.get(id, owner).ok_or_else(|| {
        let message = format!(
            "there is no response `{id}`, or no more; send the whole conversation as input"
        );
        ApiError::field(NAME, message).code("previous_response_not_found")
    })
}

fn found(app: &App, request: &Request, id: &str) -> Result<Arc<StoredResponse>, ApiError> {
    store(app)?
        .get(id, &app.owner(&app.client(request)))
        .ok_or_else(|| unknown(id))
}

fn store(app: &App) -> Result<&ResponseStore, ApiError> {
    let message = "this server keeps no responses; start it with --store-responses MIB";
    let store = app.responses.as_deref();
    store.ok_or_else(|| ApiError::new(StatusCode::NOT_IMPLEMENTED, message))
}

fn unknown(id: &str) -> ApiError {
    let message = format!("there is no response `{id}`, or no more");
    ApiError::new(StatusCode::NOT_FOUND, message)
}

/// A parameter of a request's query.
fn parameter<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    let parts = request.uri().query().unwrap_or_default().split('&');
    let mut named = parts.filter_map(|part| part.split_once('='));
    named.find_map(|(known, value)| (known == name).then_some(value))
}

/// `GET /v1/responses/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let work = || {
        let stored = found(&app, &request, &id)?;
        if parameter(&request, "stream").is_some_and(|value| value != "false") {
            let message = "a stored response is not streamed; leave it out";
            return Err(ApiError::field("stream", message));
        }
        Ok(json_response(StatusCode::OK, &stored.response))
    };
    Dialect::OpenAi.answer(work())
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let work = || {
        let owner = app.owner(&app.client(&request));
        match store(&app)?.forget(&id, &owner) {
            true => {
                let body = json!({"id": id, "object": "response", "deleted": true});
                Ok(json_response(StatusCode::OK, &body))
            }
            false => Err(unknown(&id)),
        }
    };
    Dialect::OpenAi.answer(work())
}

/// `GET /v1/responses/{id}/input_items`: the newest first, or with `order=asc` the oldest. Lists `limit` items after
/// the item `after`.
pub(crate) async fn input_items(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let work = || {
        let stored = found(&app, &request, &id)?;
        let mut items: Vec<&Value> = stored.input.iter().collect();
        match parameter(&request, "order") {
            None | Some("desc") => items.reverse(),
            Some("asc") => {}
            Some(other) => {
                let message = format!("expected asc or desc, found \"{other}\"");
                return Err(ApiError::field("order", message));
            }
        }
        let (usual, most) = PAGE;
        let limit = match parameter(&request, "limit") {
            None => usual,
            Some(text) => {
                let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
                let message = format!("expected a whole number from 1 to {most}, found \"{text}\"");
                limit.ok_or_else(|| ApiError::field("limit", message))?
            }
        };
        if let Some(after) = parameter(&request, "after") {
            let place = items.iter().position(|item| item["id"] == after);
            let message = format!("there is no item `{after}`");
            items.drain(..=place.ok_or_else(|| ApiError::field("after", message))?);
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let end = |item: Option<&&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        let body = json!({
            "object": "list", "data": items, "first_id": end(items.first()), "last_id": end(items.last()),
            "has_more": has_more,
        });
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::OpenAi.answer(work())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(id: &str, text: &str) -> Value {
        json!({"id": id, "output": [{"type": "message", "content": text}]})
    }

    #[test]
    fn the_one_used_longest_ago_gives_way() {
        let one = response("a", "x");
        let n_bytes = one.to_string().len();
        let store = ResponseStore::new(2 * n_bytes + 1);
        let has = |id: &str| store.get(id, "me").is_some();
        assert!(store.put("me", &one, &[]) && store.put("me", &response("b", "x"), &[]));
        // Reading it renews its age.
        assert!(has("a"));
        assert!(store.put("me", &response("c", "x"), &[]));
        assert_eq!((has("a"), has("b"), has("c")), (true, false, true));
        // Storing the same response again takes no more room.
        assert!(store.put("me", &response("a", "y"), &[]) && has("c"));
        // A response that is too large evicts nothing.
        assert!(!store.put(
            "me",
            &response("d", &"x".repeat(n_bytes + 9)),
            &[json!("y".repeat(n_bytes))]
        ));
        assert!(has("a") && has("c") && !has("d"));
        assert_eq!(store.state().n_bytes, 2 * n_bytes);
        assert!(store.forget("a", "me") && !has("a"));
        let state = store.state();
        assert_eq!(state.n_bytes, n_bytes);
        assert_eq!(state.by_age.len(), state.by_id.len());
    }

    #[test]
    fn the_same_again_is_counted_once() {
        let one = response("a", "x");
        let store = ResponseStore::new(1 << 20);
        assert!(store.put("me", &one, &[]) && store.put("me", &one, &[]));
        let state = store.state();
        assert_eq!(state.n_bytes, one.to_string().len());
        assert_eq!((state.by_age.len(), state.by_id.len()), (1, 1));
    }

    #[test]
    fn others_see_nothing() {
        let store = ResponseStore::new(1 << 20);
        store.put("me", &response("a", "x"), &[json!({"id": "i"})]);
        assert!(store.get("a", "you").is_none() && !store.forget("a", "you"));
        let stored = store.get("a", "me").unwrap();
        assert_eq!(stored.items().count(), 2);
    }

    #[test]
    fn items_have_names() {
        let items = named_items(
            &json!([{"role": "user", "content": "x"}, {"type": "reasoning", "id": "r"}]),
        );
        assert!(items[0]["id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!(
            (&items[0]["type"], &items[1]["id"]),
            (&json!("message"), &json!("r"))
        );
        assert_eq!(named_items(&json!("hi"))[0]["content"][0]["text"], "hi");
    }
}
