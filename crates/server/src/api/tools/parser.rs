//! Takes calls out of an answer while it is written.

use std::sync::Arc;

use serde_json::Value;

use super::Syntax;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AnswerPart {
    Text(String),
    /// A complete call.
    Call {
        name: String,
        arguments: Value,
    },
}

/// Separates text and calls. What may become part of a call is held back; what turns out not to be one is
/// text after all.
#[derive(Clone, Debug)]
pub(crate) struct CallParser {
    syntax: Syntax,
    /// Of functions that may be called: what names another is an answer, such as JSON of some form.
    names: Arc<[String]>,
    held: String,
    /// Within a call, or for Llama within what may be one.
    is_inside: bool,
    /// Something that is not white space was told or held.
    has_begun: bool,
    n_calls: usize,
}

impl CallParser {
    pub(crate) fn new(syntax: Syntax, names: Arc<[String]>) -> CallParser {
        CallParser {
            syntax,
            names,
            held: String::new(),
            is_inside: false,
            has_begun: false,
            n_calls: 0,
        }
    }

    /// Calls found so far.
    pub(crate) fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Takes more of the answer.
    pub(crate) fn push(&mut self, text: &str) -> Vec<AnswerPart> {
        self.held.push_str(text);
        match self.syntax {
            Syntax::Llama => self.llama(),
            Syntax::Hermes => self.hermes(),
        }
    }

    fn llama(&mut self) -> Vec<AnswerPart> {
        if !self.has_begun {
            let begun = self.held.trim_start();
            if begun.is_empty() {
                return Vec::new();
            }
            self.has_begun = true;
            self.is_inside = begun.starts_with('{');
        }
        if self.is_inside {
            return Vec::new();
        }
        vec![AnswerPart::Text(std::mem::take(&mut self.held))]
    }

    fn hermes(&mut self) -> Vec<AnswerPart> {
        let mut out = Vec::new();
        loop {
            if self.is_inside {
                let Some(end) = self.held.find(CLOSE) else {
                    return out;
                };
                let inner: String = self.held.drain(..end + CLOSE.len()).collect();
                self.is_inside = false;
                match self.call(&inner[OPEN.len()..end]) {
                    Some(call) => out.push(call),
                    None => out.push(AnswerPart::Text(inner)),
                }
            } else if let Some(start) = self.held.find(OPEN) {
                let before: String = self.held.drain(..start).collect();
                // White space between calls belongs to their writing.
                if !before.trim().is_empty() {
                    out.push(AnswerPart::Text(before));
                }
                self.is_inside = true;
            } else {
                let n_safe = self.held.len() - overlap(&self.held, OPEN);
                let safe = &self.held[..n_safe];
                // It may be that between calls.
                if !safe.trim().is_empty() || (self.n_calls == 0 && !safe.is_empty()) {
                    out.push(AnswerPart::Text(self.held.drain(..n_safe).collect()));
                }
                return out;
            }
        }
    }

    fn call(&mut self, json: &str) -> Option<AnswerPart> {
        let mut value: Value = serde_json::from_str(json.trim()).ok()?;
        let name = value.get("name")?.as_str()?.to_owned();
        if !self.names.contains(&name) {
            return None;
        }
        let object = value.as_object_mut()?;
        let keys = ["arguments", "parameters"];
        let arguments = keys.iter().find_map(|key| object.remove(*key))?;
        self.n_calls += 1;
        Some(AnswerPart::Call { name, arguments })
    }

    /// The answer has ended. A call that is not complete is text.
    pub(crate) fn finish(&mut self) -> Vec<AnswerPart> {
        let held = std::mem::take(&mut self.held);
        if self.syntax == Syntax::Llama
            && self.is_inside
            && let Some(call) = self.call(&held)
        {
            return vec![call];
        }
        let is_space = held.trim().is_empty() && self.n_calls > 0;
        if held.is_empty() || is_space {
            return Vec::new();
        }
        vec![AnswerPart::Text(held)]
    }
}

/// Bytes of the longest end of `text` that is a proper beginning of `mark`, which is ASCII.
fn overlap(text: &str, mark: &str) -> usize {
    let longest = text.len().min(mark.len() - 1);
    let ends = |n: &usize| text.ends_with(&mark[..*n]);
    (1..=longest).rev().find(ends).unwrap_or(0)
}
