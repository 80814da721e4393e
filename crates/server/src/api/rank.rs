//! `POST /v1/rerank`, `/rerank` and `/v1/score`: how well texts answer a query.
//!
//! `/v1/rerank` follows Jina and Cohere, with `documents`. A request with `texts` instead follows
//! text-embeddings-inference, and so does its answer. `/v1/score` is vLLM's.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::ranking::Ranker;
use serde_json::{Value, json};

use super::embeddings::{MAX_INPUTS, VectorForm, embed};
use super::error::ApiError;
use super::fields::{Fields, wrong};
use super::params::Caller;
use super::prompt::encode_with;
use super::tokens::served;
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::models::ServedModel;

pub(crate) async fn rerank(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer_rerank(app, request).await)
}

pub(crate) async fn score(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer_score(app, request).await)
}

/// Scores of pairs in their order, and the total of tokens.
struct Scores {
    scores: Vec<f32>,
    n_tokens: usize,
}

async fn answer_rerank(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let query = fields.need("query", fields.text("query")?)?;
    // The fields of text-embeddings-inference, whose answer is a plain list.
    let is_plain = fields.get("documents").is_none() && fields.get("texts").is_some();
    let name = if is_plain { "texts" } else { "documents" };
    let documents = documents(&fields, name)?;
    let served = served(&app, &fields).await?;
    let pairs = documents.iter().map(|text| (query, *text)).collect();
    let Scores { scores, n_tokens } = scored(&fields, &served, &caller, pairs).await?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    if let Some(most) = fields.usize("top_n")? {
        order.truncate(most);
    }
    if is_plain {
        let with_text = fields.bool("return_text")?.unwrap_or(false);
        let row = |index: &usize| {
            let mut row = json!({"index": index, "score": scores[*index]});
            if with_text {
                row["text"] = json!(documents[*index]);
            }
            row
        };
        let rows: Vec<Value> = order.iter().map(row).collect();
        return Ok(json_response(StatusCode::OK, &Value::Array(rows)));
    }
    let with_text = fields.bool("return_documents")?.unwrap_or(false);
    let row = |index: &usize| {
        let mut row = json!({"index": index, "relevance_score": scores[*index]});
        if with_text {
            row["document"] = json!({"text": documents[*index]});
        }
        row
    };
    let rows: Vec<Value> = order.iter().map(row).collect();
    let body = json!({
        "object": "list", "model": served.name, "results": rows,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    });
    Ok(json_response(StatusCode::OK, &body))
}

async fn answer_score(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let first = one_or_more(&fields, "text_1")?;
    let second = one_or_more(&fields, "text_2")?;
    let pairs = match (&first[..], &second[..]) {
        ([one], many) => many.iter().map(|text| (*one, *text)).collect(),
        (many, others) if many.len() == others.len() => {
            many.iter().copied().zip(others.iter().copied()).collect()
        }
        (many, others) => {
            let (found, expected) = (others.len(), many.len());
            let message =
                format!("expected {expected} texts, as many as text_1 has, found {found}");
            return Err(ApiError::field("text_2", message));
        }
    };
    let served = served(&app, &fields).await?;
    let Scores { scores, n_tokens } = scored(&fields, &served, &caller, pairs).await?;
    let rows = scores.iter().enumerate();
    let rows =
        rows.map(|(index, score)| json!({"index": index, "object": "score", "score": score}));
    let rows: Vec<Value> = rows.collect();
    let body = json!({
        "object": "list", "model": served.name, "data": rows,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// The scores of pairs: between 0 and 1, or with `raw_scores` the unscaled output of the model's head.
async fn scored(
    fields: &Fields<'_>,
    served: &ServedModel,
    caller: &Caller,
    pairs: Vec<(&str, &str)>,
) -> Result<Scores, ApiError> {
    let ranker = served.loaded.ranker.as_ref();
    let ranker: &Arc<Ranker> = ranker.map_err(|reason| ApiError::field("model", reason))?;
    let is_raw = fields.bool("raw_scores")?.unwrap_or(false);
    let instruction = fields.text("instruction")?.map(str::to_owned);
    let mut inputs = Vec::with_capacity(pairs.len());
    for (query, document) in pairs {
        let (ranker, instruction) = (Arc::clone(ranker), instruction.clone());
        let (query, document) = (query.to_owned(), document.to_owned());
        let encode = move |tokenizer: &millrace_text::Tokenizer| {
            ranker.prompt(tokenizer, (&query, &document), instruction.as_deref())
        };
        inputs.push(encode_with(&served.loaded, encode).await?);
    }
    let how = VectorForm::rows(ranker.pooling());
    let rows = embed(served, caller, inputs, how).await?;
    let n_tokens = rows.iter().map(|(_, receipt)| receipt.n_prompt).sum();
    let score = |row: &[f32]| {
        let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let score = ranker.score(&row);
        match is_raw {
            true => score,
            false => Ranker::relevance(score),
        }
    };
    let scores = rows.iter().map(|(row, _)| score(row)).collect();
    Ok(Scores { scores, n_tokens })
}

/// Texts to rank: strings, or objects with a `text`.
fn documents<'a>(fields: &Fields<'a>, name: &str) -> Result<Vec<&'a str>, ApiError> {
    let value = fields.need(name, fields.get(name))?;
    let text = |value: &'a Value| value.as_str().or_else(|| value.get("text")?.as_str());
    let texts: Option<Vec<&str>> = match value {
        Value::Array(list) => list.iter().map(text).collect(),
        _ => None,
    };
    let expected = "a list of strings, or of objects with a string `text`";
    let texts = texts.ok_or_else(|| wrong(name, expected, value))?;
    counted(name, texts)
}

fn one_or_more<'a>(fields: &Fields<'a>, name: &str) -> Result<Vec<&'a str>, ApiError> {
    let value = fields.need(name, fields.get(name))?;
    let texts: Option<Vec<&str>> = match value {
        Value::String(text) => Some(vec![text.as_str()]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let texts = texts.ok_or_else(|| wrong(name, "a string or a list of strings", value))?;
    counted(name, texts)
}

fn counted<'a>(name: &str, texts: Vec<&'a str>) -> Result<Vec<&'a str>, ApiError> {
    match texts.len() {
        0 => Err(ApiError::field(name, "the list is empty")),
        n if n > MAX_INPUTS => {
            let message = format!("expected at most {MAX_INPUTS} texts, found {n}");
            Err(ApiError::field(name, message))
        }
        _ => Ok(texts),
    }
}
