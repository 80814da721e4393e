//! Routes for operators: liveness, readiness, activity, and information about the machine.

pub(crate) mod metrics;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::openai::models::status;
use crate::app::{App, json as json_response};

/// Liveness: the process answers.
pub(crate) async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

/// Readiness. 200 if requests would be accepted: every requested model is loaded. 503 with the reason while one
/// loads, has failed, or the server shuts down.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    let is_leaving = app.is_leaving.load(Relaxed);
    let mut is_ready = !is_leaving;
    let mut models = serde_json::Map::new();
    for entry in app.registry.entries() {
        let (word, reason) = status(entry);
        is_ready &= matches!(word, "ready" | "unloaded");
        let mut model = json!({"status": word});
        if let Some(reason) = reason {
            model["error"] = reason.into();
        }
        models.insert(entry.spec.id.clone(), model);
    }
    let code = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = json!({"ready": is_ready, "draining": is_leaving, "models": models});
    json_response(code, &body)
}

/// The machine, the models and their counters.
pub(crate) async fn system(State(app): State<Arc<App>>) -> Response {
    let describe = |entry: &Arc<crate::models::ModelEntry>| {
        let (word, _) = status(entry);
        let mut model = json!({
            "id": entry.spec.id, "source": entry.spec.source, "weight_bytes": entry.spec.weight_bytes,
            "status": word, "counters": entry.metrics.snapshot(),
        });
        if let Some(crate::scheduler::LoadState::Ready(loaded)) = entry.state() {
            model["device"] = loaded.device.as_str().into();
            model["n_ctx"] = loaded.limits.n_ctx.into();
            model["max_sequences"] = loaded.limits.max_sequences.into();
            model["capacity_tokens"] = loaded.capacity_tokens.into();
        }
        model
    };
    let models: Vec<Value> = app.registry.entries().iter().map(describe).collect();
    let work = {
        let app = Arc::clone(&app);
        tokio::task::spawn_blocking(move || (app.system)())
    };
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"), "uptime_s": app.start.elapsed().as_secs(),
        "machine": work.await.unwrap_or_default(), "models": models,
    });
    json_response(StatusCode::OK, &body)
}

/// The description of this API.
pub(crate) async fn openapi() -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, include_str!("openapi.json")).into_response()
}
