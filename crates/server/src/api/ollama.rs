//! Ollama's API: chat, generate, embeddings, and information about models.

mod about;
pub(crate) mod embed;
mod request;

pub(crate) use about::{running, show, tags, version};

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_text::Tokenizer;
use serde_json::{Value, json};

use super::calls::FunctionCall;
use super::error::ApiError;
use super::fields::Fields;
use super::generation::{Answer, AnswerPiece, Generation, Reason};
use super::infill::infill;
use super::openai::logprobs::{MAX_TOP_LOGPROBS, token_logprobs};
use super::params::Caller;
use super::placement::placement;
use super::prompt;
use super::shape::AnswerShape;
use crate::app::{App, Dialect, Incoming, json as json_response, with_left_out};
use crate::http::stream::{ClientGone, StreamWriter, lines};
use crate::models::ServedModel;
use crate::scheduler::{Job, Receipt};

/// Which of the two calls: they differ in the position of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OllamaCall {
    Chat,
    Generate,
}

pub(crate) async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::Ollama.answer(answer(app, request, OllamaCall::Chat).await)
}

pub(crate) async fn generate(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::Ollama.answer(answer(app, request, OllamaCall::Generate).await)
}

struct OllamaContext {
    kind: OllamaCall,
    model: String,
    /// The tokenizer for the texts of tokens, if log-probabilities are reported.
    tokenizer: Option<Arc<Tokenizer>>,
    with_placement: bool,
}

/// Whether log-probabilities are reported, and for how many of the likeliest tokens.
fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let is_asked = fields.bool("logprobs")?.unwrap_or(false);
    let n_top = fields.usize_in("top_logprobs", 0, MAX_TOP_LOGPROBS)?;
    if n_top.is_some_and(|n| n > 0) && !is_asked {
        let message = "logprobs must be true for it";
        return Err(ApiError::field("top_logprobs", message));
    }
    Ok(is_asked.then_some(n_top.unwrap_or(0)))
}

async fn answer(app: Arc<App>, request: Request, kind: OllamaCall) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let name = fields.need("model", fields.text("model")?)?;
    let n_top = logprobs(&fields)?;
    let mut context = OllamaContext {
        kind,
        model: name.to_owned(),
        tokenizer: None,
        with_placement: fields.bool("placement")?.unwrap_or(false),
    };
    let is_empty = match kind {
        OllamaCall::Chat => fields.list("messages")?.is_none_or(<[Value]>::is_empty),
        OllamaCall::Generate => fields.text("prompt")?.is_none_or(str::is_empty),
    };
    if is_empty {
        return load_or_unload(&app, &fields, &context).await;
    }
    let served = caller.within(app.served(&fields)).await?;
    context.tokenizer = n_top.map(|_| Arc::clone(&served.loaded.tokenizer));
    let params = request::params(&fields, &served.loaded)?;
    let (tokens, images, shape) = prompted(&fields, &served, kind, &caller).await?;
    let job = Job {
        images,
        top_logprobs: n_top,
        ..caller.job(tokens, params)
    };
    let is_stream = fields.bool("stream")?.unwrap_or(true);
    let generation = Generation::start(&served, job, shape, caller.log).await?;
    let left_out = generation.left_out();
    if is_stream {
        let response = lines(move |writer| stream(writer, generation, context));
        return Ok(with_left_out(response, &left_out));
    }
    let (mut answers, receipt) = generation.complete().await?;
    let answer = answers.pop().unwrap_or_default();
    let body = context.last(&answer, &receipt);
    Ok(with_left_out(
        json_response(StatusCode::OK, &body),
        &left_out,
    ))
}

/// Loads or unloads a model as Ollama's clients request it: by an empty request, which unloads if `keep_alive` is
/// zero.
async fn load_or_unload(
    app: &App,
    fields: &Fields<'_>,
    context: &OllamaContext,
) -> Result<Response, ApiError> {
    let reason = match request::keeps_nothing(fields)? {
        true => {
            let entry = app.registry.find(&context.model);
            let unknown = || ApiError::unknown_model(&context.model, &app.registry.ids());
            app.registry.unload(entry.ok_or_else(unknown)?);
            "unload"
        }
        false => {
            app.served(fields).await?;
            "load"
        }
    };
    let mut body = context.part(&Answer::default());
    body["done"] = true.into();
    body["done_reason"] = reason.into();
    Ok(json_response(StatusCode::OK, &body))
}

async fn prompted(
    fields: &Fields<'_>,
    served: &ServedModel,
    kind: OllamaCall,
    caller: &Caller,
) -> Result<(Vec<u32>, Vec<Arc<millrace_runtime::Image>>, AnswerShape), ApiError> {
    if kind == OllamaCall::Generate && fields.bool("raw")?.unwrap_or(false) {
        let text = fields.need("prompt", fields.text("prompt")?)?.to_owned();
        let tokens = caller.within(prompt::encode(&served.loaded, text)).await?;
        let shape = AnswerShape::of_form(request::form(fields)?);
        return Ok((tokens, Vec::new(), shape));
    }
    let suffix = fields.text("suffix")?.filter(|text| !text.is_empty());
    if let Some(suffix) = suffix.filter(|_| kind == OllamaCall::Generate) {
        let before = fields.need("prompt", fields.text("prompt")?)?.to_owned();
        let tokens = infill(served, before, suffix.to_owned(), "suffix");
        let tokens = caller.within(tokens).await?;
        let shape = AnswerShape::of_form(request::form(fields)?);
        return Ok((tokens, Vec::new(), shape));
    }
    let conversation = match kind {
        OllamaCall::Chat => request::chat(fields)?,
        OllamaCall::Generate => request::generate(fields)?,
    };
    let mut prompted = caller.within(conversation.prompt(served)).await?;
    let images = prompted.see(served, caller).await?;
    Ok((prompted.tokens, images, prompted.shape))
}

/// Ollama has no reason for calls or for stop texts.
fn done_reason(reason: Option<Reason>) -> &'static str {
    match reason {
        Some(Reason::Length) => "length",
        _ => "stop",
    }
}

impl OllamaContext {
    fn part(&self, answer: &Answer) -> Value {
        let (text, calls) = (answer.text.as_str(), &answer.calls);
        let mut part = json!({"model": self.model, "created_at": super::time::now()});
        match self.kind {
            OllamaCall::Chat => {
                let mut message = json!({"role": "assistant", "content": text});
                if !calls.is_empty() {
                    let call = |call: &FunctionCall| {
                        json!({"function": {
                            "name": call.head.name, "arguments": call.arguments,
                        }})
                    };
                    message["tool_calls"] = calls.iter().map(call).collect();
                }
                if !answer.thought.is_empty() {
                    message["thinking"] = answer.thought.as_str().into();
                }
                part["message"] = message;
            }
            OllamaCall::Generate => {
                part["response"] = text.into();
                if !answer.thought.is_empty() {
                    part["thinking"] = answer.thought.as_str().into();
                }
            }
        }
        if let Some(tokenizer) = self
            .tokenizer
            .as_ref()
            .filter(|_| !answer.tokens.is_empty())
        {
            part["logprobs"] = token_logprobs(tokenizer, &answer.tokens).into();
        }
        part["done"] = false.into();
        part
    }

    /// The last part: counts, and measured times in nanoseconds.
    fn last(&self, answer: &Answer, receipt: &Receipt) -> Value {
        let mut last = self.part(answer);
        last["done"] = true.into();
        last["done_reason"] = done_reason(answer.reason).into();
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let read = receipt.first_token.saturating_sub(receipt.queued);
        let written = receipt.total.saturating_sub(receipt.first_token);
        last["total_duration"] = ns(receipt.total).into();
        last["load_duration"] = 0.into();
        last["prompt_eval_count"] = receipt.n_prompt.into();
        last["prompt_eval_duration"] = ns(read).into();
        last["eval_count"] = receipt.n_generated.into();
        last["eval_duration"] = ns(written).into();
        if self.with_placement {
            last["placement"] = placement(receipt);
        }
        last
    }
}

async fn stream(
    writer: StreamWriter,
    mut generation: Generation,
    context: OllamaContext,
) -> Result<(), ClientGone> {
    let mut ended = Answer::default();
    loop {
        match generation.next().await {
            Err(error) => return writer.line(&error.ollama()).await,
            Ok(None | Some(AnswerPiece::Progress { .. } | AnswerPiece::PromptScores(_))) => {}
            // This API reports calls whole.
            Ok(Some(AnswerPiece::CallBegin { .. } | AnswerPiece::CallDelta { .. })) => {}
            // Tokens whose text is held back are reported with the next text, or at the end.
            Ok(Some(AnswerPiece::Delta { text, tokens, .. })) if text.is_empty() => {
                ended.tokens.extend(tokens);
            }
            Ok(Some(AnswerPiece::CallCut { text, .. })) if text.is_empty() => {}
            Ok(Some(AnswerPiece::Delta { text, tokens, .. })) => {
                ended.tokens.extend(tokens);
                let tokens = std::mem::take(&mut ended.tokens);
                let part = context.part(&Answer {
                    text,
                    tokens,
                    ..Answer::default()
                });
                writer.line(&part).await?
            }
            Ok(Some(AnswerPiece::CallCut { text, .. })) => {
                let part = context.part(&Answer {
                    text,
                    ..Answer::default()
                });
                writer.line(&part).await?
            }
            Ok(Some(AnswerPiece::Thought { text: thought, .. })) => {
                let part = context.part(&Answer {
                    thought,
                    ..Answer::default()
                });
                writer.line(&part).await?
            }
            Ok(Some(AnswerPiece::Call { call, .. })) => {
                let part = context.part(&Answer {
                    calls: vec![call],
                    ..Answer::default()
                });
                writer.line(&part).await?
            }
            Ok(Some(AnswerPiece::Finish { reason, .. })) => ended.reason = Some(reason),
            Ok(Some(AnswerPiece::End(receipt))) => {
                let last = context.last(&ended, &receipt);
                return writer.line(&last).await;
            }
        }
    }
}
