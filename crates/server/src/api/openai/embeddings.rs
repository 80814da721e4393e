//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::Pooling;
use serde_json::{Value, json};

use super::completions::{TextUse, texts_or_tokens};
use super::total;
use crate::api::base64;
use crate::api::embeddings::{MAX_INPUTS, embed, pooling, prefix};
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::placement::placement;
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::scheduler::Receipt;

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let served = app.served(&fields).await?;
    let pooling = pooling(&fields, &served)?;
    let is_base64 = match fields.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("expected float or base64, found \"{other}\"");
            return Err(ApiError::field("encoding_format", message));
        }
    };
    let before = TextUse::Whole(prefix(&fields, &served)?);
    let inputs = texts_or_tokens(&fields, &served, "input", MAX_INPUTS, before).await?;
    let embedded = embed(&served, &caller, inputs, pooling).await?;
    let (vectors, receipts): (Vec<Vec<f32>>, Vec<Receipt>) = embedded.into_iter().unzip();
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let vector = match is_base64 {
            true => json!(encoded(vector)),
            false => json!(vector),
        };
        json!({"object": "embedding", "index": index, "embedding": vector})
    });
    let data: Vec<Value> = data.collect();
    let mut body = json!({
        "object": "list", "model": served.name, "data": data,
        "pooling": match pooling.pooling {
            Pooling::Mean => "mean",
            Pooling::First => "first",
            Pooling::Last => "last",
        },
    });
    if let Some(total) = total(&receipts) {
        let n = total.n_prompt;
        body["usage"] = json!({"prompt_tokens": n, "total_tokens": n});
        if fields.bool("placement")?.unwrap_or(false) {
            body["usage"]["placement"] = placement(&total);
        }
    }
    Ok(json_response(StatusCode::OK, &body))
}

/// The encoding of OpenAI's API: base64 of little-endian f32.
fn encoded(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    base64::encode(&bytes)
}
