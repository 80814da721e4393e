//! JSON that arrives in pieces, reported as far as it is certain.

use super::json::CallFit;

/// Maximum nesting of arrays and objects. `serde_json` parses no deeper ones.
const MAX_DEPTH: usize = 127;

/// The expected next element.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expectation {
    /// The top-level object.
    Object,
    Value,
    /// A value or the end of an array.
    FirstItem,
    Key,
    /// A key or the end of an object.
    FirstKey,
    Colon,
    /// A comma, or the end of the open array or object.
    Comma,
}

/// A token that has begun but not ended.
#[derive(Clone, Debug, PartialEq)]
enum JsonToken {
    /// A string, with its incomplete escape.
    Text { is_key: bool, escape: String },
    /// A number, `true`, `false` or `null`.
    Word(String),
}

/// An object that arrives in pieces. It is written in the form of `serde_json`: the output so far is always a
/// beginning of the complete object's text. The caller adds the last brace when the object is known to be good, so an
/// object that was cut never looks complete.
#[derive(Clone, Debug)]
pub(super) struct JsonText {
    expected: Expectation,
    token: Option<JsonToken>,
    /// For each open array or object, from the outside in: whether it is an object.
    open: Vec<bool>,
    is_open: bool,
}

/// Whether an incomplete JSON value may become a complete one.
pub(super) fn may_become_json(text: &str) -> bool {
    let mut reader = JsonText::new();
    let mut ignored = String::new();
    // As a member, since the reader expects an object.
    reader.push("{\"\":", &mut ignored);
    reader.push(text, &mut ignored);
    reader.is_open()
}

/// The text is not JSON.
struct NotJson;

impl JsonText {
    pub(super) fn new() -> JsonText {
        JsonText {
            expected: Expectation::Object,
            token: None,
            open: Vec::new(),
            is_open: true,
        }
    }

    /// Whether more of the object may come: it is neither complete nor invalid.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes more of the text and writes its content. Text after the object, or after a fault, is ignored.
    pub(super) fn push(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            if !self.is_open {
                return;
            }
            if self.take(c, out).is_err() {
                self.is_open = false;
            }
        }
    }

    fn take(&mut self, c: char, out: &mut String) -> Result<(), NotJson> {
        match self.token.take() {
            Some(JsonToken::Text { is_key, escape }) => self.text(is_key, escape, c, out),
            Some(JsonToken::Word(mut word)) if is_of_word(c) => {
                word.push(c);
                self.token = Some(JsonToken::Word(word));
                Ok(())
            }
            Some(JsonToken::Word(word)) => {
                let value: serde_json::Value = serde_json::from_str(&word).map_err(|_| NotJson)?;
                out.push_str(&value.to_string());
                self.expected = Expectation::Comma;
                self.between(c, out)
            }
            None => self.between(c, out),
        }
    }

    /// Handles a character outside of strings and words.
    fn between(&mut self, c: char, out: &mut String) -> Result<(), NotJson> {
        use Expectation::{Colon, Comma, FirstItem, FirstKey, Key, Object, Value};
        match (c, self.expected) {
            (' ' | '\n' | '\r' | '\t', _) => return Ok(()),
            ('{', Object | Value | FirstItem) => self.begin(true)?,
            ('[', Value | FirstItem) => self.begin(false)?,
            ('}', FirstKey | Comma) => return self.end(true, out),
            (']', FirstItem | Comma) => return self.end(false, out),
            (',', Comma) => {
                let is_object = self.open.last() == Some(&true);
                self.expected = if is_object { Key } else { Value };
            }
            (':', Colon) => self.expected = Value,
            ('"', Key | FirstKey | Value | FirstItem) => {
                let is_key = matches!(self.expected, Key | FirstKey);
                let escape = String::new();
                self.token = Some(JsonToken::Text { is_key, escape });
            }
            (c, Value | FirstItem) if is_of_word(c) => {
                self.token = Some(JsonToken::Word(c.into()));
                return Ok(());
            }
            _ => return Err(NotJson),
        }
        out.push(c);
        Ok(())
    }

    fn begin(&mut self, is_object: bool) -> Result<(), NotJson> {
        if self.open.len() == MAX_DEPTH {
            return Err(NotJson);
        }
        self.open.push(is_object);
        self.expected = match is_object {
            true => Expectation::FirstKey,
            false => Expectation::FirstItem,
        };
        Ok(())
    }

    fn end(&mut self, is_object: bool, out: &mut String) -> Result<(), NotJson> {
        if self.open.pop() != Some(is_object) {
            return Err(NotJson);
        }
        self.expected = Expectation::Comma;
        self.is_open = !self.open.is_empty();
        if self.is_open {
            out.push(if is_object { '}' } else { ']' });
        }
        Ok(())
    }

    /// Handles a character within a string.
    fn text(
        &mut self,
        is_key: bool,
        mut escape: String,
        c: char,
        out: &mut String,
    ) -> Result<(), NotJson> {
        match c {
            _ if !escape.is_empty() => {
                escape.push(c);
                if let CallFit::Full(meant, _) = unescaped(&escape) {
                    let written = serde_json::Value::from(meant).to_string();
                    out.push_str(&written[1..written.len() - 1]);
                    escape.clear();
                } else if unescaped(&escape) == CallFit::Not {
                    return Err(NotJson);
                }
            }
            '\\' => escape.push(c),
            '"' => {
                out.push(c);
                self.expected = match is_key {
                    true => Expectation::Colon,
                    false => Expectation::Comma,
                };
                return Ok(());
            }
            c if c < ' ' => return Err(NotJson),
            c => out.push(c),
        }
        self.token = Some(JsonToken::Text { is_key, escape });
        Ok(())
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+-.".contains(c)
}

/// The meaning of an escape: two characters, six, or twice six for a surrogate pair.
fn unescaped(escape: &str) -> CallFit<String> {
    let n_wanted = match escape.as_bytes() {
        [_] => return CallFit::Partial,
        [
            _,
            b'u',
            b'd' | b'D',
            b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B',
            ..,
        ] => 12,
        [_, b'u', ..] => 6,
        _ => 2,
    };
    if escape.len() < n_wanted {
        return CallFit::Partial;
    }
    match serde_json::from_str(&format!("\"{escape}\"")) {
        Ok(meant) => CallFit::Full(meant, escape.len()),
        Err(_) => CallFit::Not,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn written(text: &str, n_chars: usize) -> (String, bool) {
        let (mut json, mut out) = (JsonText::new(), String::new());
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(n_chars) {
            json.push(&piece.iter().collect::<String>(), &mut out);
        }
        (out, json.is_open())
    }

    #[test]
    fn what_is_certain_is_written() {
        for (text, certain, is_open) in [
            (
                "{ \"a\" : [ 1.0, -2e3 , true ] , \"b\":{}",
                "{\"a\":[1.0,-2000.0,true],\"b\":{}",
                true,
            ),
            ("{\"a\": 12", "{\"a\":", true),
            (
                "{\"a\": \"x\\n\\u0041\\ud83e\\udd99\\/",
                "{\"a\":\"x\\nA🦙/",
                true,
            ),
            ("{\"a\": \"x\\ud83e", "{\"a\":\"x", true),
            ("{\"a\": {}} more", "{\"a\":{}", false),
            ("{}", "{", false),
            ("{\"a\" 1}", "{\"a\"", false),
            ("{\"a\": truth}", "{\"a\":", false),
            ("{\"a\": 1e999}", "{\"a\":", false),
            ("{\"a\": \"\\ud83e\\u0041\"}", "{\"a\":\"", false),
            ("{\"a\": \"\\x\"}", "{\"a\":\"", false),
            ("{\"a\": \"\n\"}", "{\"a\":\"", false),
            ("{\"a\": [1}", "{\"a\":[1", false),
            ("{,", "{", false),
            ("{\"a\": 1, }", "{\"a\":1,", false),
            ("[1]", "", false),
        ] {
            for n_chars in [1, 2, 100] {
                assert_eq!(
                    written(text, n_chars),
                    (certain.to_owned(), is_open),
                    "{text}"
                );
            }
        }
        let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        for n in [126, 127, 200] {
            let is_read = serde_json::from_str::<Value>(&deep(n)).is_ok();
            let text = &deep(n)[..deep(n).len() - 1];
            assert_eq!(written(&deep(n), 7).0 == text, is_read, "{n}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|number| json!(number)),
            any::<String>().prop_map(Value::from),
        ];
        let inner = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        });
        prop::collection::vec((any::<String>(), inner), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    }

    #[test]
    fn any_beginning_of_an_object_writes_a_beginning_of_it() {
        let config = ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(200)
        };
        proptest!(config, |(value in values(), n_chars in 1..9_usize, cut in any::<prop::sample::Index>())| {
            let text = value.to_string();
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            // The last digit of a number may change in parsing.
            let expected = |given: &str| serde_json::from_str::<Value>(given).unwrap().to_string();
            for given in [&text, &pretty] {
                let (out, is_open) = written(given, n_chars);
                let expected = expected(given);
                prop_assert_eq!(&out, &expected[..expected.len() - 1]);
                prop_assert!(!is_open);
            }
            let chars: Vec<char> = pretty.chars().collect();
            let begun: String = chars[..cut.index(chars.len())].iter().collect();
            let (out, is_open) = written(&begun, n_chars);
            prop_assert!(expected(&pretty).starts_with(&out) && is_open, "{begun}: {out}");
        });
    }
}
