//! Writes calls in a syntax.

use std::fmt::Write;

use serde_json::Value;

use super::calls::{Arguments, CallSyntax, GEMMA_QUOTE, Tags};
use super::tagged::CDATA;

impl CallSyntax {
    /// Calls of functions with arguments, as a model writes them in an answer. `own` replaces each text of the syntax
    /// itself. `None` for syntaxes in which calls are separate messages.
    pub(crate) fn written(
        &self,
        calls: &[(&str, &Value)],
        own: &dyn Fn(&str) -> String,
    ) -> Option<String> {
        if self.is_harmony() || self.is_functionary() || self.has_recipients {
            return None;
        }
        let mut out = own(self.open);
        for (i, (name, arguments)) in calls.iter().enumerate() {
            if i > 0 {
                out += &own(self.between);
            }
            // If there are several calls, identifiers and numbers link results to their calls.
            let filled = |text: &str| {
                own(&text
                    .replace("⟨n⟩", &i.to_string())
                    .replace("⟨id⟩", &format!("call{i:05}")))
            };
            out += &filled(self.before);
            out += name;
            out += &filled(self.middle);
            out += &self.arguments_of(arguments, own);
            out += &filled(self.after);
        }
        out += &own(self.close);
        Some(out)
    }

    fn arguments_of(&self, arguments: &Value, own: &dyn Fn(&str) -> String) -> String {
        let members = || arguments.as_object().into_iter().flatten();
        match &self.arguments {
            Arguments::Tagged(tags) => members()
                .map(|(name, value)| tagged(tags, name, value, own))
                .collect(),
            Arguments::Python => {
                let one =
                    |(name, value): (&String, &Value)| format!("{name}={}", spaced(value, &PYTHON));
                members().map(one).collect::<Vec<_>>().join(", ")
            }
            Arguments::Gemma => {
                let one =
                    |(name, value): (&String, &Value)| format!("{name}:{}", gemma(value, own));
                members().map(one).collect::<Vec<_>>().join(",")
            }
            Arguments::Elements(mark) => elements(mark, arguments, own),
            Arguments::Json(_) | Arguments::Harmony | Arguments::Functionary => {
                spaced(arguments, &JSON)
            }
        }
    }
}

/// The words for false, true and null.
const JSON: [&str; 3] = ["false", "true", "null"];
const PYTHON: [&str; 3] = ["False", "True", "None"];

/// JSON with white space as Python writes it.
fn spaced(value: &Value, words: &[&str; 3]) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    match value {
        Value::Bool(is_true) => words[usize::from(*is_true)].to_owned(),
        Value::Null => words[2].to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| spaced(item, words)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let one = |(name, value): (&String, &Value)| {
                format!("{}: {}", quoted(name), spaced(value, words))
            };
            let members: Vec<String> = members.iter().map(one).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

fn tagged(tags: &Tags, name: &str, value: &Value, own: &dyn Fn(&str) -> String) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let (mark, text) = match value {
        // Texts that contain the closing tag or the CDATA mark.
        Value::String(text)
            if tags.has_cdata
                && [CDATA[0], tags.end.trim()]
                    .iter()
                    .any(|mark| text.contains(mark)) =>
        {
            (tags.value, CDATA.join(text.as_str()))
        }
        Value::String(text) => (tags.value, text.clone()),
        other => (tags.json, spaced(other, &JSON)),
    };
    let mark = mark.replace("⟨w⟩", kind);
    let mut out = own(tags.key);
    // Writing to a string does not fail.
    let _ = write!(out, "{name}{}{text}{}", own(&mark), own(tags.end));
    out
}

fn gemma(value: &Value, own: &dyn Fn(&str) -> String) -> String {
    match value {
        Value::String(text) => {
            let quote = own(GEMMA_QUOTE);
            format!("{quote}{text}{quote}")
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| gemma(item, own)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let one = |(name, value): (&String, &Value)| format!("{name}:{}", gemma(value, own));
            let members: Vec<String> = members.iter().map(one).collect();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}

fn elements(mark: &str, value: &Value, own: &dyn Fn(&str) -> String) -> String {
    let element = |name: &str, value: &Value| {
        let (own_mark, inner) = (own(mark), elements(mark, value, own));
        format!("{own_mark}<{name}>{inner}{own_mark}</{name}>")
    };
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| element(name, value))
            .collect(),
        Value::Array(items) => items.iter().map(|item| element("item", item)).collect(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
