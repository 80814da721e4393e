//! The turns of a conversation, arranged so that a template takes them.
//!
//! Clients send conversations that their own service accepts: instructions within a conversation, images in results
//! of calls, calls that were cut. Templates are stricter, each in its own way. Content that no template accepts is
//! moved at once. Content that only some refuse is moved if the template at hand refuses it.

use millrace_text::Message;
use serde_json::{Value, json};

/// Texts of several parts, joined with line breaks unless white space already separates them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(String);

impl Texts {
    /// Adds a part.
    pub(crate) fn add(&mut self, text: &str) {
        let runs_on =
            !self.0.ends_with(char::is_whitespace) && !text.starts_with(char::is_whitespace);
        if runs_on && !self.0.is_empty() && !text.is_empty() {
            self.0.push('\n');
        }
        self.0 += text;
    }

    /// The whole text.
    pub(crate) fn joined(self) -> String {
        self.0
    }
}

/// The arguments of an earlier call, which templates expect as an object. None, and an empty text, mean a function
/// without arguments. A text that is not an object stays a text: the answer was cut, or the model wrote something
/// else.
pub(crate) fn arguments(given: Option<&Value>) -> Value {
    let text = match given {
        None | Some(Value::Null) => return json!({}),
        Some(object @ Value::Object(_)) => return object.clone(),
        Some(Value::String(text)) if text.trim().is_empty() => return json!({}),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    match serde_json::from_str(&text) {
        Ok(object @ Value::Object(_)) => object,
        Ok(Value::Null) => json!({}),
        // JSON encoded twice.
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(object @ Value::Object(_)) => object,
            _ => text.into(),
        },
        _ => text.into(),
    }
}

/// Moves images of results to the user, after the last of the results: templates have no place for them in a result.
pub(crate) fn images_after_results(messages: Vec<Message>) -> Vec<Message> {
    let has_images = |message: &Message| message.role == "tool" && !message.images.is_empty();
    if !messages.iter().any(has_images) {
        return messages;
    }
    let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut images = Vec::new();
    for mut message in messages {
        if message.role == "tool" {
            images.append(&mut message.images);
        } else if !images.is_empty() {
            match message.role == "user" {
                true => {
                    images.append(&mut message.images);
                    message.images = std::mem::take(&mut images);
                }
                false => out.push(Message::user("").with_images(std::mem::take(&mut images))),
            }
        }
        out.push(message);
    }
    if !images.is_empty() {
        out.push(Message::user("").with_images(images));
    }
    out
}

/// The texts of system messages that are not the first message: some templates drop them silently.
pub(crate) fn later_systems(messages: &[Message]) -> Vec<&str> {
    let later = messages.iter().skip(1);
    let later = later.filter(|message| message.role == "system");
    later.map(|message| message.content.trim()).collect()
}

/// Arrangements of a conversation for a template that does not accept it unchanged. Each is applied to the result of
/// the one before. If a template accepts no system message at all, [`ChatTemplate`](millrace_text::ChatTemplate)
/// itself puts the text into the user's.
pub(crate) const ARRANGEMENTS: [fn(Vec<Message>) -> Vec<Message>; 5] = [
    arguments_as_objects,
    short_ids,
    texts_as_thoughts,
    systems_first,
    arguments_as_texts,
];

/// The calls of a message.
fn calls_of(message: &mut Message) -> impl Iterator<Item = &mut Value> {
    let calls = message.fields.get_mut("tool_calls");
    calls.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Shortens identifiers of calls to nine letters and digits, as Mistral's templates require.
fn short_ids(mut messages: Vec<Message>) -> Vec<Message> {
    let short = |id: &Value| -> Value {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let text = id.as_str().unwrap_or_default();
        // FNV-1a. The kind of hash does not matter, as long as each identifier always gets the same distinct one.
        let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let digits = (0..9).map(|_| {
            let digit = DIGITS[(hash % 62) as usize];
            hash /= 62;
            char::from(digit)
        });
        digits.collect::<String>().into()
    };
    let is_short = |id: &Value| {
        let text = id.as_str().unwrap_or_default();
        text.len() == 9 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    for message in &mut messages {
        for call in calls_of(message) {
            if !is_short(&call["id"]) {
                call["id"] = short(&call["id"]);
            }
        }
        if let Some(id) = message
            .fields
            .get_mut("tool_call_id")
            .filter(|id| !is_short(id))
        {
            *id = short(id);
        }
    }
    messages
}

/// Moves the text before a call into the thought: gpt-oss's template has room for one of the two.
fn texts_as_thoughts(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        let has_calls = message.fields.contains_key("tool_calls");
        let text = message.content.clone();
        if let Some(Value::String(thought)) = message.fields.get_mut("reasoning_content")
            && has_calls
            && !text.is_empty()
        {
            *thought = format!("{thought}\n\n{text}");
            message.content.clear();
        }
    }
    messages
}

/// Turns the arguments of calls into text, for templates that concatenate them.
fn arguments_as_texts(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        for call in calls_of(message) {
            let arguments = &mut call["function"]["arguments"];
            if !arguments.is_string() {
                *arguments = arguments.to_string().into();
            }
        }
    }
    messages
}

/// Rewrites identifiers of calls as Kimi's models write them, and its templates show them: with the function's name,
/// and counted.
pub(crate) fn ids_with_names(mut messages: Vec<Message>) -> Vec<Message> {
    let mut named: Vec<(Value, Value)> = Vec::new();
    for message in &mut messages {
        for call in calls_of(message) {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            let id: Value = format!("functions.{name}:{}", named.len()).into();
            named.push((std::mem::replace(&mut call["id"], id.clone()), id));
        }
        if let Some(id) = message.fields.get_mut("tool_call_id")
            && let Some((_, with_name)) = named.iter().rev().find(|(old, _)| old == id)
        {
            *id = with_name.clone();
        }
    }
    messages
}

/// Empties the arguments of calls if they are not an object.
fn arguments_as_objects(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        for call in calls_of(message) {
            let arguments = &mut call["function"]["arguments"];
            if !arguments.is_object() {
                *arguments = json!({});
            }
        }
    }
    messages
}

/// Merges system messages into one at the beginning, and puts the turns after it.
fn systems_first(messages: Vec<Message>) -> Vec<Message> {
    let is_system = |message: &Message| message.role == "system";
    let (systems, others): (Vec<Message>, Vec<Message>) = messages.into_iter().partition(is_system);
    let system = paragraphs(&systems).map(Message::system);
    system.into_iter().chain(in_turns(others)).collect()
}

fn paragraphs(messages: &[Message]) -> Option<String> {
    let texts = messages.iter().map(|message| message.content.trim());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Merges consecutive messages of one role; calls and results stay as they are.
fn in_turns(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        match out.last_mut() {
            Some(last)
                if last.role == message.role
                    && ["user", "assistant"].contains(&last.role.as_str())
                    && last.fields.is_empty()
                    && message.fields.is_empty() =>
            {
                let texts = [last.content.as_str(), &message.content];
                let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
                last.content = texts.join("\n\n");
                last.images.append(&mut message.images);
            }
            _ => out.push(message),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        for (parts, text) in [
            (&["one.", "two."][..], "one.\ntwo."),
            (&["What is 7 ", "plus 5?"], "What is 7 plus 5?"),
            (&["one\n", "two"], "one\ntwo"),
            (&["one", "\ntwo"], "one\ntwo"),
            (&["", "one", "", "two"], "one\ntwo"),
            (&[], ""),
        ] {
            let mut texts = Texts::default();
            parts.iter().for_each(|part| texts.add(part));
            assert_eq!(texts.joined(), text);
        }
    }

    #[test]
    fn arguments_are_objects_or_texts() {
        for (given, arguments_of) in [
            (json!(null), json!({})),
            (json!(""), json!({})),
            (json!(" \n"), json!({})),
            (json!("null"), json!({})),
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1})),
            (json!("\"{\\\"a\\\": 1}\""), json!({"a": 1})),
            (json!("{\"value\": "), json!("{\"value\": ")),
            (json!("not json"), json!("not json")),
            (json!("42"), json!("42")),
            (json!(42), json!("42")),
            (json!([1, 2]), json!("[1,2]")),
            (json!(true), json!("true")),
        ] {
            assert_eq!(arguments(Some(&given)), arguments_of, "{given}");
        }
        assert_eq!(arguments(None), json!({}));
    }

    fn roles<'m>(messages: &'m [Message]) -> Vec<(&'m str, &'m str, usize)> {
        let role = |message: &'m Message| {
            let (role, content) = (message.role.as_str(), message.content.as_str());
            (role, content, message.images.len())
        };
        messages.iter().map(role).collect()
    }

    #[test]
    fn images_of_results_are_the_users() {
        let image = || ["x".to_owned()];
        let result = |text: &str| Message::new("tool", text).with_images(image());
        let messages = vec![
            Message::user("look"),
            Message::assistant(""),
            result("a"),
            result("b"),
            Message::assistant("seen"),
            result("c"),
            Message::user("so?").with_images(image()),
            result("d"),
        ];
        let found = images_after_results(messages);
        assert_eq!(
            roles(&found),
            [
                ("user", "look", 0),
                ("assistant", "", 0),
                ("tool", "a", 0),
                ("tool", "b", 0),
                ("user", "", 2),
                ("assistant", "seen", 0),
                ("tool", "c", 0),
                ("user", "so?", 2),
                ("tool", "d", 0),
                ("user", "", 1),
            ]
        );
    }

    fn with_call(id: &str, content: &str) -> Vec<Message> {
        let mut answer = Message::assistant(content);
        let call = json!([{"id": id, "function": {"name": "f", "arguments": {"a": 1}}}]);
        answer.fields.insert("tool_calls".to_owned(), call);
        answer
            .fields
            .insert("reasoning_content".to_owned(), "hm".into());
        let mut result = Message::new("tool", "done");
        result.fields.insert("tool_call_id".to_owned(), id.into());
        vec![answer, result]
    }

    #[test]
    fn calls_are_as_templates_want_them() {
        let ids = |messages: &[Message]| {
            let id = messages[0].fields["tool_calls"][0]["id"].clone();
            assert_eq!(id, messages[1].fields["tool_call_id"]);
            id.as_str().unwrap().to_owned()
        };
        let short = ids(&short_ids(with_call("call_0123456789abcdef", "")));
        assert_eq!(
            (short.len(), short_ids(with_call("abcdefgh1", ""))),
            (9, with_call("abcdefgh1", ""))
        );
        assert_ne!(
            short,
            ids(&short_ids(with_call("call_0123456789abcdee", "")))
        );
        assert_eq!(
            ids(&ids_with_names(with_call("call_1", ""))),
            "functions.f:0"
        );
        let said = texts_as_thoughts(with_call("c", "I look."));
        assert_eq!(
            (&*said[0].content, &said[0].fields["reasoning_content"]),
            ("", &json!("hm\n\nI look."))
        );
        let texts = arguments_as_texts(with_call("c", ""));
        assert_eq!(
            texts[0].fields["tool_calls"][0]["function"]["arguments"],
            "{\"a\":1}"
        );
    }

    #[test]
    fn systems_come_first() {
        let messages = || {
            vec![
                Message::system("one"),
                Message::user("hi"),
                Message::system("two"),
                Message::user("go on"),
                Message::assistant("yes"),
            ]
        };
        assert_eq!(later_systems(&messages()), ["two"]);
        let first = systems_first(messages());
        assert_eq!(
            roles(&first),
            [
                ("system", "one\n\ntwo", 0),
                ("user", "hi\n\ngo on", 0),
                ("assistant", "yes", 0)
            ]
        );
    }
}
