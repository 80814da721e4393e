//! `/completion`, `/infill`, `/props` and `/slots`, by the names of llama.cpp's server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;
use super::forms::structured_outputs;
use super::generation::{AnswerPiece, Generation, Reason};
use super::infill::infill;
use super::lora;
use super::params::{stop_texts, token_ids};
use super::prompt;
use super::sampling::sampling;
use super::shape::AnswerShape;
use super::tokens::served;
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::http::stream::{ClientGone, StreamWriter, events};
use crate::models::{ModelEntry, ServedModel};
use crate::scheduler::{Job, LoadState, Receipt};

/// What they have and this server has not.
const REFUSED: &[(&str, &str)] = &[
    ("n_probs", "ask /v1/completions for logprobs"),
    ("id_slot", "what was computed is found by what it says"),
    ("image_data", "ask /v1/chat/completions"),
];

/// `POST /completion`: a text goes on.
pub(crate) async fn completion(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request, false).await)
}

/// `POST /infill`: a text between `input_prefix` and `input_suffix`.
pub(crate) async fn fill(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request, true).await)
}

async fn answer(app: Arc<App>, request: Request, is_infill: bool) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    fields.refuse(REFUSED)?;
    let served = caller.within(served(&app, &fields)).await?;
    let served = lora::chosen(&fields, served)?;
    let prompt = match is_infill {
        true => gap(&fields, &served).await?,
        false => text(&fields, &served).await?,
    };
    let params = GenerateParams {
        sampling: sampling(&fields, &served.loaded)?,
        max_tokens: match fields.limit("n_predict")? {
            None => fields.limit("max_tokens")?,
            limit => limit,
        },
        stop: stop_texts(&fields, "stop")?,
        ignore_end: fields.bool("ignore_eos")?.unwrap_or(false),
        ..GenerateParams::default()
    };
    let shape = AnswerShape::of_form(structured_outputs(&fields)?);
    let model = served.name.clone();
    let job = Job {
        progress: false,
        ..caller.job(prompt, params)
    };
    let generation = Generation::start(&served, job, shape, caller.log.clone()).await?;
    if fields.bool("stream")?.unwrap_or(false) {
        let work = move |writer| stream(writer, generation, model);
        return Ok(events(app.options.keep_alive, work));
    }
    let (mut answers, receipt) = generation.complete().await?;
    let answer = answers.pop().unwrap_or_default();
    let stop_text = answer.stop_text.unwrap_or_default();
    let body = last(&model, &answer.text, answer.reason, &stop_text, &receipt);
    Ok(json_response(StatusCode::OK, &body))
}

async fn text(fields: &Fields<'_>, served: &ServedModel) -> Result<Vec<u32>, ApiError> {
    match fields.need("prompt", fields.get("prompt"))? {
        Value::String(text) => prompt::encode(&served.loaded, text.clone()).await,
        list => token_ids(
            list,
            "prompt",
            "a string or a list of token ids",
            &served.loaded,
        ),
    }
}

/// Further files come before the text in front of the gap, and `prompt` at its end.
async fn gap(fields: &Fields<'_>, served: &ServedModel) -> Result<Vec<u32>, ApiError> {
    let before = fields.need("input_prefix", fields.text("input_prefix")?)?;
    let behind = fields.need("input_suffix", fields.text("input_suffix")?)?;
    let mut all = String::new();
    for (i, extra) in fields
        .list("input_extra")?
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        let extra = Fields::at(extra, format!("input_extra[{i}]"))?;
        all += extra.need("text", extra.text("text")?)?;
        all.push('\n');
    }
    all += before;
    all += fields.text("prompt")?.unwrap_or_default();
    infill(served, all, behind.to_owned(), "input_suffix").await
}

/// What an answer ends with.
fn last(
    model: &str,
    content: &str,
    reason: Option<Reason>,
    stop_text: &str,
    receipt: &Receipt,
) -> Value {
    let stop_type = match reason {
        Some(Reason::Stop | Reason::Calls) => "eos",
        Some(Reason::StopText) => "word",
        Some(Reason::Length) => "limit",
        None => "none",
    };
    json!({
        "content": content, "stop": true, "model": model, "stop_type": stop_type, "stopping_word": stop_text,
        "tokens_evaluated": receipt.n_prompt, "tokens_cached": receipt.n_cached,
        "tokens_predicted": receipt.n_generated, "truncated": false,
    })
}

async fn stream(
    writer: StreamWriter,
    mut generation: Generation,
    model: String,
) -> Result<(), ClientGone> {
    let mut end = (None, String::new());
    loop {
        match generation.next().await {
            Err(error) => return writer.data(&error.openai()).await,
            Ok(Some(AnswerPiece::Delta { text, .. })) => {
                let part = json!({"content": text, "stop": false, "model": model});
                writer.data(&part).await?;
            }
            Ok(Some(AnswerPiece::Finish {
                reason, stop_text, ..
            })) => {
                end = (Some(reason), stop_text.unwrap_or_default());
            }
            Ok(Some(AnswerPiece::End(receipt))) => {
                return writer
                    .data(&last(&model, "", end.0, &end.1, &receipt))
                    .await;
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
        }
    }
}

/// The model of the query, or the first.
pub(super) fn entry(app: &App, request: &Request) -> Result<Arc<ModelEntry>, ApiError> {
    let query = request.uri().query().unwrap_or_default();
    let named = query
        .split('&')
        .find_map(|part| part.strip_prefix("model="));
    let entry = match named {
        Some(name) => app.registry.find(name),
        None => app.registry.entries().first(),
    };
    let unknown = || ApiError::unknown_model(named.unwrap_or_default(), &app.registry.ids());
    entry.cloned().ok_or_else(unknown)
}

/// `GET /props`.
pub(crate) async fn props(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = || {
        let entry = entry(&app, &request)?;
        let loaded = match entry.state() {
            Some(LoadState::Ready(loaded)) => loaded,
            _ => return Err(crate::scheduler::SubmitError::Loading.into()),
        };
        let tokenizer = &loaded.tokenizer;
        let body = json!({
            "default_generation_settings": {"n_ctx": loaded.limits.n_ctx, "params": super::params::default_sampling(&loaded)},
            "total_slots": loaded.limits.max_sequences, "model_alias": entry.spec.id,
            "model_path": entry.spec.source,
            "modalities": {"vision": loaded.vision().is_ok(), "audio": false},
            "bos_token": tokenizer.bos_text(), "eos_token": tokenizer.eos_text(),
            "build_info": concat!("millrace-", env!("CARGO_PKG_VERSION")), "is_sleeping": false,
        });
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::OpenAi.answer(work())
}

/// `GET /slots`: as many as answers are computed together. Which answer has which is not told, since others may ask.
pub(crate) async fn slots(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = || {
        let entry = entry(&app, &request)?;
        let (Some(scheduler), Some(LoadState::Ready(loaded))) = (entry.scheduler(), entry.state())
        else {
            return Err(crate::scheduler::SubmitError::Loading.into());
        };
        let n_running = scheduler.metrics().snapshot().n_running as usize;
        let slot = |id: usize| json!({"id": id, "n_ctx": loaded.limits.n_ctx, "is_processing": id < n_running, "speculative": false});
        let slots: Vec<Value> = (0..loaded.limits.max_sequences).map(slot).collect();
        Ok(json_response(StatusCode::OK, &slots.into()))
    };
    Dialect::OpenAi.answer(work())
}
