//! Calls in earlier answers, for templates that do not write all of them.

use millrace_text::{Message, RenderedPrompt};
use serde_json::{Map, Value};

use crate::syntax::{CallSyntax, Marks};

/// Texts that stand for control tokens until the conversation is rendered. Control tokens spelled out in a
/// conversation stay text. These stand-ins are the server's own, so no text of the conversation may contain one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandIns(Vec<(String, String)>);

impl StandIns {
    /// Stand-ins for the control tokens of a call syntax. They occur neither in the conversation nor in other values
    /// from the request.
    fn new(marks: &Marks, messages: &[Message], others: &[&Value]) -> StandIns {
        let said = |text: &str| {
            messages.iter().any(|message| is_said(message, text))
                || others.iter().any(|value| is_in(value, text))
        };
        // Whatever prefixes a conversation contains, there is always another.
        let free = (0_usize..).map(|n| format!("zqmark{n}q"));
        let mut free = free.filter(|prefix| !said(prefix));
        let prefix = free.next().unwrap_or_default();
        let texts = marks.texts().enumerate();
        StandIns(
            texts
                .map(|(i, text)| (format!("{prefix}{i}q"), text.to_owned()))
                .collect(),
        )
    }

    /// The text with stand-ins in place of control tokens.
    fn of(&self, text: &str) -> String {
        let replace =
            |text: String, (stand_in, mark): &(String, String)| text.replace(mark, stand_in);
        self.0.iter().fold(text.to_owned(), replace)
    }

    /// A prompt with the control tokens in place of the stand-ins.
    pub(crate) fn resolved(&self, prompt: RenderedPrompt) -> RenderedPrompt {
        let replace = |prompt: RenderedPrompt, (stand_in, mark): &(String, String)| {
            prompt.replaced(stand_in, &|_| mark.clone()).0
        };
        self.0.iter().fold(prompt, replace)
    }
}

fn is_said(message: &Message, text: &str) -> bool {
    [&message.role, &message.content]
        .iter()
        .any(|said| said.contains(text))
        || is_within(&message.fields, text)
}

fn is_in(value: &Value, text: &str) -> bool {
    match value {
        Value::String(said) => said.contains(text),
        Value::Array(items) => items.iter().any(|item| is_in(item, text)),
        Value::Object(members) => is_within(members, text),
        _ => false,
    }
}

fn is_within(members: &Map<String, Value>, text: &str) -> bool {
    let mut members = members.iter();
    members.any(|(name, value)| name.contains(text) || is_in(value, text))
}

/// The conversation with the calls of earlier answers written into their texts, as the model writes them. Some
/// templates need this, since calls are part of the text there. `others` are the remaining values in the prompt.
pub(crate) fn calls_as_texts(
    mut messages: Vec<Message>,
    syntax: &CallSyntax,
    marks: &Marks,
    others: &[&Value],
) -> (Vec<Message>, StandIns) {
    let stand_ins = StandIns::new(marks, &messages, others);
    for message in &mut messages {
        let Some(Value::Array(calls)) = message.fields.get("tool_calls") else {
            continue;
        };
        let calls = calls.iter().filter_map(|call| {
            let function = &call["function"];
            Some((function["name"].as_str()?, &function["arguments"]))
        });
        let calls: Vec<(&str, &Value)> = calls.collect();
        let Some(written) = syntax.written(&calls, &|text| stand_ins.of(text)) else {
            continue;
        };
        message.content.push_str(&written);
        message.fields.remove("tool_calls");
    }
    (messages, stand_ins)
}

/// Splits answers with several calls into answers with one call, each before its results: some templates write only
/// one call of an answer.
pub(crate) fn calls_by_themselves(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        let calls = match message.fields.get_mut("tool_calls") {
            Some(Value::Array(calls)) if calls.len() > 1 => std::mem::take(calls),
            _ => {
                out.push(message);
                continue;
            }
        };
        let mut results = Vec::new();
        while let Some(result) = messages.next_if(|next| next.role == "tool") {
            results.push(result);
        }
        for (i, call) in calls.into_iter().enumerate() {
            let id = call["id"].clone();
            let mut answer = match i {
                // Text and thoughts come before all calls.
                0 => std::mem::take(&mut message),
                _ => Message::assistant(""),
            };
            let list = Value::Array(vec![call]);
            answer.fields.insert("tool_calls".to_owned(), list);
            out.push(answer);
            let is_its = |result: &mut Message| result.fields.get("tool_call_id") == Some(&id);
            out.extend(results.extract_if(.., is_its));
        }
        out.append(&mut results);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(content: &str, calls: &[&str]) -> Message {
        let mut message = Message::assistant(content);
        let call = |id: &&str| json!({"id": id, "function": {"name": format!("f{id}"), "arguments": {"a": 1}}});
        let calls = calls.iter().map(call).collect();
        message.fields.insert("tool_calls".to_owned(), calls);
        message
    }

    fn result(id: &str) -> Message {
        let mut message = Message::new("tool", format!("of {id}"));
        message.fields.insert("tool_call_id".to_owned(), id.into());
        message
    }

    #[test]
    fn each_call_stands_before_its_results() {
        let messages = vec![
            Message::user("go"),
            answer("I look.", &["1", "2"]),
            result("2"),
            result("1"),
            result("3"),
            answer("", &["4"]),
            result("4"),
        ];
        let expected = vec![
            Message::user("go"),
            answer("I look.", &["1"]),
            result("1"),
            answer("", &["2"]),
            result("2"),
            result("3"),
            answer("", &["4"]),
            result("4"),
        ];
        assert_eq!(calls_by_themselves(messages), expected);
    }

    #[test]
    fn no_conversation_has_what_stands_for_a_control_token() {
        let tokenizer = &crate::api::tools::tests::demo().0;
        let all = 0..tokenizer.n_vocab() as u32;
        let mark = all.map(|id| (id, tokenizer.token_text(id)));
        let (_, mark) = mark
            .into_iter()
            .find(|(id, text)| tokenizer.is_special(*id) && text.len() > 3)
            .unwrap();
        let marks = Marks::of([mark], tokenizer);
        let messages = [
            Message::user("zqmark0q and zqmark1q0q"),
            answer(mark, &["zqmark2q"]),
        ];
        let tools = json!([{"description": "zqmark3q"}]);
        let stand_ins = StandIns::new(&marks, &messages, &[&tools]);
        assert_eq!(stand_ins.of(&format!("a{mark}b")), "azqmark4q0qb");
        let prompt = RenderedPrompt::from("zqmark0q azqmark4q0qb");
        assert_eq!(
            stand_ins.resolved(prompt).text(),
            format!("zqmark0q a{mark}b")
        );
    }
}
