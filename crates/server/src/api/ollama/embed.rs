//! `POST /api/embed`, and its predecessor `/api/embeddings`, which takes one text.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::api::embeddings::{MAX_INPUTS, embed, pooling, prefix};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::prompt;
use crate::app::{App, Dialect, Incoming, json as json_response};

/// A text or a list of texts. A text longer than the context is cut at its end, unless `truncate` is false.
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::Ollama.answer(answer(app, request, "input").await)
}

/// One text.
pub(crate) async fn one(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::Ollama.answer(answer(app, request, "prompt").await)
}

async fn answer(app: Arc<App>, request: Request, name: &str) -> Result<Response, ApiError> {
    let start = Instant::now();
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let model = fields.need("model", fields.text("model")?)?;
    let served = app.served(&fields).await?;
    let load = start.elapsed();
    let pooling = pooling(&fields, &served)?;
    let before = prefix(&fields, &served)?;
    let texts = texts(&fields, name)?;
    let loaded = &served.loaded;
    let most = loaded
        .limits
        .n_ctx
        .min(loaded.capacity_tokens)
        .saturating_sub(1);
    let cuts = fields.bool("truncate")?.unwrap_or(true);
    let mut inputs = Vec::with_capacity(texts.len());
    for text in texts {
        let mut tokens = prompt::encode_whole(loaded, format!("{before}{text}")).await?;
        if cuts {
            tokens.truncate(most);
        }
        inputs.push(tokens);
    }
    let embedded = embed(&served, &caller, inputs, pooling).await?;
    let n_tokens: usize = embedded.iter().map(|(_, receipt)| receipt.n_prompt).sum();
    let vectors: Vec<Vec<f32>> = embedded.into_iter().map(|(vector, _)| vector).collect();
    let body = match name {
        "prompt" => json!({"embedding": vectors.first()}),
        _ => json!({
            "model": model, "embeddings": vectors, "prompt_eval_count": n_tokens,
            "total_duration": ns(start.elapsed()), "load_duration": ns(load),
        }),
    };
    Ok(json_response(StatusCode::OK, &body))
}

fn ns(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn texts<'a>(fields: &Fields<'a>, name: &str) -> Result<Vec<&'a str>, ApiError> {
    let value = fields.need(name, fields.get(name))?;
    let texts: Option<Vec<&str>> = match value {
        Value::String(text) => Some(vec![text.as_str()]),
        Value::Array(list) if name == "input" => list.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let expected = match name {
        "input" => "a string or a list of strings",
        _ => "a string",
    };
    let texts = texts.ok_or_else(|| wrong(name, expected, value))?;
    match texts.len() <= MAX_INPUTS {
        true => Ok(texts),
        false => Err(ApiError::field(
            name,
            format!("at most {MAX_INPUTS} texts are accepted"),
        )),
    }
}
