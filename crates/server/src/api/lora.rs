//! LoRA adapters by the names of llama.cpp's server: `lora` of requests, and `/lora-adapters`.

pub(crate) mod load;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::{Fields, wrong};
use super::llama_cpp::entry;
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::models::{ModelEntry, ServedModel};

/// Description of a list of adapters, for messages.
const EXPECTED: &str = "a list of {\"id\": number, \"scale\": number}";

/// Maximum number of adapters in a list.
const MAX_LISTED: usize = 256;

/// The largest scale, of either sign.
const MAX_SCALE: f32 = 1000.0;

/// The model with the adapters that `lora` selects, if the request has the field: adapters that it does not list get
/// scale 0.
///
/// # Errors
/// A list of another form, an unknown id, a model that is already an adapter.
pub(crate) fn chosen(fields: &Fields<'_>, served: ServedModel) -> Result<ServedModel, ApiError> {
    let Some(list) = fields.list("lora")? else {
        return Ok(served);
    };
    if served.is_adapter() {
        let message = format!(
            "`{}` is an adapter already; name its base model",
            served.name
        );
        return Err(ApiError::field("lora", message));
    }
    let scales = scales(list, &fields.path("lora"), &served.entry)?;
    Ok(served.with_scales(&scales))
}

/// Scales of all adapters of a model, in the order of their ids.
fn scales(list: &[Value], path: &str, entry: &ModelEntry) -> Result<Vec<f32>, ApiError> {
    let n_adapters = entry.spec.adapters.len();
    let mut scales = vec![None; n_adapters];
    if list.len() > MAX_LISTED {
        let message = format!("at most {MAX_LISTED} adapters are accepted");
        return Err(ApiError::field(path, message));
    }
    for (i, value) in list.iter().enumerate() {
        let adapter = Fields::at(value, format!("{path}[{i}]"))?;
        let id = adapter.need("id", adapter.usize("id")?)?;
        let scale = adapter.need("scale", adapter.f32_in("scale", -MAX_SCALE, MAX_SCALE)?)?;
        let Some(own) = scales.get_mut(id) else {
            let message = format!(
                "{} has {n_adapters} adapters, numbered from 0",
                entry.spec.id
            );
            return Err(ApiError::field(&adapter.path("id"), message));
        };
        if own.replace(scale).is_some() {
            let message = format!("adapter {id} has two scales");
            return Err(ApiError::field(&adapter.path("id"), message));
        }
    }
    Ok(scales.into_iter().map(Option::unwrap_or_default).collect())
}

/// `GET /lora-adapters`: the adapters of the model that the query names, or of the first. Shows the scales for
/// requests that name none.
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    let listed = entry(&app, &request).map(|entry| {
        let scales = entry.adapter_scales();
        let adapters = entry.spec.adapters.iter().zip(scales).enumerate();
        let adapter = adapters.map(|(id, (adapter, scale))| {
            json!({
                "id": id, "name": adapter.name, "path": adapter.source, "scale": scale,
                "task_name": "", "prompt_prefix": "",
            })
        });
        json_response(StatusCode::OK, &adapter.collect())
    });
    Dialect::OpenAi.answer(listed)
}

/// `POST /lora-adapters`: sets the scales for later requests that name none.
pub(crate) async fn set(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let entry = entry(&app, &request)?;
        let Incoming { body, .. } = app.read(request).await?;
        let Value::Array(list) = &body else {
            return Err(wrong("the body", EXPECTED, &body));
        };
        entry.set_adapter_scales(scales(list, "", &entry)?);
        Ok(json_response(StatusCode::OK, &json!({"success": true})))
    };
    Dialect::OpenAi.answer(work.await)
}
