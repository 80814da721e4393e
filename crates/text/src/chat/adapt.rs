//! Conversations in the form that a template takes.
//!
//! Some templates read contents only as lists of parts, some only as strings, and some refuse or drop a
//! system message. Without an error the text is then missing from the prompt. A probe renders a short
//! conversation and looks for its text.

use super::jinja::{STEPS, Template};
use super::strftime::Moment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The token that templates of models with images write in place of an image.
pub const IMAGE_TOKEN: &str = "<start_of_image>";

/// Whether a template's habits are known already.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Adapt {
    /// A probe must find them.
    Probe,
    Known(Habits),
}

/// How a template reads contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Contents {
    /// Both forms, or no probe gave a result.
    AsGiven,
    /// Strings only.
    Strings,
    /// Lists of parts only.
    Parts,
}

/// The form in which a template takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Habits {
    pub(super) contents: Contents,
    /// Whether the text of system messages reaches the prompt.
    pub(super) takes_system: bool,
}

/// Texts that no template writes by itself. They survive trimming and changes of white space.
const USER: &str = "zqprobeuser";
const SYSTEM: &str = "zqprobesystem";

/// Steps of one probe. Templates that take more are left alone.
const PROBE_STEPS: u64 = STEPS / 10;

/// Determines a template's habits, with the variables of a rendering but for its messages.
pub(super) fn probe(template: &Template, variables: &Map<String, Value>, now: Moment) -> Habits {
    let render = |messages: Value| {
        let mut variables = variables.clone();
        variables.insert("messages".to_owned(), messages);
        template.render(&variables, now, PROBE_STEPS).ok()
    };
    let part = |text: &str| json!([{"type": "text", "text": text}]);
    let has = |text: &Option<String>, probe: &str| text.as_ref().is_some_and(|t| t.contains(probe));
    let as_string = render(json!([{"role": "user", "content": USER}]));
    let as_parts = render(json!([{"role": "user", "content": part(USER)}]));
    // A template that prints the list itself does not read parts.
    let is_printed = has(&as_parts, &format!("'text': '{USER}"))
        || has(&as_parts, &format!("\"text\": \"{USER}"))
        || has(&as_parts, &format!("\"text\":\"{USER}"));
    let contents = match (has(&as_string, USER), has(&as_parts, USER) && !is_printed) {
        (true, false) => Contents::Strings,
        (false, true) => Contents::Parts,
        (true, true) => Contents::AsGiven,
        (false, false) => {
            return Habits {
                contents: Contents::AsGiven,
                takes_system: true,
            };
        }
    };
    let content = |text: &str| match contents {
        Contents::Parts => part(text),
        _ => text.into(),
    };
    let with_system = render(json!([
        {"role": "system", "content": content(SYSTEM)},
        {"role": "user", "content": content(USER)},
    ]));
    Habits {
        contents,
        takes_system: has(&with_system, SYSTEM),
    }
}

impl Habits {
    /// Brings messages into the form that the template takes.
    pub(super) fn adapt(self, messages: &mut Value) {
        let Value::Array(list) = messages else {
            return;
        };
        if !self.takes_system {
            *list = without_system(std::mem::take(list));
        }
        for message in list {
            let Some(content) = message.get_mut("content") else {
                continue;
            };
            match (self.contents, &content) {
                (Contents::Parts, Value::String(text)) => {
                    *content = json!([{"type": "text", "text": text}]);
                }
                (Contents::Strings, Value::Array(parts)) => *content = joined(parts).into(),
                _ => {}
            }
        }
    }
}

/// The text of parts, with the image token at the places of images.
fn joined(parts: &[Value]) -> String {
    let of = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("image") => IMAGE_TOKEN.to_owned(),
        _ => text_of(part),
    };
    parts.iter().map(of).collect()
}

/// The text of a content or of a part.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        other => other.get("text").map(text_of).unwrap_or_default(),
    }
}

/// The messages with each system message before the text of the user's next one.
fn without_system(messages: Vec<Value>) -> Vec<Value> {
    let mut out = Vec::with_capacity(messages.len());
    let mut pending: Vec<String> = Vec::new();
    for mut message in messages {
        let is_from = |role: &str| message.get("role").and_then(Value::as_str) == Some(role);
        if is_from("system") {
            let text = message.get("content").map(text_of).unwrap_or_default();
            let text = text.trim();
            pending.extend((!text.is_empty()).then(|| text.to_owned()));
            continue;
        }
        if is_from("user") && !pending.is_empty() {
            let system = std::mem::take(&mut pending).join("\n\n");
            if let Some(content) = message.get_mut("content") {
                put_before(content, &system);
            }
        }
        out.push(message);
    }
    if !pending.is_empty() {
        out.push(json!({"role": "user", "content": pending.join("\n\n")}));
    }
    out
}

/// Puts a text before the text of a content: an image stays before it.
fn put_before(content: &mut Value, system: &str) {
    let joined = |text: &str| match text.is_empty() {
        true => system.to_owned(),
        false => format!("{system}\n\n{text}"),
    };
    match content {
        Value::Array(parts) => {
            let text = parts.iter_mut().find_map(|part| part.get_mut("text"));
            match text {
                Some(text) => *text = joined(&text_of(text)).into(),
                None => parts.push(json!({"type": "text", "text": system})),
            }
        }
        other => *other = joined(&text_of(other)).into(),
    }
}

#[cfg(test)]
mod tests;
