//! Conversations for templates that know no functions.

use std::fmt::Write;

use millrace_text::Message;
use serde_json::{Value, json};

use super::Tools;

/// Explanation of the functions, for a model without functions in its template.
fn explanation(tools: &Tools) -> String {
    let mut text = String::from("You may call these functions:\n<tools>\n");
    for tool in &tools.list {
        let _ = writeln!(text, "{}", tool.for_template());
    }
    text += "</tools>\nTo call one, answer with a JSON object between tags, as here:\n<tool_call>\n\
             {\"name\": \"a function's name\", \"arguments\": {\"an argument\": \"its value\"}}\n</tool_call>";
    text
}

/// Messages for a template that knows no functions: the explanation goes into the system message, calls and results
/// become text.
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
                    Some(user) if is_result(user) => {
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
                let mut message_of_text = Message::assistant(text);
                if let Some(thought) = message.fields.get("reasoning_content") {
                    let field = ("reasoning_content".to_owned(), thought.clone());
                    message_of_text.fields.extend([field]);
                }
                plain.push(message_of_text);
            }
            // Many templates require user and model to alternate.
            ("user", Some(result)) if is_result(result) => {
                if !message.content.is_empty() {
                    result.content = format!("{}\n{}", result.content, message.content);
                }
                result.images.extend(message.images.clone());
            }
            _ => plain.push(message.clone()),
        }
    }
    plain
}

/// Whether the message consists of results of calls only.
fn is_result(message: &Message) -> bool {
    message.role == "user" && message.content.ends_with("</tool_response>")
}
