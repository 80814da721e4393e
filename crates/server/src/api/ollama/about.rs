//! What Ollama's API says of models.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::app::{App, Dialect, json as json_response};
use crate::models::{Entry, Served};
use crate::scheduler::LoadState;

/// The version of Ollama's API that these answers follow; clients read it to know what they may ask.
const API_VERSION: &str = "0.12.0";

/// The present, as RFC 3339 in UTC.
pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    rfc3339(since.as_secs(), since.subsec_micros())
}

/// Civil dates from days: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn rfc3339(unix_s: u64, micros: u32) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{micros:06}Z",
        second % 60
    )
}

fn details(entry: &Entry) -> Value {
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

/// A name for what the model was made of: not of its bytes, which would take long to read.
fn digest(entry: &Entry) -> String {
    let text = format!("{}\n{}", entry.spec.source, entry.spec.weight_bytes);
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn describe(entry: &Entry) -> Value {
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
            // What is loaded stays, as far as this API can say.
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

fn capabilities(served: &Served) -> Vec<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_civil() {
        // By GNU date.
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_795_338_091, "2026-11-22T09:01:31.000000Z"),
        ] {
            assert_eq!(rfc3339(unix_s, 0), text);
        }
    }
}
