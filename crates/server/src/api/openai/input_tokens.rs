//! Number of tokens in a request's prompt: `/v1/chat/completions/input_tokens` and `/v1/responses/input_tokens`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::params::Caller;
use crate::api::prompt::Conversation;
use crate::app::{App, Dialect, Incoming, json as json_response};

pub(crate) async fn of_chat(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = count(app, request, |fields, _, _| {
        super::chat::conversation(fields)
    });
    Dialect::OpenAi.answer(work.await)
}

pub(crate) async fn of_response(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(count(app, request, super::responses::conversation_of).await)
}

async fn count(
    app: Arc<App>,
    request: Request,
    conversation: fn(&Fields<'_>, &App, &Caller) -> Result<Conversation, ApiError>,
) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let served = caller.within(app.served(&fields)).await?;
    let prompt = conversation(&fields, &app, &caller)?.prompt(&served);
    let prompted = caller.within(prompt).await?;
    let body = json!({"object": "response.input_tokens", "input_tokens": prompted.tokens.len()});
    Ok(json_response(StatusCode::OK, &body))
}
