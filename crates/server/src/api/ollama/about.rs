//! Information about models in Ollama's API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::time::rfc3339;
use crate::app::{App, Dialect, json as json_response};
use crate::models::{ModelEntry, ServedModel};
use crate::scheduler::LoadState;

/// The version of Ollama's API that these answers follow. Clients read it to know which features they may use.
const API_VERSION: &str = "0.12.0";

fn details(entry: &ModelEntry) -> Value {
    let mut details = json!({
        "parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "",
        "quantization_level": "",
    });
    if let Some(LoadState::Ready(loaded)) = entry.state() {
        let config = &loaded.model.model().config;
        let format = match loaded.model.checkpoint().gguf() {
            Some(_) => "gguf",
            None => "safetensors",
        };
        details["format"] = format.into();
        details["family"] = config.family.into();
        details["families"] = json!([config.family]);
    }
    details
}

/// A digest that identifies the model's source. It is not of the file's bytes, which would take long to read.
fn digest(entry: &ModelEntry) -> String {
    let text = format!("{}\n{}", entry.spec.source, entry.spec.weight_bytes);
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn describe(entry: &ModelEntry) -> Value {
    json!({
        "name": entry.spec.id, "model": entry.spec.id,
        "modified_at": rfc3339(entry.created_unix_s, 0), "size": entry.spec.weight_bytes,
        "digest": digest(entry), "details": details(entry),
    })
}

pub(crate) async fn tags(State(app): State<Arc<App>>) -> Response {
    let entries = app.registry.entries().iter();
    let models: Vec<Value> = entries.map(|entry| describe(entry)).collect();
    json_response(StatusCode::OK, &json!({"models": models}))
}

pub(crate) async fn running(State(app): State<Arc<App>>) -> Response {
    let entries = app.registry.entries().iter();
    let loaded = entries.filter_map(|entry| match entry.state() {
        Some(LoadState::Ready(loaded)) => {
            let mut model = describe(entry);
            // A loaded model stays loaded, as far as this API can express it.
            model["expires_at"] = "9999-12-31T23:59:59Z".into();
            model["size_vram"] = 0.into();
            model["context_length"] = loaded.limits.n_ctx.into();
            Some(model)
        }
        _ => None,
    });
    let models: Vec<Value> = loaded.collect();
    json_response(StatusCode::OK, &json!({"models": models}))
}

pub(crate) async fn show(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        let name = fields.text("model")?.or(fields.text("name")?);
        let name = fields.need("model", name)?;
        let entry = app.registry.find(name);
        let entry = entry.ok_or_else(|| ApiError::unknown_model(name, &app.registry.ids()))?;
        let served = app.registry.serve(entry).await?;
        let config = &served.loaded.model.model().config;
        let family = config.family;
        let mut info = json!({"general.architecture": family});
        info[format!("{family}.context_length")] = config.context_length.into();
        info[format!("{family}.embedding_length")] = config.d_model.into();
        info[format!("{family}.vocab_size")] = config.vocab_size.into();
        let body = json!({
            "modelfile": "", "parameters": "", "template": "", "license": "",
            "details": details(entry), "model_info": info, "capabilities": capabilities(&served),
            "modified_at": rfc3339(entry.created_unix_s, 0),
        });
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::Ollama.answer(work.await)
}

fn capabilities(served: &ServedModel) -> Vec<&'static str> {
    let mut list = vec!["completion", "tools"];
    if served.loaded.embedder.is_ok() {
        list.push("embedding");
    }
    if served.loaded.vision().is_ok() {
        list.push("vision");
    }
    list
}

pub(crate) async fn version() -> Response {
    json_response(StatusCode::OK, &json!({"version": API_VERSION}))
}
