//! `GET /v1/models`, and loading and unloading.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::app::{App, Dialect, json as json_response};
use crate::models::Entry;
use crate::scheduler::LoadState;

/// How far a model is, in a word.
pub(crate) fn status(entry: &Entry) -> (&'static str, Option<String>) {
    match entry.state() {
        Some(LoadState::Ready(_)) => ("ready", None),
        Some(LoadState::Loading) => ("loading", None),
        Some(LoadState::Failed(reason)) => ("failed", Some(reason)),
        Some(LoadState::Stopped) | None => ("unloaded", None),
    }
}

fn describe(entry: &Entry) -> Value {
    let (status, reason) = status(entry);
    let mut value = json!({
        "id": entry.spec.id, "object": "model", "created": entry.created_unix_s, "owned_by": "millrace",
        "status": status,
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

pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let entries = app.registry.entries().iter();
    let data: Vec<Value> = entries.map(|entry| describe(entry)).collect();
    json_response(StatusCode::OK, &json!({"object": "list", "data": data}))
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
    let entry = app.registry.find(&name);
    let entry = entry.ok_or_else(|| ApiError::unknown_model(&name, &app.registry.ids()));
    Dialect::OpenAi.answer(entry.map(|entry| json_response(StatusCode::OK, &describe(entry))))
}

/// `POST /v1/models/load`: begins, and waits until the model is there.
pub(crate) async fn load(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        if let Some(entry) = fields
            .text("model")?
            .and_then(|name| app.registry.find(name))
            && matches!(entry.state(), Some(LoadState::Failed(_)))
        {
            // Whoever asks for it by this call wants another attempt.
            app.registry.unload(entry);
        }
        let served = app.served(&fields).await?;
        Ok(json_response(StatusCode::OK, &describe(&served.entry)))
    };
    Dialect::OpenAi.answer(work.await)
}

/// `POST /v1/models/unload`: what was accepted is completed first.
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
