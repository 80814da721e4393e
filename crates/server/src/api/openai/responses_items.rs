//! The items of a conversation in `/v1/responses`.

use millrace_text::Message;
use serde_json::{Value, json};

use super::messages::parts;
use super::tools::qualified;
use crate::api::calls::CallHead;
use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::api::tools::CallKind;
use crate::api::turns::{Texts, arguments};

/// Result of reading the items.
#[derive(Default)]
pub(super) struct Items {
    pub(super) messages: Vec<Message>,
    /// Items that this server ignores, as phrases.
    pub(super) left_out: Vec<String>,
    /// Thoughts of the model before its next message or call.
    thought: String,
}

impl Items {
    /// Reads one item.
    pub(super) fn add(&mut self, value: &Value, path: &str) -> Result<(), ApiError> {
        let item = Fields::at(value, path.to_owned())?;
        match item.text("type")?.unwrap_or("message") {
            "message" => self.message(value, path),
            "function_call" => {
                let name = item.need("name", item.text("name")?)?;
                let name = qualified(item.text("namespace")?, name);
                self.call(&item, &name, arguments(item.get("arguments")))
            }
            "custom_tool_call" => {
                let name = item.need("name", item.text("name")?)?;
                let name = qualified(item.text("namespace")?, name);
                let input = item.text("input")?.unwrap_or_default();
                self.call(&item, &name, json!({"input": input}))
            }
            "reasoning" => self.reasoning(&item),
            // `function_call_output`, `custom_tool_call_output`, and outputs of other services' tools.
            kind if kind.ends_with("_call_output") => self.output(&item),
            // Calls that the client made come with their outputs; others were made and answered elsewhere.
            kind if kind.ends_with("_call") && item.get("call_id").is_some() => {
                let fields = ["arguments", "action", "operation", "input"];
                let given = fields.iter().find_map(|name| item.get(name));
                self.call(&item, kind.trim_end_matches("_call"), arguments(given))
            }
            kind if kind.ends_with("_call") || kind.starts_with("mcp_") => {
                let kind: String = kind.chars().take(64).collect();
                let words = format!("{}: `{kind}`, which another server ran", item.path("type"));
                self.left_out.push(words);
                Ok(())
            }
            other => {
                let message = format!("this server does not know items of type \"{other}\"");
                Err(ApiError::field(&item.path("type"), message))
            }
        }
    }

    /// Reads a message. It has the form of a message of chat completions, whose reader adds the path itself.
    fn message(&mut self, value: &Value, path: &str) -> Result<(), ApiError> {
        let one = [("messages".to_owned(), json!([value]))];
        let one = Value::Object(one.into_iter().collect());
        let read = super::messages::messages(&Fields::of(&one)?);
        let read = read.map_err(|error| ApiError {
            param: error
                .param
                .map(|param| param.replacen("messages[0]", path, 1)),
            message: error.message.replacen("messages[0]", path, 1),
            ..error
        })?;
        for message in read {
            match message.role == "assistant" {
                true => self.answered(message),
                false => self.messages.push(message),
            }
        }
        Ok(())
    }

    /// Reads a thought of the model: its text, else its summary.
    fn reasoning(&mut self, item: &Fields<'_>) -> Result<(), ApiError> {
        for name in ["content", "summary"] {
            let mut texts = Texts::default();
            for (i, part) in item.list(name)?.unwrap_or_default().iter().enumerate() {
                let part = Fields::at(part, format!("{}[{i}]", item.path(name)))?;
                texts.add(part.text("text")?.unwrap_or_default());
            }
            let text = texts.joined();
            if !text.is_empty() {
                self.thought = text;
                break;
            }
        }
        Ok(())
    }

    /// Adds a message of the model, with the thoughts before it.
    fn answered(&mut self, mut message: Message) {
        if !self.thought.is_empty() {
            let thought = std::mem::take(&mut self.thought);
            let field = ("reasoning_content".to_owned(), thought.into());
            message.fields.extend([field]);
        }
        self.messages.push(message);
    }

    /// Adds an earlier call of the model: as part of its message, or as a separate one.
    fn call(&mut self, item: &Fields<'_>, name: &str, arguments: Value) -> Result<(), ApiError> {
        let id = match item.text("call_id")? {
            Some(id) => id,
            None => item.text("id")?.unwrap_or_default(),
        };
        let call = json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
        });
        let last = self.messages.last();
        if last.is_none_or(|last| last.role != "assistant") || !self.thought.is_empty() {
            self.answered(Message::assistant(""));
        }
        if let Some(last) = self.messages.last_mut() {
            let calls = last.fields.entry("tool_calls").or_insert_with(|| json!([]));
            if let Some(calls) = calls.as_array_mut() {
                calls.push(call);
            }
        }
        Ok(())
    }

    /// Adds the result of a call: a text, parts that are texts and images, or any JSON of a client's tool.
    fn output(&mut self, item: &Fields<'_>) -> Result<(), ApiError> {
        let path = item.path("output");
        let is_part = |value: &Value| value.get("type").is_some_and(Value::is_string);
        let (text, images) = match item.get("output") {
            None => Default::default(),
            Some(Value::Array(list)) if !list.iter().all(is_part) => {
                (Value::Array(list.clone()).to_string(), Vec::new())
            }
            Some(value @ (Value::String(_) | Value::Array(_))) => parts(value, &path)?,
            Some(other) => (other.to_string(), Vec::new()),
        };
        let mut message = Message::new("tool", text).with_images(images);
        if let Some(id) = item.text("call_id")? {
            message.fields.insert("tool_call_id".to_owned(), id.into());
        }
        self.messages.push(message);
        Ok(())
    }
}

/// A call as an item, with the given input.
pub(super) fn call_item(head: &CallHead, input: &str, status: &str) -> Value {
    let item = |kind: &str, id: &str| {
        json!({
            "id": format!("{id}_{}", head.id), "type": kind, "status": status, "call_id": head.id,
            "name": head.name,
        })
    };
    let mut item = match &head.kind {
        CallKind::Custom => {
            let mut item = item("custom_tool_call", "ctc");
            item["input"] = input.into();
            return item;
        }
        CallKind::Function => item("function_call", "fc"),
        CallKind::InNamespace { namespace, name } => {
            let mut item = item("function_call", "fc");
            item["namespace"] = namespace.as_str().into();
            item["name"] = name.as_str().into();
            item
        }
    };
    item["arguments"] = input.into();
    item
}
