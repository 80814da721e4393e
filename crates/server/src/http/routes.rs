//! Maps paths to handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use tower_service::Service;

use super::guard::{guard, refuse_while_draining};
use crate::api::error::ApiError;
use crate::api::openai::{batches, input_tokens as count, stored};
use crate::api::{anthropic, llama_cpp, lora, ollama, openai, rank, tokens};
use crate::app::{App, Dialect};
use crate::{ops, page};

/// All routes of the server, with tolerance for slashes. A client's base address with a slash at its end leads to
/// double slashes, or to one at the end.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let routes = routes(app);
    Router::new().fallback(move |mut request: Request| {
        let mut routes = routes.clone();
        if let Some(plain) = plain_path(request.uri()) {
            *request.uri_mut() = plain;
        }
        async move {
            match Service::call(&mut routes, request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    })
}

/// The address with repeated slashes merged, and without a slash at its end. `None` if nothing changes.
fn plain_path(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let is_plain = !path.contains("//") && (path.len() <= 1 || !path.ends_with('/'));
    if is_plain {
        return None;
    }
    let names = path.split('/').filter(|name| !name.is_empty());
    let mut plain: String = names.flat_map(|name| ["/", name]).collect();
    if plain.is_empty() {
        plain.push('/');
    }
    if let Some(query) = uri.query() {
        plain = format!("{plain}?{query}");
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(plain.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The routes of models, for callers within this process.
pub(crate) fn work(app: &Arc<App>) -> Router {
    working(app).with_state(Arc::clone(app))
}

fn working(app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route("/v1/chat/completions", post(openai::chat::handle))
        .route("/v1/completions", post(openai::completions::handle))
        .route("/v1/embeddings", post(openai::embeddings::handle))
        .route("/v1/rerank", post(rank::rerank))
        .route("/rerank", post(rank::rerank))
        .route("/v1/reranking", post(rank::rerank))
        .route("/reranking", post(rank::rerank))
        .route("/v1/score", post(rank::score))
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
        .route("/v1/chat/completions/input_tokens", post(count::of_chat))
        .route("/v1/responses/input_tokens", post(count::of_response))
        .route("/completion", post(llama_cpp::completion))
        .route("/completions", post(llama_cpp::completion))
        .route("/embedding", post(llama_cpp::embedding))
        .route("/embeddings", post(llama_cpp::embedding))
        .route("/chat/completions", post(openai::chat::handle))
        .route("/infill", post(llama_cpp::fill))
        .route("/v1/load_lora_adapter", post(lora::load::load))
        .route("/v1/unload_lora_adapter", post(lora::load::unload))
        .route("/v1/models/load", post(openai::models::load))
        .route("/v1/models/unload", post(openai::models::unload))
        .layer(from_fn_with_state(Arc::clone(app), while_serving))
}

/// Every path with its methods, as listed in `docs/server.md` and `openapi.json`.
fn routes(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/health", get(ops::health))
        .route("/v1/health", get(ops::health))
        .route("/ready", get(ops::ready))
        .route("/metrics", get(ops::metrics::handle))
        .route("/v1/system", get(ops::system))
        .route("/openapi.json", get(ops::openapi))
        .route("/v1/models", get(openai::models::list))
        .route("/models", get(openai::models::list))
        .route("/v1/models/{*name}", get(openai::models::one))
        .route("/props", get(llama_cpp::props))
        .route("/slots", get(llama_cpp::slots))
        .route("/lora-adapters", get(lora::list).post(lora::set))
        .route("/v1/files", get(batches::files).post(batches::upload))
        .route("/v1/files/{id}", get(batches::file).delete(batches::delete))
        .route("/v1/files/{id}/content", get(batches::content))
        .route("/v1/batches", get(batches::batches).post(batches::create))
        .route("/v1/batches/{id}", get(batches::batch))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .route(
            "/v1/responses/{id}",
            get(stored::one).delete(stored::delete),
        )
        .route("/v1/responses/{id}/input_items", get(stored::input_items))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::running))
        .route("/api/show", post(ollama::show))
        .route("/api/version", get(ollama::version))
        .merge(working(app))
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
    let message = format!("there is nothing at {path}; /openapi.json lists all routes");
    Dialect::of_path(path).response(&ApiError::new(StatusCode::NOT_FOUND, message))
}

async fn wrong_method(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("{path} does not take {}", request.method());
    Dialect::of_path(path).response(&ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_as_clients_write_them() {
        for (given, plain) in [
            ("//v1/models", Some("/v1/models")),
            ("/v1//models", Some("/v1/models")),
            ("/v1/models/", Some("/v1/models")),
            ("///v1///models///?a=//", Some("/v1/models?a=//")),
            (
                "http://localhost/v1//models",
                Some("http://localhost/v1/models"),
            ),
            ("//", Some("/")),
            ("/", None),
            ("/v1/models", None),
            ("/v1/models?a=/", None),
            ("/v1/models/a%2F%2Fb", None),
        ] {
            let uri: Uri = given.parse().unwrap();
            let found = plain_path(&uri).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), plain, "{given}");
        }
    }
}
