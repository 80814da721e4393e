//! Which path is whose.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};

use super::guard::{guard, refuse_while_draining};
use crate::api::error::ApiError;
use crate::api::{anthropic, ollama, openai, tokens};
use crate::app::{App, Dialect};
use crate::{ops, page};

/// Every path with its methods, as `docs/server.md` and `openapi.json` have them.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let work = Router::new()
        .route("/v1/chat/completions", post(openai::chat::handle))
        .route("/v1/completions", post(openai::completions::handle))
        .route("/v1/embeddings", post(openai::embeddings::handle))
        .route("/v1/responses", post(openai::responses::handle))
        .route("/v1/messages", post(anthropic::handle))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed::list))
        .route("/api/embeddings", post(ollama::embed::one))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/apply-template", post(tokens::apply_template))
        .route("/v1/models/load", post(openai::models::load))
        .route("/v1/models/unload", post(openai::models::unload))
        .layer(from_fn_with_state(Arc::clone(app), while_serving));
    Router::new()
        .route("/", get(page::page))
        .route("/health", get(ops::health))
        .route("/ready", get(ops::ready))
        .route("/metrics", get(ops::metrics::handle))
        .route("/v1/system", get(ops::system))
        .route("/openapi.json", get(ops::openapi))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*name}", get(openai::models::one))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::running))
        .route("/api/show", post(ollama::show))
        .route("/api/version", get(ollama::version))
        .merge(work)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(app), guard))
        .with_state(Arc::clone(app))
}

async fn while_serving(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match refuse_while_draining(&app) {
        Ok(()) => next.run(request).await,
        Err(error) => Dialect::of_path(request.uri().path()).response(&error),
    }
}

async fn unknown(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("there is nothing at {path}; /openapi.json lists what there is");
    Dialect::of_path(path).response(&ApiError::new(StatusCode::NOT_FOUND, message))
}

async fn wrong_method(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("{path} does not take {}", request.method());
    Dialect::of_path(path).response(&ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message))
}
