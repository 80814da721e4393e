//! The messages of gpt-oss: each has a header with its channel, and optionally its recipient.

use super::preview::CallPreview;
use super::reader::{AnswerPart, Names, overlap};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const END: &str = "<|end|>";
const CONSTRAIN: &str = "<|constrain|>";

/// The control tokens of messages.
pub(super) const MARKS: [&str; 5] = [START, CHANNEL, MESSAGE, END, CONSTRAIN];

/// The marks that end a message.
pub(super) const ENDS: [&str; 2] = [END, START];

/// The kind of a message.
#[derive(Clone, Debug, PartialEq)]
enum MessageKind {
    Answer,
    Thought,
    /// A call of this function.
    Call(String),
}

/// Reads messages while they are generated.
#[derive(Clone, Debug)]
pub(super) struct HarmonyReader {
    held: String,
    /// Kind of the message under way, once its header is complete.
    kind: Option<MessageKind>,
    /// Preview of a call under way.
    preview: Option<CallPreview>,
    /// The answer has a form, and nothing follows it.
    has_form: bool,
    /// The message under way is the last.
    is_last: bool,
}

impl HarmonyReader {
    pub(super) fn new() -> HarmonyReader {
        HarmonyReader {
            held: String::new(),
            kind: None,
            preview: None,
            has_form: false,
            is_last: false,
        }
    }

    /// Makes a reader for answers with a form, whose texts may look like the end of a message.
    pub(super) fn before_form(self) -> HarmonyReader {
        HarmonyReader {
            has_form: true,
            ..self
        }
    }

    pub(super) fn push(&mut self, text: &str, names: &Names, out: &mut Vec<AnswerPart>) {
        self.held.push_str(text);
        while self.step(names, out) {}
    }

    fn step(&mut self, names: &Names, out: &mut Vec<AnswerPart>) -> bool {
        let Some(kind) = &self.kind else {
            return self.header(names);
        };
        if self.is_last {
            let text = std::mem::take(&mut self.held);
            self.tell(text, out);
            return false;
        }
        let end = ENDS
            .iter()
            .filter_map(|end| Some((self.held.find(end)?, *end)))
            .min_by_key(|(at, _)| *at);
        let n_body = end.map_or_else(|| self.n_safe(), |(at, _)| at);
        if let MessageKind::Call(name) = kind {
            CallPreview::show(&mut self.preview, name, &self.held[..n_body], out);
        }
        match (end, kind) {
            (Some((at, end)), _) => {
                let body: String = self.held.drain(..at).collect();
                self.tell(body, out);
                if end == END {
                    self.held.drain(..END.len());
                }
                self.kind = None;
                true
            }
            (None, MessageKind::Call(_)) => false,
            (None, _) => {
                let text: String = self.held.drain(..n_body).collect();
                self.tell(text, out);
                false
            }
        }
    }

    /// Number of bytes of the held text that cannot belong to the end of a message.
    fn n_safe(&self) -> usize {
        let kept = ENDS.iter().map(|end| overlap(&self.held, end)).max();
        self.held.len() - kept.unwrap_or(0)
    }

    /// Reads a header, if there is one: a text without one is an answer.
    fn header(&mut self, names: &Names) -> bool {
        let begun = self.held.trim_start();
        let marks = [START, CHANNEL, "to=", MESSAGE];
        if !marks.iter().any(|mark| begun.starts_with(mark)) {
            if marks.iter().any(|mark| mark.starts_with(begun)) {
                return false;
            }
            self.kind = Some(MessageKind::Answer);
            return true;
        }
        let Some(at) = self.held.find(MESSAGE) else {
            return false;
        };
        let header = &self.held[..at];
        let recipient = header.split("to=").nth(1).unwrap_or_default();
        let is_end = |c: char| c.is_whitespace() || c == '<';
        let recipient = recipient.split(is_end).next().unwrap_or_default();
        let called = recipient
            .strip_prefix("functions.")
            .filter(|name| names.has(name));
        let channel = header.split(CHANNEL).nth(1).unwrap_or_default();
        self.kind = Some(match called {
            Some(name) => MessageKind::Call(name.to_owned()),
            None if channel.trim_start().starts_with("analysis") => MessageKind::Thought,
            None => MessageKind::Answer,
        });
        self.is_last = self.has_form && channel.trim_start().starts_with("final");
        self.held.drain(..at + MESSAGE.len());
        true
    }

    fn tell(&mut self, text: String, out: &mut Vec<AnswerPart>) {
        if text.is_empty() {
            return;
        }
        match &self.kind {
            Some(MessageKind::Thought) => out.push(AnswerPart::Thought(text)),
            Some(MessageKind::Call(name)) => {
                if !CallPreview::end(&mut self.preview, name, &text, out) {
                    CallPreview::give_up(&mut self.preview, out);
                    out.push(AnswerPart::Text(text));
                }
            }
            Some(MessageKind::Answer) | None => out.push(AnswerPart::Text(text)),
        }
    }

    /// Ends the answer; an open call ends with it.
    pub(super) fn finish(&mut self, out: &mut Vec<AnswerPart>) {
        let text = std::mem::take(&mut self.held);
        if self.kind.is_none() && text.trim().is_empty() {
            return;
        }
        match &self.kind {
            Some(MessageKind::Call(name)) => {
                if !CallPreview::end(&mut self.preview, name, &text, out) && !text.is_empty() {
                    CallPreview::cut(&mut self.preview, text, out);
                }
            }
            _ => self.tell(text, out),
        }
    }
}
