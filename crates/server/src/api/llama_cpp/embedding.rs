//! `POST /embedding` and `/embeddings`: texts to vectors, as a plain list.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::api::embeddings::{MAX_INPUTS, VectorForm, embed, pooling, prefix};
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::openai::completions::{TextUse, texts_or_tokens};
use crate::api::tokens::served;
use crate::app::{App, Dialect, Incoming, json as json_response};

pub(crate) async fn embedding(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let served = caller.within(served(&app, &fields)).await?;
    let of_length_1 = pooling(&fields, &served)?;
    let how = match fields.i64("embd_normalize")? {
        None | Some(2) => of_length_1,
        Some(-1) => VectorForm::rows(of_length_1.pooling),
        Some(other) => {
            let message = format!("expected 2 (length 1) or -1 (as pooled), found {other}");
            return Err(ApiError::field("embd_normalize", message));
        }
    };
    let name = match fields.get("input") {
        Some(_) => "input",
        None => "content",
    };
    let before = TextUse::Whole(prefix(&fields, &served)?);
    let inputs = texts_or_tokens(&fields, &served, name, MAX_INPUTS, before).await?;
    let embedded = embed(&served, &caller, inputs, how).await?;
    let rows = embedded.iter().enumerate();
    let rows = rows.map(|(index, (vector, _))| json!({"index": index, "embedding": [vector]}));
    let body = Value::Array(rows.collect());
    Ok(json_response(StatusCode::OK, &body))
}
