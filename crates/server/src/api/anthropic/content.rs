//! Messages of Anthropic's API: blocks to messages.

use millrace_text::Message;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::generation::BETWEEN_THOUGHTS;
use crate::api::signature::is_signed;
use crate::api::turns::{Texts, arguments};

/// Beginning of a system block that Claude Code writes for its own service. Its text differs in every request, so
/// nothing after it would be found in the cache.
const BILLING: &str = "x-anthropic-billing-header:";

const EXPECTED: &str = "a string or a list of blocks";

/// The text of `system`, without the line that is meant for Anthropic's service.
pub(super) fn system(value: &Value, path: &str) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(without_billing(text).to_owned()),
        Value::Array(blocks) => {
            let mut texts = Texts::default();
            for (i, block) in blocks.iter().enumerate() {
                let block = Fields::at(block, format!("{path}[{i}]"))?;
                let read = content_of(&block, block.need("type", block.text("type")?)?)?;
                match read {
                    TextOrImage::Text(text) => texts.add(without_billing(&text)),
                    TextOrImage::Image(_) => return Err(not_read(&block, "image")),
                }
            }
            Ok(texts.joined())
        }
        other => Err(wrong(path, EXPECTED, other)),
    }
}

fn without_billing(text: &str) -> &str {
    match text.starts_with(BILLING) {
        true => text.split_once('\n').map_or("", |(_, rest)| rest),
        false => text,
    }
}

fn not_read(block: &Fields<'_>, kind: &str) -> ApiError {
    let message = format!("this model reads text and images, not \"{kind}\"");
    ApiError::field(&block.path("type"), message)
}

/// One message can become several for the template: each result of a call is a separate message.
pub(super) fn message(value: &Value, path: &str, out: &mut Vec<Message>) -> Result<(), ApiError> {
    let fields = Fields::at(value, path.to_owned())?;
    let role = fields.need("role", fields.text("role")?)?;
    let content = fields.need("content", fields.get("content"))?;
    let content_path = fields.path("content");
    match role {
        "user" | "assistant" => {}
        "system" => {
            let text = system(content, &content_path)?;
            if !text.is_empty() {
                out.push(Message::system(text));
            }
            return Ok(());
        }
        other => {
            let message = format!("expected user, assistant or system, found \"{other}\"");
            return Err(ApiError::field(&fields.path("role"), message));
        }
    }
    let blocks = match content {
        Value::String(text) => {
            out.push(Message::new(role, text.as_str()));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        other => return Err(wrong(&content_path, EXPECTED, other)),
    };
    let (mut text, mut images, mut calls) = (Texts::default(), Vec::new(), Vec::new());
    let mut thoughts: Vec<&str> = Vec::new();
    let n_before = out.len();
    for (i, block) in blocks.iter().enumerate() {
        let block = Fields::at(block, format!("{content_path}[{i}]"))?;
        match (block.need("type", block.text("type")?)?, role) {
            ("thinking", "assistant") => thoughts.push(thought(&block)?),
            // Encrypted, so it cannot be read.
            ("redacted_thinking", _) => {}
            ("tool_use", "assistant") => calls.push(call(&block)?),
            ("tool_result", "user") => out.push(result(&block)?),
            (kind @ ("image" | "document" | "search_result"), "assistant") => {
                return Err(not_read(&block, kind));
            }
            (kind, _) => match content_of(&block, kind)? {
                TextOrImage::Text(part) => text.add(&part),
                TextOrImage::Image(image) => images.push(image),
            },
        }
    }
    let has_results = out.len() > n_before;
    let parts = MessageParts {
        text: text.joined(),
        images,
        calls,
        thoughts,
    };
    if !(has_results && parts.is_empty()) {
        out.push(parts.message(role));
    }
    Ok(())
}

/// The parts of a message beside results of calls.
struct MessageParts<'a> {
    text: String,
    images: Vec<String>,
    calls: Vec<Value>,
    thoughts: Vec<&'a str>,
}

impl MessageParts<'_> {
    /// Whether the message is empty apart from thoughts.
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.images.is_empty() && self.calls.is_empty()
    }

    fn message(self, role: &str) -> Message {
        let mut message = Message::new(role, self.text).with_images(self.images);
        if !self.thoughts.is_empty() {
            let thoughts = self.thoughts.join(BETWEEN_THOUGHTS);
            let field = ("reasoning_content".to_owned(), thoughts.into());
            message.fields.extend([field]);
        }
        if !self.calls.is_empty() {
            let calls = self.calls.into();
            message.fields.insert("tool_calls".to_owned(), calls);
        }
        message
    }
}

/// An earlier thought of the model. It must carry this server's signature.
fn thought<'a>(block: &Fields<'a>) -> Result<&'a str, ApiError> {
    let thought = block.need("thinking", block.text("thinking")?)?;
    let signature = block.need("signature", block.text("signature")?)?;
    match is_signed(thought, signature) {
        true => Ok(thought),
        false => {
            let message = "Invalid `signature` in `thinking` block: send a thought back as this server told it, or leave it out";
            Err(ApiError::field(&block.path("signature"), message))
        }
    }
}

fn call(block: &Fields<'_>) -> Result<Value, ApiError> {
    Ok(json!({
        "id": block.text("id")?.unwrap_or_default(), "type": "function", "function": {
            "name": block.need("name", block.text("name")?)?,
            "arguments": arguments(block.get("input")),
        },
    }))
}

fn result(block: &Fields<'_>) -> Result<Message, ApiError> {
    let (mut text, images) = match block.get("content") {
        None => Default::default(),
        Some(content) => contents(content, &block.path("content"))?,
    };
    // Templates have no other place for the error flag.
    if block.bool("is_error")?.unwrap_or(false) && !text.to_ascii_lowercase().starts_with("error") {
        text = match text.is_empty() {
            true => "Error".to_owned(),
            false => format!("Error: {text}"),
        };
    }
    let mut message = Message::new("tool", text).with_images(images);
    if let Some(id) = block.text("tool_use_id")? {
        message.fields.insert("tool_call_id".to_owned(), id.into());
    }
    Ok(message)
}

/// Text and images of a message's content.
fn contents(value: &Value, path: &str) -> Result<(String, Vec<String>), ApiError> {
    let blocks = match value {
        Value::String(text) => return Ok((text.clone(), Vec::new())),
        Value::Array(blocks) => blocks,
        other => return Err(wrong(path, EXPECTED, other)),
    };
    let (mut text, mut images) = (Texts::default(), Vec::new());
    for (i, block) in blocks.iter().enumerate() {
        let block = Fields::at(block, format!("{path}[{i}]"))?;
        match content_of(&block, block.need("type", block.text("type")?)?)? {
            TextOrImage::Text(part) => text.add(&part),
            TextOrImage::Image(image) => images.push(image),
        }
    }
    Ok((text.joined(), images))
}

/// A block with text or an image.
enum TextOrImage {
    Text(String),
    /// Base64.
    Image(String),
}

fn content_of(block: &Fields<'_>, kind: &str) -> Result<TextOrImage, ApiError> {
    let text = |name: &str| block.need(name, block.text(name)?);
    match kind {
        "text" => Ok(TextOrImage::Text(text("text")?.to_owned())),
        "image" => image(block).map(TextOrImage::Image),
        "document" => document(block).map(TextOrImage::Text),
        "search_result" => {
            let (found, _) = contents(
                block.need("content", block.get("content"))?,
                &block.path("content"),
            )?;
            Ok(TextOrImage::Text(lines(&[
                Some(text("title")?),
                Some(text("source")?),
                Some(&found),
            ])))
        }
        // A tool that was found by a search: the request has its description.
        "tool_reference" => Ok(TextOrImage::Text(text("tool_name")?.to_owned())),
        other => Err(not_read(block, other)),
    }
}

fn lines(texts: &[Option<&str>]) -> String {
    let texts = texts.iter().flatten().filter(|text| !text.is_empty());
    let texts: Vec<&str> = texts.copied().collect();
    texts.join("\n")
}

/// A document of text, with its title and context.
fn document(block: &Fields<'_>) -> Result<String, ApiError> {
    let source = block.need("source", block.object("source")?)?;
    let text = match source.need("type", source.text("type")?)? {
        "text" => source.need("data", source.text("data")?)?.to_owned(),
        "content" => {
            let content = source.need("content", source.get("content"))?;
            let (text, images) = contents(content, &source.path("content"))?;
            if !images.is_empty() {
                let message =
                    "this server takes documents of text; send their images as image blocks";
                return Err(ApiError::field(&source.path("content"), message));
            }
            text
        }
        other => {
            let message = format!("this server takes documents as text, not as \"{other}\"");
            return Err(ApiError::field(&source.path("type"), message));
        }
    };
    Ok(lines(&[
        block.text("title")?,
        block.text("context")?,
        Some(&text),
    ]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_for_the_service_is_left_out() {
        for (given, text) in [
            (
                json!("x-anthropic-billing-header: cc_version=1; cch=0;"),
                "",
            ),
            (
                json!("x-anthropic-billing-header: a\nBe brief."),
                "Be brief.",
            ),
            (
                json!("Say x-anthropic-billing-header: a"),
                "Say x-anthropic-billing-header: a",
            ),
            (
                json!([
                    {"type": "text", "text": "x-anthropic-billing-header: a"},
                    {"type": "text", "text": "one."},
                    {"type": "text", "text": "two."},
                ]),
                "one.\ntwo.",
            ),
        ] {
            assert_eq!(system(&given, "system").unwrap(), text);
        }
    }
}
