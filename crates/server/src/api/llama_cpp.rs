//! The API of llama.cpp's server: `/completion`, `/infill`, `/embedding`, `/props` and `/slots`.

mod completion;
mod embedding;

pub(crate) use completion::{completion, fill};
pub(crate) use embedding::embedding;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::app::{App, Dialect, json as json_response};
use crate::models::ModelEntry;
use crate::scheduler::LoadState;

/// The model that the query names, or the first.
pub(super) fn entry(app: &App, request: &Request) -> Result<Arc<ModelEntry>, ApiError> {
    let query = request.uri().query().unwrap_or_default();
    let named = query
        .split('&')
        .find_map(|part| part.strip_prefix("model="));
    let entry = match named {
        Some(name) => app.registry.find(name),
        None => app.registry.entries().first(),
    };
    let unknown = || ApiError::unknown_model(named.unwrap_or_default(), &app.registry.ids());
    entry.cloned().ok_or_else(unknown)
}

/// `GET /props`.
pub(crate) async fn props(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = || {
        let entry = entry(&app, &request)?;
        let loaded = match entry.state() {
            Some(LoadState::Ready(loaded)) => loaded,
            _ => return Err(crate::scheduler::SubmitError::Loading.into()),
        };
        let tokenizer = &loaded.tokenizer;
        let template = loaded.template.as_ref().ok();
        let source = |name| template.and_then(|template| template.source(name));
        let mut body = json!({
            "default_generation_settings": {"n_ctx": loaded.limits.n_ctx, "params": super::params::default_sampling(&loaded)},
            "total_slots": loaded.limits.max_sequences, "model_alias": entry.spec.id,
            "model_path": entry.spec.source,
            "modalities": {"vision": loaded.vision().is_ok(), "audio": false},
            "chat_template": source("default").unwrap_or_default(),
            "bos_token": tokenizer.bos_text(), "eos_token": tokenizer.eos_text(),
            "build_info": concat!("millrace-", env!("CARGO_PKG_VERSION")), "is_sleeping": false,
        });
        if let Some(source) = source("tool_use") {
            body["chat_template_tool_use"] = source.into();
        }
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::OpenAi.answer(work())
}

/// `GET /slots`: as many slots as answers can be computed together. Which answer has which slot is not shown, since
/// other clients may ask.
pub(crate) async fn slots(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = || {
        let entry = entry(&app, &request)?;
        let (Some(scheduler), Some(LoadState::Ready(loaded))) = (entry.scheduler(), entry.state())
        else {
            return Err(crate::scheduler::SubmitError::Loading.into());
        };
        let n_running = scheduler.metrics().snapshot().n_running as usize;
        let slot = |id: usize| json!({"id": id, "n_ctx": loaded.limits.n_ctx, "is_processing": id < n_running, "speculative": false});
        let slots: Vec<Value> = (0..loaded.limits.max_sequences).map(slot).collect();
        Ok(json_response(StatusCode::OK, &slots.into()))
    };
    Dialect::OpenAi.answer(work())
}
