//! `/completion` and `/infill`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use millrace_text::Tokenizer;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::forms::structured_outputs;
use crate::api::generation::{Answer, AnswerPiece, Generation, Reason};
use crate::api::infill::infill;
use crate::api::lora;
use crate::api::openai::completions::{MAX_PROMPTS, next_of};
use crate::api::openai::logprobs::{MAX_TOP_LOGPROBS, token_logprob};
use crate::api::params::{stop_texts, token_ids};
use crate::api::prompt;
use crate::api::sampling::sampling;
use crate::api::shape::AnswerShape;
use crate::api::tokens::served;
use crate::app::{App, Dialect, Incoming, json as json_response};
use crate::http::stream::{ClientGone, StreamWriter, events};
use crate::models::ServedModel;
use crate::scheduler::{Job, Receipt, TokenLogprob};

/// Fields of llama.cpp's server that this server does not support.
const REFUSED: &[(&str, &str)] = &[
    (
        "post_sampling_probs",
        "n_probs are of the model's own distribution",
    ),
    ("t_max_predict_ms", "x-request-timeout-ms ends a request"),
    ("n_indent", "ask for a form by `grammar`"),
    ("response_fields", "take them from the whole answer"),
    ("id_slot", "the cache finds a prompt by its text"),
    ("image_data", "ask /v1/chat/completions"),
];

/// `POST /completion`: continues a text.
pub(crate) async fn completion(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request, false).await)
}

/// `POST /infill`: writes a text between `input_prefix` and `input_suffix`.
pub(crate) async fn fill(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request, true).await)
}

/// How completions are reported.
struct CompletionContext {
    model: String,
    tokenizer: Arc<Tokenizer>,
    with_probs: bool,
    with_tokens: bool,
}

async fn answer(app: Arc<App>, request: Request, is_infill: bool) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    fields.refuse(REFUSED)?;
    if fields.usize("n_cmpl")?.is_some_and(|n| n > 1) {
        let message =
            "one answer a prompt; ask /v1/completions with n, or send the prompt several times";
        return Err(ApiError::field("n_cmpl", message));
    }
    let served = caller.within(served(&app, &fields)).await?;
    let served = lora::chosen(&fields, served)?;
    let (prompts, is_list) = match is_infill {
        true => (vec![gap(&fields, &served).await?], false),
        false => prompts(&fields, &served).await?,
    };
    let params = params(&fields, &served)?;
    let n_probs = fields
        .usize_in("n_probs", 0, MAX_TOP_LOGPROBS)?
        .unwrap_or(0);
    let context = CompletionContext {
        model: served.name.clone(),
        tokenizer: Arc::clone(&served.loaded.tokenizer),
        with_probs: n_probs > 0,
        with_tokens: fields.bool("return_tokens")?.unwrap_or(false),
    };
    let is_scored = context.with_probs || context.with_tokens;
    let shape = AnswerShape::of_form(structured_outputs(&fields)?);
    let mut generations = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let job = Job {
            top_logprobs: is_scored.then_some(n_probs),
            ..caller.job(prompt, params.clone())
        };
        let shape = shape.clone();
        generations.push(Generation::start(&served, job, shape, caller.log.clone()).await?);
    }
    if fields.bool("stream")?.unwrap_or(false) {
        let work = move |writer| stream(writer, generations, context);
        return Ok(events(app.options.keep_alive, work));
    }
    let mut bodies = Vec::with_capacity(generations.len());
    for (index, generation) in generations.into_iter().enumerate() {
        // All of them run; this only waits for them one after the other.
        let (mut answers, receipt) = generation.complete().await?;
        let answer = answers.pop().unwrap_or_default();
        bodies.push(context.last(index, &answer, &receipt));
    }
    let body = match bodies.len() {
        1 if !is_list => bodies.remove(0),
        _ => Value::Array(bodies),
    };
    Ok(json_response(StatusCode::OK, &body))
}

/// How much is generated, and how tokens are sampled.
fn params(fields: &Fields<'_>, served: &ServedModel) -> Result<GenerateParams, ApiError> {
    Ok(GenerateParams {
        sampling: sampling(fields, &served.loaded)?,
        max_tokens: match fields.limit("n_predict")? {
            None => fields.limit("max_tokens")?,
            limit => limit,
        },
        stop: stop_texts(fields, "stop")?,
        ignore_end: fields.bool("ignore_eos")?.unwrap_or(false),
        ..GenerateParams::default()
    })
}

/// The prompts, and whether the request had a list of them.
async fn prompts(
    fields: &Fields<'_>,
    served: &ServedModel,
) -> Result<(Vec<Vec<u32>>, bool), ApiError> {
    let value = fields.need("prompt", fields.get("prompt"))?;
    let list = match value {
        // A list of numbers alone, or mixed with texts, is one prompt.
        Value::Array(list) if !list.iter().any(Value::is_number) => list,
        _ => return Ok((vec![one_prompt(value, "prompt", served).await?], false)),
    };
    if list.is_empty() || list.len() > MAX_PROMPTS {
        let found = list.len();
        let message = format!("expected 1 to {MAX_PROMPTS} of them, found {found}");
        return Err(ApiError::field("prompt", message));
    }
    let mut prompts = Vec::with_capacity(list.len());
    for (i, value) in list.iter().enumerate() {
        prompts.push(one_prompt(value, &format!("prompt[{i}]"), served).await?);
    }
    Ok((prompts, true))
}

/// A text, or a list of token ids and texts.
async fn one_prompt(value: &Value, path: &str, served: &ServedModel) -> Result<Vec<u32>, ApiError> {
    const EXPECTED: &str = "a string, a list of token ids and strings, or a list of either";
    let list = match value {
        Value::String(text) => return prompt::encode(&served.loaded, text.clone()).await,
        Value::Array(list) => list,
        other => return Err(wrong(path, EXPECTED, other)),
    };
    let mut tokens = Vec::with_capacity(list.len());
    for (i, part) in list.iter().enumerate() {
        match part {
            Value::String(text) if i == 0 => {
                tokens.extend(prompt::encode(&served.loaded, text.clone()).await?);
            }
            Value::String(text) => {
                let text = text.clone();
                let encode = move |tokenizer: &Tokenizer| {
                    tokenizer.encode(
                        &text,
                        millrace_text::EncodeOptions {
                            add_special: false,
                            parse_special: true,
                        },
                    )
                };
                tokens.extend(prompt::encode_with(&served.loaded, encode).await?);
            }
            id => {
                let one = Value::Array(vec![id.clone()]);
                tokens.extend(token_ids(&one, path, EXPECTED, &served.loaded)?);
            }
        }
    }
    Ok(tokens)
}

/// The prompt of an infill request. Further files come before the text before the gap, and `prompt` comes at the end
/// of that text.
async fn gap(fields: &Fields<'_>, served: &ServedModel) -> Result<Vec<u32>, ApiError> {
    let before = fields.need("input_prefix", fields.text("input_prefix")?)?;
    let behind = fields.need("input_suffix", fields.text("input_suffix")?)?;
    let mut all = String::new();
    let extras = fields.list("input_extra")?.unwrap_or_default();
    for (i, extra) in extras.iter().enumerate() {
        let extra = Fields::at(extra, format!("input_extra[{i}]"))?;
        all += extra.need("text", extra.text("text")?)?;
        all.push('\n');
    }
    all += before;
    all += fields.text("prompt")?.unwrap_or_default();
    infill(served, all, behind.to_owned(), "input_suffix").await
}

impl CompletionContext {
    /// JSON of a part of an answer.
    fn part(&self, index: usize, text: &str, tokens: &[TokenLogprob]) -> Value {
        let ids: Vec<u32> = match self.with_tokens {
            true => tokens.iter().map(|token| token.token).collect(),
            false => Vec::new(),
        };
        let mut part = json!({
            "index": index, "content": text, "tokens": ids, "stop": false, "model": self.model,
        });
        if self.with_probs && !tokens.is_empty() {
            part["completion_probabilities"] = self.probabilities(tokens).into();
        }
        part
    }

    fn probabilities(&self, tokens: &[TokenLogprob]) -> Vec<Value> {
        let one = |id: u32, logprob: f64| {
            let mut value = token_logprob(&self.tokenizer, id, logprob);
            value["id"] = id.into();
            value
        };
        let token = |token: &TokenLogprob| {
            let mut value = one(token.token, token.logprob);
            let top = token.top.iter();
            value["top_logprobs"] = top.map(|(id, logprob)| one(*id, *logprob)).collect();
            value
        };
        tokens.iter().map(token).collect()
    }

    /// JSON of the end of an answer.
    fn last(&self, index: usize, answer: &Answer, receipt: &Receipt) -> Value {
        let stop_type = match answer.reason {
            Some(Reason::Stop | Reason::Calls) => "eos",
            Some(Reason::StopText) => "word",
            Some(Reason::Length) => "limit",
            None => "none",
        };
        let mut last = self.part(index, &answer.text, &answer.tokens);
        last["stop"] = true.into();
        last["stop_type"] = stop_type.into();
        last["stopping_word"] = answer.stop_text.as_deref().unwrap_or_default().into();
        last["tokens_evaluated"] = receipt.n_prompt.into();
        last["tokens_cached"] = receipt.n_cached.into();
        last["tokens_predicted"] = receipt.n_generated.into();
        last["truncated"] = false.into();
        last["timings"] = timings(receipt);
        last
    }
}

/// Measured times of prompt and answer; `prompt_n` is the number of prompt tokens that were computed.
fn timings(receipt: &Receipt) -> Value {
    let read = receipt.first_token.saturating_sub(receipt.queued);
    let written = receipt.total.saturating_sub(receipt.first_token);
    let n_read = receipt.n_prompt.saturating_sub(receipt.n_cached);
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let each = |n: usize, ms: f64| if n == 0 { 0.0 } else { ms / n as f64 };
    let rate = |n: usize, ms: f64| if ms > 0.0 { n as f64 / ms * 1e3 } else { 0.0 };
    let (read, written) = (ms(read), ms(written));
    json!({
        "cache_n": receipt.n_cached,
        "prompt_n": n_read, "prompt_ms": read,
        "prompt_per_token_ms": each(n_read, read), "prompt_per_second": rate(n_read, read),
        "predicted_n": receipt.n_generated, "predicted_ms": written,
        "predicted_per_token_ms": each(receipt.n_generated, written),
        "predicted_per_second": rate(receipt.n_generated, written),
    })
}

async fn stream(
    writer: StreamWriter,
    generations: Vec<Generation>,
    context: CompletionContext,
) -> Result<(), ClientGone> {
    let mut ends: Vec<Answer> = generations.iter().map(|_| Answer::default()).collect();
    let mut generations: Vec<_> = generations.into_iter().map(|one| (one, false)).collect();
    loop {
        let (index, piece) = match next_of(&mut generations).await {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(()),
            Err(error) => return writer.data(&error.openai()).await,
        };
        let end = &mut ends[index];
        match piece {
            // Tokens whose text is held back are reported with the next text, or at the end.
            AnswerPiece::Delta { text, tokens, .. } => {
                end.tokens.extend(tokens);
                if !text.is_empty() {
                    let tokens = std::mem::take(&mut end.tokens);
                    writer.data(&context.part(index, &text, &tokens)).await?;
                }
            }
            AnswerPiece::Finish {
                reason, stop_text, ..
            } => {
                end.reason = Some(reason);
                end.stop_text = stop_text;
            }
            AnswerPiece::End(receipt) => {
                writer.data(&context.last(index, end, &receipt)).await?;
            }
            _ => {}
        }
    }
}
