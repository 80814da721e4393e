//! `/tokenize`, `/detokenize`, `/apply-template`, by the names of llama.cpp's server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_text::EncodeOptions;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;
use super::openai::chat::conversation;
use super::params::token_ids;
use crate::app::{App, Dialect, Incoming, json as json_response, with_left_out};
use crate::models::ServedModel;

/// The model named, or the only one.
pub(super) async fn served(app: &App, fields: &Fields<'_>) -> Result<ServedModel, ApiError> {
    match (fields.text("model")?, app.registry.entries()) {
        (Some(name), _) => app.served_by_name(name).await,
        (None, [only]) => Ok(app.registry.serve(only).await?),
        (None, _) => Err(ApiError::field(
            "model",
            "this server has several: name one",
        )),
    }
}

/// `content` (or `prompt`) to `tokens`. `add_special` adds the tokens that the model expects around a text;
/// `parse_special` reads spelled-out control tokens as control tokens.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        let served = served(&app, &fields).await?;
        let text = fields.text("content")?.or(fields.text("prompt")?);
        let text = fields.need("content", text)?.to_owned();
        let options = EncodeOptions {
            add_special: fields.bool("add_special")?.unwrap_or(false),
            parse_special: fields.bool("parse_special")?.unwrap_or(false),
        };
        let with_pieces = fields.bool("with_pieces")?.unwrap_or(false);
        let tokenizer = Arc::clone(&served.loaded.tokenizer);
        let encode = move || {
            let ids = tokenizer.encode(&text, options);
            let piece = |id: &u32| {
                let bytes = tokenizer.token_bytes(*id);
                json!({"id": id, "piece": String::from_utf8_lossy(&bytes)})
            };
            let tokens: Vec<Value> = match with_pieces {
                true => ids.iter().map(piece).collect(),
                false => ids.iter().map(|id| (*id).into()).collect(),
            };
            json!({"tokens": tokens, "count": ids.len()})
        };
        let body = tokio::task::spawn_blocking(encode).await;
        let body = body
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::OpenAi.answer(work.await)
}

/// `tokens` to `content`.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        let served = served(&app, &fields).await?;
        let given = fields.need("tokens", fields.get("tokens"))?;
        let ids = token_ids(given, "tokens", "a list of token ids", &served.loaded)?;
        let text = served.loaded.tokenizer.decode(&ids, false);
        Ok(json_response(
            StatusCode::OK,
            &json!({"content": text, "prompt": text}),
        ))
    };
    Dialect::OpenAi.answer(work.await)
}

/// `messages` (and `tools`) to the `prompt` that the model reads.
pub(crate) async fn apply_template(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let Incoming { body, caller } = app.read(request).await?;
        let fields = Fields::of(&body)?;
        let served = caller.within(served(&app, &fields)).await?;
        let prompted = caller
            .within(conversation(&fields)?.prompt(&served))
            .await?;
        let body = json!({"prompt": prompted.text, "tokens": prompted.shown_tokens(&served)});
        let response = json_response(StatusCode::OK, &body);
        Ok(with_left_out(response, &prompted.shape.left_out))
    };
    Dialect::OpenAi.answer(work.await)
}
