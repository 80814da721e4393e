//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use millrace_runtime::GenerateParams;
use serde_json::{Value, json};

use super::logprobs::{MAX_TOP_LOGPROBS, chat_logprobs, prompt_logprobs, prompt_logprobs_field};
use super::messages::messages;
use super::tools::tools;
use super::{finish_reason, tool_call, tool_call_delta, usage};
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::forms::structured_outputs;
use crate::api::generation::{Answer, AnswerPiece, Generation};
use crate::api::params::{MAX_ANSWERS, response_format, stop_texts, stop_tokens};
use crate::api::prompt::{Conversation, variables};
use crate::api::sampling::sampling;
use crate::api::thinking::ThinkingRequest;
use crate::api::time::unix_s;
use crate::api::unique;
use crate::app::{App, Dialect, Incoming, json as json_response, with_left_out};
use crate::http::stream::{ClientGone, StreamWriter, events};
use crate::models::ServedModel;
use crate::scheduler::Job;

/// Fields of the API that this server does not support.
const REFUSED: &[(&str, &str)] = &[
    ("functions", "use tools"),
    ("function_call", "use tool_choice"),
    ("audio", "answers are text"),
    ("web_search_options", "this server opens no connections"),
    ("prediction", "leave it out"),
];

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::OpenAi.answer(answer(app, request).await)
}

/// How a completion is reported.
struct ChatContext {
    id: String,
    created: u64,
    model: String,
    served: ServedModel,
    with_logprobs: bool,
    with_usage: bool,
    with_placement: bool,
    hides_thoughts: bool,
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    fields.refuse(REFUSED)?;
    let served = caller.within(app.served(&fields)).await?;
    let conversation = conversation(&fields)?;
    let hides_thoughts = conversation.thinking.is_hidden;
    let prompt = conversation.prompt(&served);
    let mut prompted = caller.within(prompt).await?;
    let images = prompted.see(&served, &caller).await?;
    let stream_options = fields.object("stream_options")?;
    let include_usage = match &stream_options {
        Some(options) => options.bool("include_usage")?.unwrap_or(false),
        None => false,
    };
    let job = caller.job(prompted.tokens, params(&fields, &served)?);
    let job = Job {
        images,
        ..complete_job(job, &fields)?
    };
    let context = ChatContext {
        id: unique("chatcmpl-"),
        created: unix_s(),
        model: served.name.clone(),
        with_logprobs: job.top_logprobs.is_some(),
        with_usage: include_usage,
        with_placement: fields.bool("placement")?.unwrap_or(false),
        hides_thoughts,
        served,
    };
    let (n, n_prompt_logprobs) = (job.n, job.prompt_logprobs);
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let generation = Generation::start(&context.served, job, prompted.shape, caller.log).await?;
    let left_out = generation.left_out();
    if is_stream {
        let work = move |writer| stream(writer, generation, context, n);
        return Ok(with_left_out(
            events(app.options.keep_alive, work),
            &left_out,
        ));
    }
    let complete = generation.complete_scored().await?;
    let choices = complete.answers.iter().enumerate();
    let choices: Vec<Value> = choices
        .map(|(i, answer)| context.choice(i, answer))
        .collect();
    let mut body = context.head("chat.completion");
    body["choices"] = choices.into();
    if let Some(n_top) = n_prompt_logprobs {
        let tokenizer = &context.served.loaded.tokenizer;
        body["prompt_logprobs"] = prompt_logprobs(tokenizer, &complete.prompt, n_top);
    }
    body["usage"] = usage(&complete.receipt, context.with_placement);
    Ok(with_left_out(
        json_response(StatusCode::OK, &body),
        &left_out,
    ))
}

/// The conversation of a request.
pub(crate) fn conversation(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let form = response_format(fields.object("response_format")?)?;
    Ok(Conversation {
        messages: messages(fields)?,
        tools: tools(fields)?,
        form: form.or(structured_outputs(fields)?),
        variables: variables(fields)?,
        thinking: ThinkingRequest::of_openai(fields)?,
        ..Conversation::default()
    })
}

/// How an answer is generated.
fn params(fields: &Fields<'_>, served: &ServedModel) -> Result<GenerateParams, ApiError> {
    let newer = fields.limit("max_completion_tokens")?;
    Ok(GenerateParams {
        sampling: sampling(fields, &served.loaded)?,
        max_tokens: newer.or(fields.limit("max_tokens")?),
        stop: stop_texts(fields, "stop")?,
        stop_tokens: stop_tokens(fields, &served.loaded)?,
        ignore_end: fields.bool("ignore_eos")?.unwrap_or(false),
        show_special: false,
    })
}

fn complete_job(job: Job, fields: &Fields<'_>) -> Result<Job, ApiError> {
    let n_top = fields.usize_in("top_logprobs", 0, MAX_TOP_LOGPROBS)?;
    let with_logprobs = fields.bool("logprobs")?.unwrap_or(false);
    if n_top.is_some_and(|n| n > 0) && !with_logprobs {
        return Err(ApiError::field(
            "top_logprobs",
            "logprobs must be true for it",
        ));
    }
    Ok(Job {
        n: fields.usize_in("n", 1, MAX_ANSWERS)?.unwrap_or(1),
        top_logprobs: with_logprobs.then_some(n_top.unwrap_or(0)),
        prompt_logprobs: prompt_logprobs_field(fields)?,
        priority: priority(fields)?.unwrap_or(job.priority),
        progress: fields.bool("return_progress")?.unwrap_or(false),
        timeline: fields.bool("timeline")?.unwrap_or(false),
        ..job
    })
}

/// The priority, by vLLM's name and meaning: lower is earlier.
pub(crate) fn priority(fields: &Fields<'_>) -> Result<Option<i32>, ApiError> {
    let priority = fields.i64("priority")?.map(i32::try_from).transpose();
    priority.map_err(|_| ApiError::field("priority", "expected a whole number of 32 bits"))
}

impl ChatContext {
    fn head(&self, object: &str) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "system_fingerprint": concat!("millrace-", env!("CARGO_PKG_VERSION")),
        })
    }

    fn choice(&self, index: usize, answer: &Answer) -> Value {
        let calls = answer.calls.iter();
        let calls: Vec<Value> = calls
            .map(|call| tool_call(&call.head, &call.input()))
            .collect();
        let content = match answer.text.is_empty() && !calls.is_empty() {
            true => Value::Null,
            false => answer.text.as_str().into(),
        };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !answer.thought.is_empty() && !self.hides_thoughts {
            message["reasoning_content"] = answer.thought.as_str().into();
            message["reasoning"] = answer.thought.as_str().into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let logprobs = match self.with_logprobs {
            true => chat_logprobs(&self.served.loaded.tokenizer, &answer.tokens),
            false => Value::Null,
        };
        json!({
            "index": index, "message": message, "logprobs": logprobs,
            "finish_reason": answer.reason.map(finish_reason),
        })
    }

    fn chunk(&self, index: usize, delta: Value, reason: Option<&str>, logprobs: Value) -> Value {
        let mut chunk = self.head("chat.completion.chunk");
        chunk["choices"] = json!([{
            "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason,
        }]);
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// The chunk for a piece of the answer, if it has one.
    fn piece_chunk(&self, piece: AnswerPiece) -> Option<Value> {
        let chunk = match piece {
            AnswerPiece::Progress { done, total } => {
                let mut chunk = self.head("chat.completion.chunk");
                chunk["choices"] = json!([]);
                chunk["prompt_progress"] = json!({"processed": done, "total": total});
                chunk
            }
            AnswerPiece::Delta {
                choice,
                text,
                tokens,
            } => {
                let logprobs = match self.with_logprobs && !tokens.is_empty() {
                    true => chat_logprobs(&self.served.loaded.tokenizer, &tokens),
                    false => Value::Null,
                };
                self.chunk(choice, json!({"content": text}), None, logprobs)
            }
            AnswerPiece::Thought { .. } if self.hides_thoughts => return None,
            AnswerPiece::Thought { choice, text } => {
                let delta = json!({"reasoning_content": text, "reasoning": text});
                self.chunk(choice, delta, None, Value::Null)
            }
            AnswerPiece::CallBegin {
                choice,
                index,
                head,
            } => {
                let mut call = tool_call(&head, "");
                call["index"] = index.into();
                self.chunk(choice, json!({"tool_calls": [call]}), None, Value::Null)
            }
            AnswerPiece::CallDelta {
                choice,
                place,
                text,
            } => {
                let delta = json!({"tool_calls": [tool_call_delta(place, &text)]});
                self.chunk(choice, delta, None, Value::Null)
            }
            AnswerPiece::Call { .. } | AnswerPiece::CallCut { .. } => return None,
            AnswerPiece::Finish { choice, reason, .. } => {
                self.chunk(choice, json!({}), Some(finish_reason(reason)), Value::Null)
            }
            AnswerPiece::End(receipt) if self.with_usage => {
                let mut chunk = self.head("chat.completion.chunk");
                chunk["choices"] = json!([]);
                chunk["usage"] = usage(&receipt, self.with_placement);
                chunk
            }
            AnswerPiece::PromptScores(_) | AnswerPiece::End(_) => return None,
        };
        Some(chunk)
    }
}

async fn stream(
    writer: StreamWriter,
    mut generation: Generation,
    context: ChatContext,
    n: usize,
) -> Result<(), ClientGone> {
    for index in 0..n {
        let delta = json!({"role": "assistant", "content": ""});
        let chunk = context.chunk(index, delta, None, Value::Null);
        writer.data(&chunk).await?;
    }
    loop {
        let piece = match generation.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return writer.done().await,
            Err(error) => return writer.data(&error.openai()).await,
        };
        if let Some(chunk) = context.piece_chunk(piece) {
            writer.data(&chunk).await?;
        }
    }
}
