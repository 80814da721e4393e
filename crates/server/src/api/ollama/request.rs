//! Requests of Ollama's chat and generate.

use millrace_runtime::GenerateParams;
use millrace_text::Message;
use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::fields::{Fields, wrong};
use crate::api::openai::messages::{MAX_MESSAGES, tools};
use crate::api::params::{default_sampling, seed, set, stop_texts};
use crate::api::prompt::Conversation;
use crate::grammar::Grammar;
use crate::scheduler::Loaded;

/// The `options` of a request. `num_ctx` and what concerns memory is the server's affair and left alone.
pub(super) fn params(fields: &Fields<'_>, loaded: &Loaded) -> Result<GenerateParams, ApiError> {
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
    set(
        &mut sampling.temperature,
        options.f32_in("temperature", 0.0, 100.0)?,
    );
    set(&mut sampling.top_k, options.usize("top_k")?);
    set(&mut sampling.top_p, options.f32_in("top_p", 0.0, 1.0)?);
    sampling.top_p = sampling.top_p.max(f32::MIN_POSITIVE);
    set(&mut sampling.min_p, options.f32_in("min_p", 0.0, 1.0)?);
    set(
        &mut sampling.typical_p,
        options.f32_in("typical_p", 0.0, 1.0)?,
    );
    set(
        &mut sampling.repetition_penalty,
        options.f32_in("repeat_penalty", 0.01, 100.0)?,
    );
    set(
        &mut sampling.presence_penalty,
        options.f32("presence_penalty")?,
    );
    set(
        &mut sampling.frequency_penalty,
        options.f32("frequency_penalty")?,
    );
    if let Some(last_n) = options.i64("repeat_last_n")? {
        sampling.penalty_last_n = usize::try_from(last_n).unwrap_or(usize::MAX);
    }
    sampling.seed = seed(&options)?;
    // -1 and -2 are no limit.
    let num_predict = options.i64("num_predict")?;
    params.max_tokens = num_predict.and_then(|n| usize::try_from(n).ok());
    params.stop = stop_texts(&options, "stop")?;
    Ok(params)
}

/// `"json"`, or a schema.
pub(super) fn form(fields: &Fields<'_>) -> Result<Option<Grammar>, ApiError> {
    match fields.get("format") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(Grammar::JsonObject)),
        Some(schema @ Value::Object(_)) => Ok(Some(Grammar::JsonSchema(schema.clone()))),
        Some(other) => Err(wrong("format", "\"json\" or a JSON schema", other)),
    }
}

/// Whether `keep_alive` is no time: a number of seconds, or one with its unit.
pub(super) fn keeps_nothing(fields: &Fields<'_>) -> Result<bool, ApiError> {
    let Some(value) = fields.get("keep_alive") else {
        return Ok(false);
    };
    let number = match value {
        Value::String(text) => text.trim_end_matches(char::is_alphabetic).parse().ok(),
        _ => value.as_f64(),
    };
    let number: Option<f64> = number;
    let wrong = || {
        wrong(
            &fields.path("keep_alive"),
            "seconds, or a text such as \"5m\"",
            value,
        )
    };
    Ok(number.ok_or_else(wrong)? == 0.0)
}

/// Templates of models that think read this variable.
fn variables(fields: &Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let think = fields.get("think").filter(|think| think.is_boolean());
    let variable = think.map(|think| ("enable_thinking".to_owned(), think.clone()));
    Ok(variable.into_iter().collect())
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
        variables: variables(fields)?,
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
            "arguments": function.get("arguments").cloned().unwrap_or_else(|| json!({})),
        }}));
    }
    if !calls.is_empty() {
        message.fields.insert("tool_calls".to_owned(), calls.into());
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

/// A prompt is a conversation of one message, as Ollama has it unless `raw` says otherwise.
pub(super) fn generate(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    fields.refuse(&[
        ("suffix", "the model only goes on"),
        (
            "template",
            "the model's own template is used; `raw` uses none",
        ),
        (
            "context",
            "send the conversation to /api/chat: what was computed of it is kept",
        ),
    ])?;
    let system = fields.text("system")?.filter(|text| !text.is_empty());
    let prompt = fields.need("prompt", fields.text("prompt")?)?;
    let messages = system.map(Message::system).into_iter();
    let message = Message::user(prompt).with_images(images(fields)?);
    Ok(Conversation {
        messages: messages.chain([message]).collect(),
        form: form(fields)?,
        variables: variables(fields)?,
        ..Conversation::default()
    })
}
