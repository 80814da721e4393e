//! Calls of functions in answers: complete ones, and ones reported in parts.

use serde_json::Value;

use super::tools::CallKind;
use super::unique;

/// The function that a call is for, and how the call is reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallHead {
    pub(crate) id: String,
    /// The name as the model writes it.
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
    /// The input of the function: its arguments as JSON, or a custom tool's text.
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

/// Position of a call that is being reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallPlace {
    /// Its index among the calls of the answer.
    pub(crate) index: usize,
    /// Whether the call is for a custom tool.
    pub(crate) is_custom: bool,
}

/// The calls of one answer, as they arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallsOfAnswer {
    n_begun: usize,
    /// Position of the call that began last.
    pub(crate) place: CallPlace,
    open: Option<OpenCall>,
}

/// A call that has begun but is not complete.
#[derive(Clone, Debug)]
struct OpenCall {
    head: CallHead,
    /// For a custom tool: JSON of the arguments that is not reported yet.
    held: String,
    /// Whether the start of the text within the JSON was passed.
    is_amid: bool,
    /// The part of a custom tool's text that was reported.
    told: String,
}

impl CallsOfAnswer {
    /// Whether a call has begun and is neither complete nor abandoned.
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

    /// Takes more of the arguments' JSON, and returns the part to report: for a custom tool, its addition to the
    /// text.
    pub(crate) fn more(&mut self, json: &str) -> String {
        match &mut self.open {
            Some(call) if call.head.kind == CallKind::Custom => call.more(json),
            _ => json.to_owned(),
        }
    }

    /// Completes the call. Returns the part that is not reported yet, and the call.
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

    /// Abandons the open call.
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
        // Complete escapes always parse as text. If they did not, the end of the call would report it.
        let text: String = serde_json::from_str(&format!("\"{written}\"")).unwrap_or_default();
        self.told.push_str(&text);
        text
    }
}

/// Number of bytes of a JSON text up to its closing quote, without an incomplete escape.
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
        // Arguments of another form are reported at the end.
        let other = json!({"note": 1, "input": "x"});
        let mut calls = CallsOfAnswer::default();
        calls.begin("patch".to_owned(), &kinds);
        assert_eq!(calls.more(&other.to_string()), "");
        let (rest, _) = calls.complete(other).unwrap();
        assert_eq!(rest, "x");
    }
}
