//! Functions a model may call: how calls are written, enforced and read.
//!
//! Two ways of writing are known. Llama 3 answers with a JSON object and nothing else; Hermes and Qwen put each call
//! between `<tool_call>` and `</tool_call>`, amid text. Models whose template shows functions in the one
//! or the other way are spoken to by their template; to all others the functions are explained in the
//! system message, in the second way. Either way a grammar holds the model to the names and schemas.

mod parser;

pub(crate) use parser::{CallParser, Parsed};

use std::fmt::Write;

use millrace_text::{Message, Tokenizer};
use serde_json::{Value, json};

use super::error::ApiError;
use crate::grammar::{Grammar, compact};

/// Calls in one answer at most.
const MAX_CALLS: usize = 8;

/// A function the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// A JSON schema of the arguments, an object's.
    pub(crate) parameters: Value,
}

impl Tool {
    /// Checks the name, which becomes part of a grammar.
    pub(crate) fn new(
        path: &str,
        name: &str,
        description: Option<&str>,
        parameters: Option<&Value>,
    ) -> Result<Tool, ApiError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            let message = "a name has 1 to 64 letters, digits, `_`, `-` or `.`";
            return Err(ApiError::field(path, message));
        }
        let empty = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Ok(Tool {
            name: name.to_owned(),
            description: description.unwrap_or_default().to_owned(),
            parameters: parameters.cloned().unwrap_or(empty),
        })
    }

    /// As chat templates expect it.
    pub(crate) fn for_template(&self) -> Value {
        json!({"type": "function", "function": {
            "name": self.name, "description": self.description, "parameters": self.parameters,
        }})
    }
}

/// Whether functions are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// As the model sees fit.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// The functions of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    pub(crate) list: Vec<Tool>,
    pub(crate) choice: ToolChoice,
    /// Several calls in one answer.
    pub(crate) parallel: bool,
}

impl Tools {
    /// Whether the model hears of them and may call.
    pub(crate) fn are_offered(&self) -> bool {
        !self.list.is_empty() && self.choice != ToolChoice::None
    }

    /// Refuses a choice of a function that is not there.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match &self.choice {
            ToolChoice::Named(name) if !self.list.iter().any(|tool| tool.name == *name) => {
                let message = format!("there is no function `{name}` in tools");
                Err(ApiError::field("tool_choice", message))
            }
            ToolChoice::Required if self.list.is_empty() => Err(ApiError::field(
                "tool_choice",
                "a call is required, but tools is empty",
            )),
            _ => Ok(()),
        }
    }
}

/// How a model writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// `{"name": "f", "parameters": {…}}`, and nothing else.
    Llama,
    /// `<tool_call>`, `{"name": "f", "arguments": {…}}`, `</tool_call>`, a line each, amid text.
    Hermes,
}

impl Syntax {
    /// What a model that knows functions by its template was trained to write, by its vocabulary. `None` for ways
    /// of writing that are not known here.
    pub(crate) fn of_vocabulary(tokenizer: &Tokenizer) -> Option<Syntax> {
        if tokenizer.id_of("<tool_call>").is_some() {
            Some(Syntax::Hermes)
        } else if tokenizer.id_of("<|python_tag|>").is_some() {
            Some(Syntax::Llama)
        } else {
            None
        }
    }

    /// What answers with these tools may look like.
    pub(crate) fn grammar(self, tools: &Tools) -> Grammar {
        let named = |tool: &&Tool| match &tools.choice {
            ToolChoice::Named(name) => tool.name == *name,
            _ => true,
        };
        let offered: Vec<&Tool> = tools.list.iter().filter(named).collect();
        let must = matches!(tools.choice, ToolChoice::Required | ToolChoice::Named(_));
        let mut source = String::new();
        let most = if tools.parallel { MAX_CALLS } else { 1 };
        // Writing to a string does not fail.
        let _ = match (self, must) {
            (Syntax::Llama, true) => writeln!(source, "start: call"),
            (Syntax::Llama, false) => {
                writeln!(source, "start: call | TEXT\nTEXT: /[^{{](.|\\n)*/")
            }
            (Syntax::Hermes, true) => {
                let one = r#""<tool_call>\n" call "\n</tool_call>""#;
                let others = match tools.parallel {
                    true => format!(r#"("\n" {one}){{0,{}}}"#, MAX_CALLS - 1),
                    false => String::new(),
                };
                writeln!(source, "start: {one} {others}")
            }
            (Syntax::Hermes, false) => writeln!(
                source,
                "start: (head call \"\\n</tool_call>\"){{0,{}}} tail\n\
                 head[lazy]: /(.|\\n)*<tool_call>\\n/\ntail: /(.|\\n)*/",
                most
            ),
        };
        let names: Vec<String> = (0..offered.len()).map(|i| format!("call_{i}")).collect();
        let _ = writeln!(source, "call: {}", names.join(" | "));
        let key = match self {
            Syntax::Llama => "parameters",
            Syntax::Hermes => "arguments",
        };
        for (name, tool) in names.iter().zip(offered) {
            let parameters = compact(tool.parameters.clone());
            let function = &tool.name;
            let _ = writeln!(
                source,
                r#"{name}: "{{\"name\": \"{function}\", \"{key}\": " %json {parameters} "}}""#
            );
        }
        Grammar::Calls(source)
    }
}

/// What a model without functions in its template is told of them.
pub(crate) fn explanation(tools: &Tools) -> String {
    let mut text = String::from("You may call these functions:\n<tools>\n");
    for tool in &tools.list {
        let _ = writeln!(text, "{}", tool.for_template());
    }
    text += "</tools>\nTo call one, answer with a JSON object between tags, as here:\n<tool_call>\n\
             {\"name\": \"a function's name\", \"arguments\": {\"an argument\": \"its value\"}}\n</tool_call>";
    text
}

/// Messages for a template that knows no functions: the explanation goes to the system message, calls and
/// results become text.
pub(crate) fn as_plain_messages(messages: &[Message], tools: &Tools) -> Vec<Message> {
    let mut plain: Vec<Message> = Vec::new();
    if tools.are_offered() {
        plain.push(Message::system(explanation(tools)));
    }
    for message in messages {
        let is_first = plain.len() == 1 && tools.are_offered();
        match (message.role.as_str(), plain.last_mut()) {
            ("system", Some(system)) if is_first => {
                system.content = format!("{}\n\n{}", message.content, system.content);
            }
            ("tool", last) => {
                let result = format!("<tool_response>\n{}\n</tool_response>", message.content);
                match last {
                    Some(user)
                        if user.role == "user" && user.content.ends_with("</tool_response>") =>
                    {
                        user.content = format!("{}\n{result}", user.content);
                    }
                    _ => plain.push(Message::user(result)),
                }
            }
            ("assistant", _) => {
                let mut text = message.content.clone();
                let calls = message.fields.get("tool_calls").and_then(Value::as_array);
                for call in calls.into_iter().flatten() {
                    let function = &call["function"];
                    let call =
                        json!({"name": function["name"], "arguments": function["arguments"]});
                    if !text.is_empty() {
                        text.push('\n');
                    }
                    let _ = write!(text, "<tool_call>\n{call}\n</tool_call>");
                }
                plain.push(Message::assistant(text));
            }
            _ => plain.push(message.clone()),
        }
    }
    plain
}

#[cfg(test)]
mod tests;
