//! `GET /v1/models`, and loading and unloading.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::time::rfc3339;
use crate::app::{App, Dialect, json as json_response};
use crate::models::{AdapterPlace, AdapterSpec, ModelEntry};
use crate::scheduler::LoadState;

/// The loading state of a model, as a word.
pub(crate) fn status(entry: &ModelEntry) -> (&'static str, Option<String>) {
    match entry.state() {
        Some(LoadState::Ready(_)) => ("ready", None),
        Some(LoadState::Loading) => ("loading", None),
        Some(LoadState::Failed(reason)) => ("failed", Some(reason)),
        Some(LoadState::Stopped) | None => ("unloaded", None),
    }
}

fn describe(entry: &ModelEntry) -> Value {
    let (status, reason) = status(entry);
    let mut value = json!({
        "id": entry.spec.id, "object": "model", "created": entry.created_unix_s, "owned_by": "millrace",
        "status": status,
        // The fields of Anthropic's API.
        "type": "model", "display_name": entry.spec.id, "created_at": rfc3339(entry.created_unix_s, 0),
    });
    if let Some(reason) = reason {
        value["error"] = reason.into();
    }
    if let Some(LoadState::Ready(loaded)) = entry.state() {
        value["max_model_len"] = loaded.limits.n_ctx.into();
        value["device"] = loaded.device.as_str().into();
    }
    value
}

/// One of a model's adapters, as in vLLM: a model with a parent.
fn describe_adapter(entry: &ModelEntry, adapter: &AdapterSpec) -> Value {
    let mut value = describe(entry);
    value["id"] = adapter.name.as_str().into();
    value["display_name"] = adapter.name.as_str().into();
    value["root"] = adapter.source.as_str().into();
    value["parent"] = entry.spec.id.as_str().into();
    value
}

pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let entries = app.registry.entries().iter();
    let described = entries.flat_map(|entry| {
        let adapters = entry.adapters().into_iter();
        let adapters = adapters.map(|adapter| describe_adapter(entry, &adapter));
        std::iter::once(describe(entry)).chain(adapters)
    });
    let data: Vec<Value> = described.collect();
    let id = |model: Option<&Value>| model.map_or(Value::Null, |model| model["id"].clone());
    // The list is complete, which Anthropic's clients read from the paging fields.
    let body = json!({
        "object": "list", "has_more": false, "first_id": id(data.first()), "last_id": id(data.last()),
        "data": data,
    });
    json_response(StatusCode::OK, &body)
}

pub(crate) async fn one(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    let name = match name {
        Ok(Path(name)) => name,
        Err(rejection) => {
            return Dialect::OpenAi.response(&ApiError::bad(rejection.body_text()));
        }
    };
    let found = app.registry.locate(&name);
    let found = found.ok_or_else(|| ApiError::unknown_model(&name, &app.registry.ids()));
    let described = found.map(|(entry, adapter)| {
        let adapter = match adapter {
            Some(AdapterPlace::First(index)) => entry.spec.adapters.get(index).cloned(),
            Some(AdapterPlace::Added(added)) => Some(added.spec),
            None => None,
        };
        let described = match adapter {
            Some(adapter) => describe_adapter(entry, &adapter),
            None => describe(entry),
        };
        json_response(StatusCode::OK, &described)
    });
    Dialect::OpenAi.answer(described)
}

/// `POST /v1/models/load`: starts loading, and waits until the model is loaded.
pub(crate) async fn load(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        if let Some(entry) = fields
            .text("model")?
            .and_then(|name| app.registry.find(name))
            && matches!(entry.state(), Some(LoadState::Failed(_)))
        {
            // This call requests another attempt.
            app.registry.unload(entry);
        }
        let served = app.served(&fields).await?;
        Ok(json_response(StatusCode::OK, &describe(&served.entry)))
    };
    Dialect::OpenAi.answer(work.await)
}

/// `POST /v1/models/unload`: accepted requests are completed first.
pub(crate) async fn unload(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        let name = fields.need("model", fields.text("model")?)?;
        let entry = app.registry.find(name);
        let entry = entry.ok_or_else(|| ApiError::unknown_model(name, &app.registry.ids()))?;
        let was_loaded = app.registry.unload(entry);
        let body = json!({"id": entry.spec.id, "unloaded": was_loaded});
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::OpenAi.answer(work.await)
}
