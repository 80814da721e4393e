//! The events of `/v1/responses`.

use serde_json::{Value, json};

use super::responses::ResponseContext;
use super::responses_items::call_item;
use crate::api::generation::{Answer, AnswerPiece, FunctionCall, Generation};
use crate::api::tools::CallKind;
use crate::http::stream::{ClientGone, StreamWriter};

/// Numbers the events, and remembers which item is open.
struct Items {
    writer: StreamWriter,
    sequence: usize,
    /// Items that are complete.
    n_done: usize,
    is_message_open: bool,
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
        n_done: 0,
        is_message_open: false,
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
            Ok(None | Some(AnswerPiece::Progress { .. })) => {}
            Ok(Some(AnswerPiece::Delta { text, .. })) => items.text(&context, &text).await?,
            Ok(Some(AnswerPiece::Call { call, .. })) => items.call(&context, call).await?,
            Ok(Some(AnswerPiece::Finish { reason, .. })) => items.answer.reason = Some(reason),
            Ok(Some(AnswerPiece::End(receipt))) => {
                if items.answer.calls.is_empty() {
                    // An empty answer is a message too.
                    items.open(&context).await?;
                }
                items.close(&context).await?;
                let response = context.complete(&items.answer, &receipt);
                let kind = format!(
                    "response.{}",
                    response["status"].as_str().unwrap_or("completed")
                );
                return items.event(&kind, json!({"response": response})).await;
            }
        }
    }
}

impl Items {
    async fn event(&mut self, kind: &str, fields: Value) -> Result<(), ClientGone> {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        self.writer.event(kind, &event).await
    }

    /// Begins the message, if it is not begun.
    async fn open(&mut self, context: &ResponseContext) -> Result<(), ClientGone> {
        if self.is_message_open {
            return Ok(());
        }
        self.is_message_open = true;
        let mut item = context.message("", "in_progress");
        item["content"] = json!([]);
        let added = json!({"output_index": self.n_done, "item": item});
        self.event("response.output_item.added", added).await?;
        let part = json!({
            "item_id": context.item, "output_index": self.n_done, "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        });
        self.event("response.content_part.added", part).await
    }

    async fn text(&mut self, context: &ResponseContext, text: &str) -> Result<(), ClientGone> {
        if text.is_empty() {
            return Ok(());
        }
        self.open(context).await?;
        self.answer.text += text;
        let delta = json!({
            "item_id": context.item, "output_index": self.n_done, "content_index": 0, "delta": text,
            "logprobs": [],
        });
        self.event("response.output_text.delta", delta).await
    }

    async fn close(&mut self, context: &ResponseContext) -> Result<(), ClientGone> {
        if !std::mem::replace(&mut self.is_message_open, false) {
            return Ok(());
        }
        let text = self.answer.text.clone();
        let place =
            json!({"item_id": context.item, "output_index": self.n_done, "content_index": 0});
        let mut done = place.clone();
        done["text"] = text.as_str().into();
        done["logprobs"] = json!([]);
        self.event("response.output_text.done", done).await?;
        let mut part = place;
        part["part"] = json!({"type": "output_text", "text": text, "annotations": []});
        self.event("response.content_part.done", part).await?;
        let item = context.message(&text, "completed");
        let done = json!({"output_index": self.n_done, "item": item});
        self.event("response.output_item.done", done).await?;
        self.n_done += 1;
        Ok(())
    }

    async fn call(
        &mut self,
        context: &ResponseContext,
        call: FunctionCall,
    ) -> Result<(), ClientGone> {
        self.close(context).await?;
        // What the call is about, and the events that tell it.
        let (field, events) = match call.kind {
            CallKind::Custom => ("input", "response.custom_tool_call_input"),
            _ => ("arguments", "response.function_call_arguments"),
        };
        let mut item = call_item(&call, "in_progress");
        let (id, name, text) = (item["id"].clone(), item["name"].clone(), item[field].take());
        item[field] = "".into();
        let added = json!({"output_index": self.n_done, "item": item});
        self.event("response.output_item.added", added).await?;
        let delta = json!({"item_id": id, "output_index": self.n_done, "delta": text});
        self.event(&format!("{events}.delta"), delta).await?;
        let mut done = json!({"item_id": id, "output_index": self.n_done, "name": name});
        done[field] = text;
        self.event(&format!("{events}.done"), done).await?;
        let item = call_item(&call, "completed");
        let done = json!({"output_index": self.n_done, "item": item});
        self.event("response.output_item.done", done).await?;
        self.n_done += 1;
        self.answer.calls.push(call);
        Ok(())
    }
}
