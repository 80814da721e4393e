//! Output forms beyond OpenAI's `response_format`, by the names of vLLM and of llama.cpp's server.

use serde_json::Value;

use super::error::ApiError;
use super::fields::{Fields, wrong};
use super::shape::OutputForm;
use crate::grammar::{Grammar, gbnf};

/// Reads `structured_outputs` with one of `json`, `regex`, `choice`, `grammar` (llguidance's Lark, or GBNF). Also
/// reads vLLM's older `guided_json` and so on, and `json_schema` and `grammar` of llama.cpp's server.
pub(crate) fn structured_outputs(fields: &Fields<'_>) -> Result<Option<OutputForm>, ApiError> {
    if let Some(outputs) = fields.object("structured_outputs")? {
        let form = one_of(&outputs, ["json", "regex", "choice", "grammar"])?;
        let message = "expected one of json, regex, choice, grammar";
        return match form {
            Some(form) => Ok(Some(form)),
            None => Err(ApiError::field("structured_outputs", message)),
        };
    }
    let guided = [
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
    ];
    match one_of(fields, guided)? {
        Some(form) => Ok(Some(form)),
        None => one_of(fields, ["json_schema", "", "", "grammar"]),
    }
}

/// The first of schema, expression, choices and grammar that is present.
fn one_of(fields: &Fields<'_>, names: [&str; 4]) -> Result<Option<OutputForm>, ApiError> {
    let [json, regex, choice, grammar] = names;
    let form = |name: &str, grammar| {
        let path = fields.path(name);
        Ok(Some(OutputForm { grammar, path }))
    };
    if let Some(schema) = fields.get(json) {
        // Some clients send the schema as a string.
        let parsed = schema
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        let schema = parsed.as_ref().unwrap_or(schema);
        if !schema.is_object() && !schema.is_boolean() {
            return Err(wrong(&fields.path(json), "a JSON schema", schema));
        }
        return Ok(Some(OutputForm::of_schema(schema, fields.path(json))?));
    }
    if let Some(expression) = fields.text(regex)? {
        return form(regex, Grammar::Regex(expression.to_owned()));
    }
    if let Some(choices) = fields.list(choice)? {
        // JSON strings are valid Lark strings.
        let texts: Vec<String> = choices.iter().map(ToString::to_string).collect();
        if choices.is_empty() || !choices.iter().all(Value::is_string) {
            return Err(ApiError::field(
                &fields.path(choice),
                "expected a list of strings",
            ));
        }
        let source = format!("start: {}", texts.join(" | "));
        return form(choice, Grammar::Lark(source));
    }
    let Some(source) = fields
        .text(grammar)?
        .filter(|source| !source.trim().is_empty())
    else {
        return Ok(None);
    };
    let lark = match gbnf::is_gbnf(source) {
        true => {
            gbnf::to_lark(source).map_err(|error| ApiError::field(&fields.path(grammar), error))?
        }
        false => source.to_owned(),
    };
    form(grammar, Grammar::Lark(lark))
}
