//! Requests of Anthropic's messages.

use millrace_runtime::GenerateParams;
use millrace_text::Message;
use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::openai::messages::{MAX_MESSAGES, MAX_TOOLS};
use crate::api::params::{default_sampling, response_format, seed, set, stop_texts};
use crate::api::prompt::Conversation;
use crate::api::tools::{Tool, ToolChoice, Tools};
use crate::scheduler::Loaded;

pub(super) fn params(fields: &Fields<'_>, loaded: &Loaded) -> Result<GenerateParams, ApiError> {
    let mut sampling = default_sampling(loaded);
    set(
        &mut sampling.temperature,
        fields.f32_in("temperature", 0.0, 1.0)?,
    );
    set(&mut sampling.top_p, fields.f32_in("top_p", 0.0, 1.0)?);
    sampling.top_p = sampling.top_p.max(f32::MIN_POSITIVE);
    set(&mut sampling.top_k, fields.usize("top_k")?);
    sampling.seed = seed(fields)?;
    let max_tokens = fields.need("max_tokens", fields.usize("max_tokens")?)?;
    Ok(GenerateParams {
        sampling,
        max_tokens: Some(max_tokens),
        stop: stop_texts(fields, "stop_sequences")?,
        stop_tokens: Vec::new(),
        ignore_end: false,
        show_special: false,
    })
}

pub(super) fn conversation(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let mut messages = Vec::new();
    match fields.get("system") {
        None => {}
        Some(Value::String(text)) => messages.push(Message::system(text.as_str())),
        Some(value) => {
            let path = fields.path("system");
            let blocks = value.as_array();
            let blocks =
                blocks.ok_or_else(|| wrong(&path, "a string or a list of blocks", value))?;
            messages.push(Message::system(texts(blocks, &path)?));
        }
    }
    let list = fields.need("messages", fields.list("messages")?)?;
    if list.len() > MAX_MESSAGES {
        let message = format!("at most {MAX_MESSAGES} messages are accepted");
        return Err(ApiError::field("messages", message));
    }
    for (i, value) in list.iter().enumerate() {
        message(value, &format!("messages[{i}]"), &mut messages)?;
    }
    let form = match fields.object("output_config")? {
        Some(config) => response_format(config.object("format")?)?,
        None => None,
    };
    Ok(Conversation {
        messages,
        tools: tools(fields)?,
        form,
        variables: thinking(fields)?,
    })
}

/// Templates of models that think read this variable; what the model thinks is part of its text.
fn thinking(fields: &Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let Some(thinking) = fields.object("thinking")? else {
        return Ok(Map::new());
    };
    let kind = thinking.need("type", thinking.text("type")?)?;
    let variable = ("enable_thinking".to_owned(), (kind != "disabled").into());
    Ok([variable].into_iter().collect())
}

/// Blocks that are all text.
fn texts(blocks: &[Value], path: &str) -> Result<String, ApiError> {
    let mut text = String::new();
    for (i, block) in blocks.iter().enumerate() {
        let block = Fields::at(block, format!("{path}[{i}]"))?;
        match block.need("type", block.text("type")?)? {
            "text" => text += block.need("text", block.text("text")?)?,
            other => return Err(not_text(&block, other)),
        }
    }
    Ok(text)
}

fn not_text(block: &Fields<'_>, kind: &str) -> ApiError {
    let message = format!("this model reads text and images, not \"{kind}\"");
    ApiError::field(&block.path("type"), message)
}

/// One message can be several for the template: each result of a call is one of its own.
fn message(value: &Value, path: &str, out: &mut Vec<Message>) -> Result<(), ApiError> {
    let fields = Fields::at(value, path.to_owned())?;
    let role = fields.need("role", fields.text("role")?)?;
    if !["user", "assistant"].contains(&role) {
        let message = format!("expected user or assistant, found \"{role}\"");
        return Err(ApiError::field(&fields.path("role"), message));
    }
    let content = fields.need("content", fields.get("content"))?;
    let content_path = fields.path("content");
    if let Some(text) = content.as_str() {
        out.push(Message::new(role, text));
        return Ok(());
    }
    let blocks = content.as_array();
    let expected = "a string or a list of blocks";
    let blocks = blocks.ok_or_else(|| wrong(&content_path, expected, content))?;
    let (mut text, mut images, mut calls) = (String::new(), Vec::new(), Vec::new());
    for (i, block) in blocks.iter().enumerate() {
        let block = Fields::at(block, format!("{content_path}[{i}]"))?;
        match block.need("type", block.text("type")?)? {
            "text" => text += block.need("text", block.text("text")?)?,
            "image" if role == "user" => images.push(image(&block)?),
            // What a model thought before is not told to it again.
            "thinking" | "redacted_thinking" => {}
            "tool_use" if role == "assistant" => calls.push(json!({
                "id": block.text("id")?.unwrap_or_default(), "type": "function", "function": {
                    "name": block.need("name", block.text("name")?)?,
                    "arguments": block.get("input").cloned().unwrap_or_else(|| json!({})),
                },
            })),
            "tool_result" if role == "user" => out.push(result(&block)?),
            other => return Err(not_text(&block, other)),
        }
    }
    let has_results = out.last().is_some_and(|last| last.role == "tool");
    if text.is_empty() && images.is_empty() && calls.is_empty() && has_results {
        return Ok(());
    }
    let mut message = Message::new(role, text).with_images(images);
    if !calls.is_empty() {
        message.fields.insert("tool_calls".to_owned(), calls.into());
    }
    out.push(message);
    Ok(())
}

/// The base64 of an image block.
fn image(block: &Fields<'_>) -> Result<String, ApiError> {
    let source = block.need("source", block.object("source")?)?;
    let kind = source.need("type", source.text("type")?)?;
    match kind {
        "base64" => Ok(source.need("data", source.text("data")?)?.to_owned()),
        other => {
            let message = format!("this server takes images as base64, not as \"{other}\"");
            Err(ApiError::field(&source.path("type"), message))
        }
    }
}

fn result(block: &Fields<'_>) -> Result<Message, ApiError> {
    let path = block.path("content");
    let text = match block.get("content") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => texts(blocks, &path)?,
        Some(other) => return Err(wrong(&path, "a string or a list of blocks", other)),
    };
    let mut message = Message::new("tool", text);
    if let Some(id) = block.text("tool_use_id")? {
        message.fields.insert("tool_call_id".to_owned(), id.into());
    }
    Ok(message)
}

fn tools(fields: &Fields<'_>) -> Result<Tools, ApiError> {
    let given = fields.list("tools")?.unwrap_or_default();
    if given.len() > MAX_TOOLS {
        let message = format!("at most {MAX_TOOLS} tools are accepted");
        return Err(ApiError::field("tools", message));
    }
    let mut list = Vec::new();
    for (i, value) in given.iter().enumerate() {
        let tool = Fields::at(value, format!("tools[{i}]"))?;
        if let Some(kind) = tool.text("type")?
            && kind != "custom"
        {
            let message = format!("this server runs no tools itself, such as \"{kind}\"");
            return Err(ApiError::field(&tool.path("type"), message));
        }
        let schema = tool.need("input_schema", tool.get("input_schema"))?;
        list.push(Tool::new(
            &tool.path("name"),
            tool.need("name", tool.text("name")?)?,
            tool.text("description")?,
            Some(schema),
        )?);
    }
    let mut tools = Tools {
        list,
        choice: ToolChoice::Auto,
        parallel: true,
    };
    if let Some(choice) = fields.object("tool_choice")? {
        tools.parallel = !choice.bool("disable_parallel_tool_use")?.unwrap_or(false);
        tools.choice = match choice.need("type", choice.text("type")?)? {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::None,
            "tool" => ToolChoice::Named(choice.need("name", choice.text("name")?)?.to_owned()),
            other => {
                let message = format!("expected auto, any, tool or none, found \"{other}\"");
                return Err(ApiError::field(&choice.path("type"), message));
            }
        };
    }
    Ok(tools)
}
