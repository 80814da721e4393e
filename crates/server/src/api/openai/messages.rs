//! Messages and functions of OpenAI's chat completions.

use millrace_text::Message;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::tools::{Tool, ToolChoice, Tools};

/// Messages of a request at most.
pub(crate) const MAX_MESSAGES: usize = 4096;

/// Functions of a request at most.
pub(crate) const MAX_TOOLS: usize = 128;

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
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.text(name)? {
            message.fields.insert(name.to_owned(), text.into());
        }
    }
    Ok(message)
}

/// Templates want a call's arguments as an object; the API has them as text.
fn call_of(value: &Value, path: String) -> Result<Value, ApiError> {
    let call = Fields::at(value, path)?;
    let function = call.need("function", call.object("function")?)?;
    let name = function.need("name", function.text("name")?)?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|error| {
            let message = format!("expected the text of a JSON object: {error}");
            ApiError::field(&function.path("arguments"), message)
        })?,
        Some(other) => other.clone(),
        None => json!({}),
    };
    Ok(json!({
        "id": call.text("id")?.unwrap_or_default(), "type": "function",
        "function": {"name": name, "arguments": arguments},
    }))
}

/// A string, or parts that are text or images; images are their data URLs.
fn content(fields: &Fields<'_>) -> Result<(String, Vec<String>), ApiError> {
    let path = fields.path("content");
    match fields.get("content") {
        None => Ok(Default::default()),
        Some(Value::String(text)) => Ok((text.clone(), Vec::new())),
        Some(Value::Array(parts)) => {
            let (mut text, mut images) = (String::new(), Vec::new());
            for (i, part) in parts.iter().enumerate() {
                let part = Fields::at(part, format!("{path}[{i}]"))?;
                match part.need("type", part.text("type")?)? {
                    "text" | "input_text" | "output_text" => {
                        text += part.need("text", part.text("text")?)?;
                    }
                    "image_url" => {
                        let image = part.need("image_url", part.object("image_url")?)?;
                        images.push(image.need("url", image.text("url")?)?.to_owned());
                    }
                    "input_image" => {
                        images.push(part.need("image_url", part.text("image_url")?)?.to_owned());
                    }
                    other => {
                        let message = format!("this model reads text and images, not \"{other}\"");
                        return Err(ApiError::field(&part.path("type"), message));
                    }
                }
            }
            Ok((text, images))
        }
        Some(other) => Err(wrong(&path, "a string or a list of parts", other)),
    }
}

/// `tools`, `tool_choice`, `parallel_tool_calls`. In responses a function's fields stand beside its type.
pub(crate) fn tools(fields: &Fields<'_>) -> Result<Tools, ApiError> {
    let mut list = Vec::new();
    let given = fields.list("tools")?.unwrap_or_default();
    if given.len() > MAX_TOOLS {
        let message = format!("at most {MAX_TOOLS} functions are accepted");
        return Err(ApiError::field("tools", message));
    }
    for (i, value) in given.iter().enumerate() {
        let tool = Fields::at(value, format!("tools[{i}]"))?;
        let kind = tool.need("type", tool.text("type")?)?;
        if kind != "function" {
            let message = format!("this server has functions only, found \"{kind}\"");
            return Err(ApiError::field(&tool.path("type"), message));
        }
        let function = tool.object("function")?.unwrap_or(tool);
        let name = function.need("name", function.text("name")?)?;
        list.push(Tool::new(
            &function.path("name"),
            name,
            function.text("description")?,
            function.get("parameters"),
        )?);
    }
    Ok(Tools {
        list,
        choice: tool_choice(fields)?,
        parallel: fields.bool("parallel_tool_calls")?.unwrap_or(true),
    })
}

fn tool_choice(fields: &Fields<'_>) -> Result<ToolChoice, ApiError> {
    let path = fields.path("tool_choice");
    match fields.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            other => {
                let message =
                    format!("expected auto, none, required or a function, found \"{other}\"");
                Err(ApiError::field(&path, message))
            }
        },
        Some(value) => {
            let choice = Fields::at(value, path)?;
            let function = choice.object("function")?.unwrap_or(choice);
            let name = function.need("name", function.text("name")?)?;
            Ok(ToolChoice::Named(name.to_owned()))
        }
    }
}
