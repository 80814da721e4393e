//! Answers that consist of messages, some of which are calls.

use super::calls::CallSyntax;
use super::functionary::FunctionaryReader;
use super::harmony::HarmonyReader;
use super::reader::{AnswerPart, Names};

/// Reads messages of a model family while they are generated.
#[derive(Clone, Debug)]
pub(super) enum MessageReader {
    Harmony(HarmonyReader),
    Functionary(FunctionaryReader),
}

impl MessageReader {
    /// The reader for a call syntax, if its calls are separate messages.
    pub(super) fn of(syntax: &CallSyntax) -> Option<MessageReader> {
        if syntax.is_harmony() {
            return Some(MessageReader::Harmony(HarmonyReader::new()));
        }
        let is_it = syntax.is_functionary();
        is_it.then(|| MessageReader::Functionary(FunctionaryReader::new()))
    }

    /// Makes a reader for answers with a form, whose texts may look like the end of a message.
    pub(super) fn before_form(self) -> MessageReader {
        match self {
            MessageReader::Harmony(reader) => MessageReader::Harmony(reader.before_form()),
            MessageReader::Functionary(reader) => MessageReader::Functionary(reader.before_form()),
        }
    }

    pub(super) fn push(&mut self, text: &str, names: &Names, out: &mut Vec<AnswerPart>) {
        match self {
            MessageReader::Harmony(reader) => reader.push(text, names, out),
            MessageReader::Functionary(reader) => reader.push(text, names, out),
        }
    }

    /// Ends the answer.
    pub(super) fn finish(&mut self, out: &mut Vec<AnswerPart>) {
        match self {
            MessageReader::Harmony(reader) => reader.finish(out),
            MessageReader::Functionary(reader) => reader.finish(out),
        }
    }
}
