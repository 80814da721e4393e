//! Requests of Ollama's chat and generate.

use millrace_runtime::GenerateParams;
use millrace_text::Message;
use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::openai::messages::MAX_MESSAGES;
use crate::api::openai::tools::tools;
use crate::api::params::{default_sampling, set, stop_texts};
use crate::api::prompt::Conversation;
use crate::api::sampling::shared;
use crate::api::shape::OutputForm;
use crate::api::thinking::ThinkingRequest;
use crate::api::turns::arguments;
use crate::grammar::Grammar;
use crate::scheduler::ModelInfo;

/// The `options` of a request. `num_ctx` and options about memory are left to the server, and ignored.
pub(super) fn params(fields: &Fields<'_>, loaded: &ModelInfo) -> Result<GenerateParams, ApiError> {
    let mut params = GenerateParams {
        sampling: default_sampling(loaded),
        ..GenerateParams::default()
    };
    let empty = Value::Object(Map::new());
    let options = match fields.object("options")? {
        Some(options) => options,
        None => Fields::at(&empty, fields.path("options"))?,
    };
    let sampling = &mut params.sampling;
    for (name, place) in [
        ("presence_penalty", &mut sampling.presence_penalty),
        ("frequency_penalty", &mut sampling.frequency_penalty),
    ] {
        set(place, options.f32(name)?);
    }
    shared(&options, loaded, sampling)?;
    params.max_tokens = options.limit("num_predict")?;
    params.stop = stop_texts(&options, "stop")?;
    Ok(params)
}

/// `"json"`, or a schema.
pub(super) fn form(fields: &Fields<'_>) -> Result<Option<OutputForm>, ApiError> {
    let grammar = match fields.get("format") {
        None => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) if text == "json" => Grammar::JsonObject,
        Some(schema @ Value::Object(_)) => {
            return Ok(Some(OutputForm::of_schema(schema, fields.path("format"))?));
        }
        Some(other) => return Err(wrong("format", "\"json\" or a JSON schema", other)),
    };
    let path = fields.path("format");
    Ok(Some(OutputForm { grammar, path }))
}

/// Whether `keep_alive` is zero: a number of seconds, or a duration in Go's syntax. Negative ones mean for ever.
pub(super) fn keeps_nothing(fields: &Fields<'_>) -> Result<bool, ApiError> {
    let Some(value) = fields.get("keep_alive") else {
        return Ok(false);
    };
    let seconds = match value {
        Value::String(text) => duration_s(text),
        _ => value.as_f64(),
    };
    let expected = "seconds, or a text such as \"5m\" or \"1h30m\"";
    match seconds {
        Some(seconds) => Ok(seconds == 0.0),
        None => Err(wrong(&fields.path("keep_alive"), expected, value)),
    }
}

/// Seconds of a duration in the syntax of Go's `time.ParseDuration`: numbers with units, one after the other. A bare
/// number is seconds.
fn duration_s(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    if !unsigned.is_empty() && unsigned.chars().all(is_digit) {
        return unsigned.parse::<f64>().ok().map(|seconds| sign * seconds);
    }
    let (mut rest, mut total) = (unsigned, 0.0);
    while !rest.is_empty() {
        let number = rest.find(|c| !is_digit(c))?;
        let (digits, after) = rest.split_at(number);
        let unit = after.find(is_digit).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit_s = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += digits.parse::<f64>().ok()? * unit_s;
        rest = after;
    }
    (!unsigned.is_empty()).then_some(sign * total)
}

pub(super) fn chat(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    let list = fields.need("messages", fields.list("messages")?)?;
    if list.len() > MAX_MESSAGES {
        let message = format!("at most {MAX_MESSAGES} messages are accepted");
        return Err(ApiError::field("messages", message));
    }
    let read = |(i, value)| message(value, format!("messages[{i}]"));
    let messages: Result<Vec<Message>, ApiError> = list.iter().enumerate().map(read).collect();
    Ok(Conversation {
        messages: messages?,
        tools: tools(fields)?,
        form: form(fields)?,
        thinking: ThinkingRequest::of_ollama(fields)?,
        ..Conversation::default()
    })
}

fn message(value: &Value, path: String) -> Result<Message, ApiError> {
    let fields = Fields::at(value, path)?;
    let role = fields.need("role", fields.text("role")?)?;
    if !["system", "user", "assistant", "tool"].contains(&role) {
        let message = format!("expected system, user, assistant or tool, found \"{role}\"");
        return Err(ApiError::field(&fields.path("role"), message));
    }
    let text = fields.text("content")?.unwrap_or_default();
    let mut message = Message::new(role, text).with_images(images(&fields)?);
    let mut calls = Vec::new();
    for (i, call) in fields
        .list("tool_calls")?
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        let call = Fields::at(call, format!("{}[{i}]", fields.path("tool_calls")))?;
        let function = call.need("function", call.object("function")?)?;
        calls.push(json!({"type": "function", "function": {
            "name": function.need("name", function.text("name")?)?,
            "arguments": arguments(function.get("arguments")),
        }}));
    }
    if !calls.is_empty() {
        message.fields.insert("tool_calls".to_owned(), calls.into());
    }
    if let Some(thought) = fields.text("thinking")?.filter(|text| !text.is_empty()) {
        let field = ("reasoning_content".to_owned(), thought.into());
        message.fields.extend([field]);
    }
    Ok(message)
}

/// Images as base64.
fn images(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let list = fields.list("images")?.unwrap_or_default();
    let path = fields.path("images");
    let read = |value: &Value| match value.as_str() {
        Some(data) => Ok(data.to_owned()),
        None => Err(wrong(&path, "a list of base64 texts", value)),
    };
    list.iter().map(read).collect()
}

/// A prompt becomes a conversation of one message, as in Ollama, unless `raw` is set.
pub(super) fn generate(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    fields.refuse(&[
        (
            "template",
            "the model's own template is used; `raw` uses none",
        ),
        (
            "context",
            "send the conversation to /api/chat: its computed prefix is kept",
        ),
    ])?;
    let system = fields.text("system")?.filter(|text| !text.is_empty());
    let prompt = fields.need("prompt", fields.text("prompt")?)?;
    let messages = system.map(Message::system).into_iter();
    let message = Message::user(prompt).with_images(images(fields)?);
    Ok(Conversation {
        messages: messages.chain([message]).collect(),
        form: form(fields)?,
        thinking: ThinkingRequest::of_ollama(fields)?,
        ..Conversation::default()
    })
}

#[cfg(test)]
mod tests {
    use super::duration_s;

    #[test]
    fn durations_are_gos() {
        for (text, seconds) in [
            ("5m", Some(300.0)),
            ("1h30m", Some(5400.0)),
            ("1.5h", Some(5400.0)),
            ("300ms", Some(0.3)),
            ("-1", Some(-1.0)),
            ("-1m", Some(-60.0)),
            ("+2s", Some(2.0)),
            ("0", Some(0.0)),
            ("0s", Some(0.0)),
            ("10", Some(10.0)),
            ("", None),
            ("-", None),
            ("m", None),
            ("5x", None),
            ("5m3", None),
            ("1..2s", None),
            ("soon", None),
        ] {
            let found = duration_s(text);
            assert_eq!(
                found.map(|s| (s * 1e6).round()),
                seconds.map(|s| s * 1e6),
                "{text}"
            );
        }
    }
}
