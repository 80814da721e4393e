//! Anthropic's API: messages, and the counting of their tokens.

mod content;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::calls::CallHead;
use super::error::ApiError;
use super::fields::Fields;
use super::generation::{Answer, AnswerPiece, BETWEEN_THOUGHTS, Generation, Reason};
use super::placement::placement;
use super::signature::sign;
use super::unique;
use crate::app::{App, Dialect, Incoming, json as json_response, with_left_out};
use crate::http::stream::{ClientGone, StreamWriter, events};
use crate::scheduler::{Job, Receipt};

pub(crate) async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    Dialect::Anthropic.answer(answer(app, request).await)
}

/// How a message is reported.
struct MessageContext {
    id: String,
    model: String,
    n_prompt: usize,
    with_placement: bool,
    hides_thoughts: bool,
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let Incoming { body, caller } = app.read(request).await?;
    let fields = Fields::of(&body)?;
    let served = caller.within(app.served(&fields)).await?;
    let params = request::params(&fields, &served.loaded)?;
    let conversation = request::conversation(&fields)?;
    let hides_thoughts = conversation.thinking.is_hidden;
    let prompt = conversation.prompt(&served);
    let mut prompted = caller.within(prompt).await?;
    let images = prompted.see(&served, &caller).await?;
    let context = MessageContext {
        id: unique("msg_"),
        model: served.name.clone(),
        n_prompt: prompted.tokens.len(),
        with_placement: fields.bool("placement")?.unwrap_or(false),
        hides_thoughts,
    };
    let job = Job {
        images,
        ..caller.job(prompted.tokens, params)
    };
    let is_stream = fields.bool("stream")?.unwrap_or(false);
    let generation = Generation::start(&served, job, prompted.shape, caller.log).await?;
    let left_out = generation.left_out();
    if is_stream {
        let work = move |writer| stream(writer, generation, context);
        return Ok(with_left_out(
            events(app.options.keep_alive, work),
            &left_out,
        ));
    }
    let (mut answers, receipt) = generation.complete().await?;
    let answer = answers.pop().unwrap_or_default();
    let response = json_response(StatusCode::OK, &context.message(&answer, &receipt));
    Ok(with_left_out(response, &left_out))
}

/// `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let Incoming { body, caller } = app.read(request).await?;
        let fields = Fields::of(&body)?;
        let served = caller.within(app.served(&fields)).await?;
        let prompt = request::conversation(&fields)?.prompt(&served);
        let prompted = caller.within(prompt).await?;
        let body = json!({"input_tokens": prompted.tokens.len()});
        Ok(json_response(StatusCode::OK, &body))
    };
    Dialect::Anthropic.answer(work.await)
}

fn stop_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "end_turn",
        Reason::StopText => "stop_sequence",
        Reason::Length => "max_tokens",
        Reason::Calls => "tool_use",
    }
}

/// Usage of a request. In this API, cached tokens are not counted as input.
fn usage(receipt: &Receipt, with_placement: bool) -> Value {
    let mut usage = json!({
        "input_tokens": receipt.n_prompt - receipt.n_cached,
        "cache_read_input_tokens": receipt.n_cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": receipt.n_generated,
        "output_tokens_details": {"thinking_tokens": receipt.n_thought},
    });
    if with_placement {
        usage["placement"] = placement(receipt);
    }
    usage
}

/// The identifier of a call with Anthropic's prefix.
fn call_id(id: &str) -> String {
    id.replacen("call_", "toolu_", 1)
}

impl MessageContext {
    fn message(&self, answer: &Answer, receipt: &Receipt) -> Value {
        let mut content = Vec::new();
        if !answer.thought.is_empty() && !self.hides_thoughts {
            let signature = sign(&answer.thought);
            content.push(
                json!({"type": "thinking", "thinking": answer.thought, "signature": signature}),
            );
        }
        if !answer.text.is_empty() {
            content.push(json!({"type": "text", "text": answer.text}));
        }
        for call in &answer.calls {
            content.push(json!({
                "type": "tool_use", "id": call_id(&call.head.id), "name": call.head.name,
                "input": call.arguments,
            }));
        }
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": answer.reason.map(stop_reason), "stop_sequence": answer.stop_text,
            "usage": usage(receipt, self.with_placement),
        })
    }

    fn start(&self) -> Value {
        json!({"type": "message_start", "message": {
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": self.n_prompt, "output_tokens": 0},
        }})
    }
}

/// The kind of the open block.
#[derive(Clone, Debug, PartialEq)]
enum OpenBlock {
    Text,
    /// With its text so far, which is signed at the end.
    Thought(String),
    Call,
}

/// Content blocks, opened and closed as thoughts, text and calls arrive.
struct Blocks {
    writer: StreamWriter,
    index: usize,
    open: Option<OpenBlock>,
}

impl Blocks {
    async fn event(&self, kind: &str, fields: Value) -> Result<(), ClientGone> {
        let mut event = json!({"type": kind, "index": self.index});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.writer.event(kind, &event).await
    }

    async fn text(&mut self, text: &str) -> Result<(), ClientGone> {
        if text.is_empty() {
            return Ok(());
        }
        if self.open != Some(OpenBlock::Text) {
            self.close().await?;
            self.open = Some(OpenBlock::Text);
            let block = json!({"content_block": {"type": "text", "text": ""}});
            self.event("content_block_start", block).await?;
        }
        let delta = json!({"delta": {"type": "text_delta", "text": text}});
        self.event("content_block_delta", delta).await
    }

    async fn thought(&mut self, text: &str) -> Result<(), ClientGone> {
        if let Some(OpenBlock::Thought(said)) = &mut self.open {
            said.push_str(text);
        } else {
            self.close().await?;
            self.open = Some(OpenBlock::Thought(text.to_owned()));
            let block =
                json!({"content_block": {"type": "thinking", "thinking": "", "signature": ""}});
            self.event("content_block_start", block).await?;
        }
        let delta = json!({"delta": {"type": "thinking_delta", "thinking": text}});
        self.event("content_block_delta", delta).await
    }

    async fn close(&mut self) -> Result<(), ClientGone> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        if let OpenBlock::Thought(said) = open {
            let delta = json!({"delta": {"type": "signature_delta", "signature": sign(&said)}});
            self.event("content_block_delta", delta).await?;
        }
        self.event("content_block_stop", json!({})).await?;
        self.index += 1;
        Ok(())
    }

    async fn begin_call(&mut self, head: &CallHead) -> Result<(), ClientGone> {
        self.close().await?;
        self.open = Some(OpenBlock::Call);
        let block = json!({"content_block": {
            "type": "tool_use", "id": call_id(&head.id), "name": head.name, "input": {},
        }});
        self.event("content_block_start", block).await
    }

    async fn call_delta(&self, input: &str) -> Result<(), ClientGone> {
        let delta = json!({"delta": {"type": "input_json_delta", "partial_json": input}});
        self.event("content_block_delta", delta).await
    }
}

async fn stream(
    writer: StreamWriter,
    mut generation: Generation,
    context: MessageContext,
) -> Result<(), ClientGone> {
    writer.event("message_start", &context.start()).await?;
    writer.event("ping", &json!({"type": "ping"})).await?;
    let mut blocks = Blocks {
        writer,
        index: 0,
        open: None,
    };
    let mut ended = (None, None);
    loop {
        match generation.next().await {
            Err(error) => return blocks.writer.event("error", &error.anthropic()).await,
            Ok(None | Some(AnswerPiece::Progress { .. } | AnswerPiece::PromptScores(_))) => {}
            Ok(Some(AnswerPiece::Delta { text, .. })) => blocks.text(&text).await?,
            Ok(Some(AnswerPiece::Thought { .. })) if context.hides_thoughts => {}
            Ok(Some(AnswerPiece::Thought { text, .. })) => {
                // Each thought is a separate block.
                let text = match blocks.open {
                    Some(OpenBlock::Thought(_)) => &text,
                    _ => text.strip_prefix(BETWEEN_THOUGHTS).unwrap_or(&text),
                };
                blocks.thought(text).await?;
            }
            Ok(Some(AnswerPiece::CallBegin { head, .. })) => blocks.begin_call(&head).await?,
            Ok(Some(AnswerPiece::CallDelta { text, .. })) => blocks.call_delta(&text).await?,
            Ok(Some(AnswerPiece::Call { .. } | AnswerPiece::CallCut { .. })) => {
                blocks.close().await?;
            }
            Ok(Some(AnswerPiece::Finish {
                reason, stop_text, ..
            })) => ended = (Some(stop_reason(reason)), stop_text),
            Ok(Some(AnswerPiece::End(receipt))) => {
                blocks.close().await?;
                let delta = json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": ended.0, "stop_sequence": ended.1},
                    "usage": usage(&receipt, context.with_placement),
                });
                blocks.writer.event("message_delta", &delta).await?;
                let stop = json!({"type": "message_stop"});
                return blocks.writer.event("message_stop", &stop).await;
            }
        }
    }
}
