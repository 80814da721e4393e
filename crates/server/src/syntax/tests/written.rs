//! Calls as a row writes them.

use serde_json::Value;

use crate::syntax::calls::{Arguments, CallSyntax, Tags};
use crate::syntax::lark::BLANKS;

fn filled(text: &str) -> String {
    let values = ["3", "a1B2c3D4e", "number"];
    let blanks = BLANKS.iter().zip(values);
    blanks.fold(text.to_owned(), |text, ((blank, _), value)| {
        text.replace(blank, value)
    })
}

fn gemma(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(gemma).collect::<Vec<_>>().join(",")
        ),
        other => other.to_string(),
    }
}

fn elements(mark: &str, value: &Value) -> String {
    let element = |(name, value): (&str, &Value)| {
        format!("{mark}<{name}>{}{mark}</{name}>", elements(mark, value))
    };
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| element((name.as_str(), value)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| element(("item", item))).collect(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Arguments in the syntax of a row.
fn arguments(row: &CallSyntax, value: &Value) -> String {
    let members = || value.as_object().unwrap().iter();
    let spaced = |value: &Value| match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    };
    match &row.arguments {
        Arguments::Tagged(Tags {
            key,
            value,
            json,
            end,
            ..
        }) => members()
            .map(|(name, argument)| match argument {
                Value::String(text) => filled(&format!("{key}{name}{value}{text}{end}")),
                other => filled(&format!("{key}{name}{json}{}{end}", spaced(other))),
            })
            .collect(),
        Arguments::Python => {
            let one = |(name, argument): (&String, &Value)| match argument {
                Value::Bool(true) => format!("{name}=True"),
                other => format!("{name}={}", spaced(other)),
            };
            members().map(one).collect::<Vec<_>>().join(", ")
        }
        Arguments::Gemma => {
            let one = |(name, argument): (&String, &Value)| format!("{name}:{}", gemma(argument));
            members().map(one).collect::<Vec<_>>().join(",")
        }
        Arguments::Elements(mark) => elements(mark, value),
        Arguments::Json(_) | Arguments::Harmony | Arguments::Functionary => {
            let one =
                |(name, argument): (&String, &Value)| format!("\"{name}\": {}", spaced(argument));
            format!("{{{}}}", members().map(one).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Calls in the syntax of a row.
pub(super) fn written(row: &CallSyntax, calls: &[(&str, Value)]) -> String {
    if row.is_harmony() {
        let (name, value) = &calls[0];
        let arguments = arguments(row, value);
        return format!(
            "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"
        );
    }
    let call = |(name, value): &(&str, Value)| {
        let [before, middle, after] = [row.before, row.middle, row.after].map(filled);
        format!("{before}{name}{middle}{}{after}", arguments(row, value))
    };
    if row.has_recipients {
        let message = |one: &(&str, Value)| {
            format!(
                " to={}<|message|>{}{}{}",
                one.0,
                row.open,
                call(one),
                row.close
            )
        };
        let messages: Vec<String> = calls.iter().map(message).collect();
        return messages.join("<|eom|><|start|>assistant");
    }
    let calls: Vec<String> = calls.iter().map(call).collect();
    format!("{}{}{}", row.open, calls.join(row.between), row.close)
}
