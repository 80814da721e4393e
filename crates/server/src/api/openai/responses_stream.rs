//! The events of `/v1/responses`.

use serde_json::{Value, json};

use super::responses::ResponseContext;
use super::responses_items::call_item;
use crate::api::calls::CallHead;
use crate::api::generation::{Answer, AnswerPiece, BETWEEN_THOUGHTS, Generation, Reason};
use crate::api::tools::CallKind;
use crate::http::stream::{ClientGone, StreamWriter};
use crate::scheduler::{Receipt, TokenLogprob};

/// The kind of the open item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenItem {
    Message,
    Reasoning,
}

/// Numbers the events, and tracks the open item.
struct Items {
    writer: StreamWriter,
    sequence: usize,
    /// Items that are complete.
    done: Vec<Value>,
    open: Option<OpenItem>,
    /// Text so far of the open item, or input so far of the call.
    said: String,
    /// Reported tokens of the open message, and tokens not reported yet.
    tokens: Vec<TokenLogprob>,
    untold: Vec<TokenLogprob>,
    /// The call that has begun.
    call: Option<CallHead>,
    answer: Answer,
}

pub(super) async fn stream(
    writer: StreamWriter,
    mut generation: Generation,
    context: ResponseContext,
) -> Result<(), ClientGone> {
    let mut items = Items {
        writer,
        sequence: 0,
        done: Vec::new(),
        open: None,
        said: String::new(),
        tokens: Vec::new(),
        untold: Vec::new(),
        call: None,
        answer: Answer::default(),
    };
    for kind in ["response.created", "response.in_progress"] {
        let response = context.response("in_progress", Vec::new(), Value::Null);
        items.event(kind, json!({"response": response})).await?;
    }
    loop {
        match generation.next().await {
            Err(error) => {
                let mut response = context.response("failed", Vec::new(), Value::Null);
                response["error"] = json!({"code": "server_error", "message": error.message});
                return items
                    .event("response.failed", json!({"response": response}))
                    .await;
            }
            Ok(None | Some(AnswerPiece::Progress { .. } | AnswerPiece::PromptScores(_))) => {}
            Ok(Some(AnswerPiece::Thought { text, .. })) => items.thought(&context, &text).await?,
            Ok(Some(AnswerPiece::Delta { text, tokens, .. })) => {
                items.text(&context, &text, tokens).await?;
            }
            Ok(Some(AnswerPiece::CallBegin { head, .. })) => {
                items.begin_call(&context, head).await?;
            }
            Ok(Some(AnswerPiece::CallDelta { text, .. })) => items.call_delta(&text).await?,
            Ok(Some(AnswerPiece::Call { call, .. })) => {
                items.end_call("completed").await?;
                items.answer.calls.push(call);
            }
            Ok(Some(AnswerPiece::CallCut { .. })) => items.end_call("incomplete").await?,
            Ok(Some(AnswerPiece::Finish { reason, .. })) => items.answer.reason = Some(reason),
            Ok(Some(AnswerPiece::End(receipt))) => {
                return items.finish(&context, &receipt).await;
            }
        }
    }
}

impl Items {
    /// Writes the end of the answer.
    async fn finish(
        &mut self,
        context: &ResponseContext,
        receipt: &Receipt,
    ) -> Result<(), ClientGone> {
        let is_thought = |item: &Value| item["type"] == "reasoning";
        let is_empty = self.open != Some(OpenItem::Message) && self.done.iter().all(is_thought);
        if is_empty {
            // An empty answer is a message as well.
            self.open(context, OpenItem::Message).await?;
        }
        self.close(context).await?;
        let mut response = context.complete(&self.answer, receipt);
        // The items as reported, including a call that was cut.
        response["output"] = self.done.clone().into();
        context.keep(&mut response);
        let status = response["status"].as_str().unwrap_or("completed");
        let kind = format!("response.{status}");
        self.event(&kind, json!({"response": response})).await
    }

    async fn event(&mut self, kind: &str, fields: Value) -> Result<(), ClientGone> {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        self.writer.event(kind, &event).await
    }

    /// JSON of the open item, with its text so far.
    fn item(&self, context: &ResponseContext, open: OpenItem, status: &str) -> Value {
        let mut item = match open {
            OpenItem::Message => context.message(&self.said, &self.tokens, status),
            OpenItem::Reasoning => context.reasoning(&self.said, status),
        };
        if let Some(id) = item["id"].as_str().filter(|_| !self.done.is_empty()) {
            item["id"] = format!("{id}_{}", self.done.len()).into();
        }
        if status == "in_progress" {
            item["content"] = json!([]);
        }
        item
    }

    /// Path fields of the open item's text.
    fn place(&self, context: &ResponseContext, open: OpenItem) -> Value {
        let id = self.item(context, open, "in_progress")["id"].take();
        json!({"item_id": id, "output_index": self.done.len(), "content_index": 0})
    }

    /// Begins an item, if it is not open.
    async fn open(&mut self, context: &ResponseContext, open: OpenItem) -> Result<(), ClientGone> {
        if self.open == Some(open) {
            return Ok(());
        }
        self.close(context).await?;
        self.open = Some(open);
        self.said.clear();
        self.tokens.clear();
        let item = self.item(context, open, "in_progress");
        let added = json!({"output_index": self.done.len(), "item": item});
        self.event("response.output_item.added", added).await?;
        let mut part = self.place(context, open);
        part["part"] = self.part(context, open);
        self.event("response.content_part.added", part).await
    }

    async fn text(
        &mut self,
        context: &ResponseContext,
        text: &str,
        tokens: Vec<TokenLogprob>,
    ) -> Result<(), ClientGone> {
        self.answer.text += text;
        self.answer.tokens.extend_from_slice(&tokens);
        self.untold.extend(tokens);
        self.say(context, OpenItem::Message, text).await
    }

    async fn thought(&mut self, context: &ResponseContext, text: &str) -> Result<(), ClientGone> {
        self.answer.thought += text;
        // Each thought is a separate item.
        let text = match self.open == Some(OpenItem::Reasoning) {
            true => text,
            false => text.strip_prefix(BETWEEN_THOUGHTS).unwrap_or(text),
        };
        self.say(context, OpenItem::Reasoning, text).await
    }

    async fn say(
        &mut self,
        context: &ResponseContext,
        open: OpenItem,
        text: &str,
    ) -> Result<(), ClientGone> {
        if text.is_empty() {
            return Ok(());
        }
        self.open(context, open).await?;
        self.said += text;
        let mut delta = self.place(context, open);
        delta["delta"] = text.into();
        if open == OpenItem::Message {
            delta["logprobs"] = context.logprobs(&self.untold);
            self.tokens.append(&mut self.untold);
        }
        self.event(&format!("{}.delta", open.events()), delta).await
    }

    async fn close(&mut self, context: &ResponseContext) -> Result<(), ClientGone> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let place = self.place(context, open);
        let mut done = place.clone();
        done["text"] = self.said.as_str().into();
        if open == OpenItem::Message {
            self.tokens.append(&mut self.untold);
            done["logprobs"] = context.logprobs(&self.tokens);
        }
        self.event(&format!("{}.done", open.events()), done).await?;
        let mut part = place;
        part["part"] = self.part(context, open);
        self.event("response.content_part.done", part).await?;
        let status = match (open, self.answer.reason) {
            (OpenItem::Message, Some(Reason::Length)) => "incomplete",
            _ => "completed",
        };
        let item = self.item(context, open, status);
        self.complete(item).await
    }

    /// JSON of the text part of the open item.
    fn part(&self, context: &ResponseContext, open: OpenItem) -> Value {
        match open {
            OpenItem::Message => context.output_text(&self.said, &self.tokens),
            OpenItem::Reasoning => json!({"type": "reasoning_text", "text": self.said}),
        }
    }

    async fn complete(&mut self, item: Value) -> Result<(), ClientGone> {
        let done = json!({"output_index": self.done.len(), "item": item});
        self.done.push(item);
        self.event("response.output_item.done", done).await
    }

    async fn begin_call(
        &mut self,
        context: &ResponseContext,
        head: CallHead,
    ) -> Result<(), ClientGone> {
        // The tokens since the last text belong to the call.
        self.untold.clear();
        self.close(context).await?;
        self.said.clear();
        let item = call_item(&head, "", "in_progress");
        self.call = Some(head);
        let added = json!({"output_index": self.done.len(), "item": item});
        self.event("response.output_item.added", added).await
    }

    async fn call_delta(&mut self, text: &str) -> Result<(), ClientGone> {
        let Some(head) = &self.call else {
            return Ok(());
        };
        self.said += text;
        let (_, events) = called_with(head);
        let id = call_item(head, "", "in_progress")["id"].take();
        let delta = json!({"item_id": id, "output_index": self.done.len(), "delta": text});
        self.event(&format!("{events}.delta"), delta).await
    }

    async fn end_call(&mut self, status: &str) -> Result<(), ClientGone> {
        let Some(head) = self.call.take() else {
            return Ok(());
        };
        self.untold.clear();
        let (field, events) = called_with(&head);
        let item = call_item(&head, &self.said, status);
        let done = json!({
            "item_id": item["id"], "output_index": self.done.len(), "name": item["name"],
            field: self.said,
        });
        self.event(&format!("{events}.done"), done).await?;
        self.complete(item).await
    }
}

/// The field for a call's input, and the prefix of its events.
fn called_with(head: &CallHead) -> (&'static str, &'static str) {
    match head.kind {
        CallKind::Custom => ("input", "response.custom_tool_call_input"),
        _ => ("arguments", "response.function_call_arguments"),
    }
}

impl OpenItem {
    /// Prefix of the events of its text.
    fn events(self) -> &'static str {
        match self {
            OpenItem::Message => "response.output_text",
            OpenItem::Reasoning => "response.reasoning_text",
        }
    }
}

#[cfg(test)]
mod tests;
