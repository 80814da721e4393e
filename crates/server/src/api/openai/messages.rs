//! Messages of OpenAI's chat completions.

use millrace_text::Message;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::turns::{Texts, arguments};

/// Maximum number of messages of a request.
pub(crate) const MAX_MESSAGES: usize = 4096;

pub(crate) fn messages(fields: &Fields<'_>) -> Result<Vec<Message>, ApiError> {
    let list = fields.need("messages", fields.list("messages")?)?;
    if list.len() > MAX_MESSAGES {
        let message = format!("at most {MAX_MESSAGES} messages are accepted");
        return Err(ApiError::field("messages", message));
    }
    let read = |(i, value)| message(value, &format!("messages[{i}]"));
    list.iter().enumerate().map(read).collect()
}

fn message(value: &Value, path: &str) -> Result<Message, ApiError> {
    let fields = Fields::at(value, path.to_owned())?;
    let role = fields.need("role", fields.text("role")?)?;
    let role = match role {
        "developer" => "system",
        "function" => "tool",
        "system" | "user" | "assistant" | "tool" => role,
        other => {
            let message = format!("expected system, user, assistant or tool, found \"{other}\"");
            return Err(ApiError::field(&fields.path("role"), message));
        }
    };
    let (text, images) = content(&fields)?;
    let mut message = Message::new(role, text).with_images(images);
    if let Some(calls) = fields.list("tool_calls")?.filter(|calls| !calls.is_empty()) {
        let read = |(i, call)| call_of(call, format!("{path}.tool_calls[{i}]"));
        let calls: Result<Vec<Value>, ApiError> = calls.iter().enumerate().map(read).collect();
        message
            .fields
            .insert("tool_calls".to_owned(), calls?.into());
    }
    for name in ["name", "tool_call_id"] {
        if let Some(text) = fields.text(name)? {
            message.fields.insert(name.to_owned(), text.into());
        }
    }
    if role == "assistant"
        && let Some(thought) = thought(&fields)?
    {
        message
            .fields
            .insert("reasoning_content".to_owned(), thought.into());
    }
    Ok(message)
}

/// An earlier thought of the model, under any of the names that clients use.
fn thought<'a>(fields: &Fields<'a>) -> Result<Option<&'a str>, ApiError> {
    for name in ["reasoning_content", "reasoning", "thinking"] {
        if let Some(text) = fields.text(name)?.filter(|text| !text.is_empty()) {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// A call, either of a function or of a custom tool. A custom tool is a function with one string.
fn call_of(value: &Value, path: String) -> Result<Value, ApiError> {
    let call = Fields::at(value, path)?;
    let (name, arguments) = match call.object("custom")? {
        Some(custom) => {
            let input = custom.text("input")?.unwrap_or_default();
            (
                custom.need("name", custom.text("name")?)?,
                json!({"input": input}),
            )
        }
        None => {
            let function = call.need("function", call.object("function")?)?;
            let name = function.need("name", function.text("name")?)?;
            (name, arguments(function.get("arguments")))
        }
    };
    Ok(json!({
        "id": call.text("id")?.unwrap_or_default(), "type": "function",
        "function": {"name": name, "arguments": arguments},
    }))
}

/// A string, or parts that are text or images; images are their data URLs. A refusal of the model counts as its text.
fn content(fields: &Fields<'_>) -> Result<(String, Vec<String>), ApiError> {
    match fields.get("content") {
        None => Ok((
            fields.text("refusal")?.unwrap_or_default().to_owned(),
            Vec::new(),
        )),
        Some(value) => parts(value, &fields.path("content")),
    }
}

/// Content at a path: a string, or a list of parts.
pub(crate) fn parts(value: &Value, path: &str) -> Result<(String, Vec<String>), ApiError> {
    let list = match value {
        Value::String(text) => return Ok((text.clone(), Vec::new())),
        Value::Array(list) => list,
        other => return Err(wrong(path, "a string or a list of parts", other)),
    };
    let (mut text, mut images) = (Texts::default(), Vec::new());
    for (i, part) in list.iter().enumerate() {
        let part = Fields::at(part, format!("{path}[{i}]"))?;
        match part.need("type", part.text("type")?)? {
            "text" | "input_text" | "output_text" | "summary_text" => {
                text.add(part.need("text", part.text("text")?)?);
            }
            "refusal" => text.add(part.need("refusal", part.text("refusal")?)?),
            "image_url" | "input_image" => images.push(image(&part)?),
            other => {
                let message = format!("this model reads text and images, not \"{other}\"");
                return Err(ApiError::field(&part.path("type"), message));
            }
        }
    }
    Ok((text.joined(), images))
}

/// The URL of an image, which clients write as a string or within an object, in either of the two APIs.
fn image(part: &Fields<'_>) -> Result<String, ApiError> {
    let url = match part.get("image_url") {
        Some(Value::Object(_)) => {
            let image = part.need("image_url", part.object("image_url")?)?;
            image.need("url", image.text("url")?)?
        }
        _ => part.need("image_url", part.text("image_url")?)?,
    };
    Ok(url.to_owned())
}
