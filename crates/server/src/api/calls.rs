//! Calls of functions in answers: as a whole, and while they are told.

use serde_json::Value;

use super::tools::CallKind;
use super::unique;

/// Which function a call is of, and how it is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallHead {
    pub(crate) id: String,
    /// As the model writes it.
    pub(crate) name: String,
    pub(crate) kind: CallKind,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FunctionCall {
    pub(crate) head: CallHead,
    pub(crate) arguments: Value,
}

impl FunctionCall {
    /// What the function is called with: its arguments as JSON, or a custom tool's text.
    pub(crate) fn input(&self) -> String {
        match self.head.kind {
            CallKind::Custom => custom_input(&self.arguments).to_owned(),
            _ => self.arguments.to_string(),
        }
    }
}

fn custom_input(arguments: &Value) -> &str {
    arguments["input"].as_str().unwrap_or_default()
}

/// A call that is being told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallPlace {
    /// Its place among the calls of the answer.
    pub(crate) index: usize,
    /// Whether a custom tool is called.
    pub(crate) is_custom: bool,
}

/// The calls of one answer, as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallsOfAnswer {
    n_begun: usize,
    /// Of the call that began last.
    pub(crate) place: CallPlace,
    open: Option<OpenCall>,
}

/// A call that has begun and is not complete.
#[derive(Clone, Debug)]
struct OpenCall {
    head: CallHead,
    /// Of a custom tool's arguments: what is not told yet, as JSON.
    held: String,
    /// Whether what is held stands within the text.
    is_amid: bool,
    /// What is told of a custom tool's text.
    told: String,
}

impl CallsOfAnswer {
    /// Whether a call has begun and is neither complete nor given up.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self, name: String, kinds: &[(String, CallKind)]) -> CallHead {
        let kind = kinds.iter().find(|(known, _)| *known == name);
        let head = CallHead {
            id: unique("call_"),
            kind: kind.map(|(_, kind)| kind.clone()).unwrap_or_default(),
            name,
        };
        self.place = CallPlace {
            index: self.n_begun,
            is_custom: head.kind == CallKind::Custom,
        };
        self.n_begun += 1;
        self.open = Some(OpenCall {
            head: head.clone(),
            held: String::new(),
            is_amid: false,
            told: String::new(),
        });
        head
    }

    /// More of the arguments' JSON, as it is told: of a custom tool what it adds to the text.
    pub(crate) fn more(&mut self, json: &str) -> String {
        match &mut self.open {
            Some(call) if call.head.kind == CallKind::Custom => call.more(json),
            _ => json.to_owned(),
        }
    }

    /// The call is complete. Gives what is not told of it, and the call.
    pub(crate) fn complete(&mut self, arguments: Value) -> Option<(String, FunctionCall)> {
        let call = self.open.take()?;
        let rest = match call.head.kind {
            CallKind::Custom => {
                let rest = custom_input(&arguments).strip_prefix(&call.told);
                rest.unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        let head = call.head;
        Some((rest, FunctionCall { head, arguments }))
    }

    /// The call that began is none.
    pub(crate) fn give_up(&mut self) {
        self.open = None;
    }
}

impl OpenCall {
    fn more(&mut self, json: &str) -> String {
        const BEFORE: &str = "{\"input\":\"";
        self.held.push_str(json);
        if !self.is_amid {
            if !self.held.starts_with(BEFORE) {
                return String::new();
            }
            self.held.drain(..BEFORE.len());
            self.is_amid = true;
        }
        let n_bytes = whole_bytes(&self.held);
        let written: String = self.held.drain(..n_bytes).collect();
        // What is whole is always a text: if it were not, the end of the call tells it.
        let text: String = serde_json::from_str(&format!("\"{written}\"")).unwrap_or_default();
        self.told.push_str(&text);
        text
    }
}

/// Bytes of a JSON text up to its quote, without an escape that is not complete.
fn whole_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let n_bytes = match (byte, bytes.get(at + 1)) {
            (b'"', _) => return at,
            (b'\\', None) => return at,
            (b'\\', Some(b'u')) => 6,
            (b'\\', Some(_)) => 2,
            _ => 1,
        };
        if at + n_bytes > bytes.len() {
            return at;
        }
        at += n_bytes;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_custom_tools_text_is_told_without_its_json() {
        let kinds = [("patch".to_owned(), CallKind::Custom)];
        let arguments = json!({"input": "*** \"é\" \n\u{1}\\ end"});
        let text = arguments.to_string();
        for n_chars in 1..text.len() {
            let mut calls = CallsOfAnswer::default();
            calls.begin("patch".to_owned(), &kinds);
            assert!(calls.place.is_custom);
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars.chunks(n_chars);
            let told: String = pieces
                .map(|piece| calls.more(&piece.iter().collect::<String>()))
                .collect();
            let (rest, call) = calls.complete(arguments.clone()).unwrap();
            assert_eq!((told, rest), (call.input(), String::new()), "{n_chars}");
        }
        // Arguments of another form are told at the end.
        let other = json!({"note": 1, "input": "x"});
        let mut calls = CallsOfAnswer::default();
        calls.begin("patch".to_owned(), &kinds);
        assert_eq!(calls.more(&other.to_string()), "");
        let (rest, _) = calls.complete(other).unwrap();
        assert_eq!(rest, "x");
    }
}
