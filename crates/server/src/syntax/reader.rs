//! Separates calls from an answer while it is generated.

use std::sync::Arc;

use serde_json::Value;

use super::around::{Around, Wrapper};
use super::calls::CallSyntax;
use super::fit::{self, loosely};
use super::harmony::HarmonyReader;
use super::json::CallFit;
use super::kinds::is_text;
use super::messages::MessageReader;
use super::preview::CallPreview;
use super::recipients::RecipientReader;
use super::tagged::TaggedProgress;

/// Part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AnswerPart {
    Text(String),
    /// Part of a message that is not meant for the user.
    Thought(String),
    /// A call begins.
    CallBegin {
        name: String,
    },
    /// More of the arguments of the open call, as JSON. Incomplete without the rest.
    CallArguments(String),
    /// The open call is complete; these are its whole arguments.
    Call {
        name: String,
        arguments: Value,
    },
    /// The open call turned out not to be one. Its text follows.
    CallBroken,
    /// The answer ended within the open call. This is the text of it.
    CallCut(String),
}

/// The functions that an answer may call: a call of another name is text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<[(String, Value)]>);

impl Names {
    /// Names with the schemas of their arguments.
    pub(crate) fn new(functions: impl IntoIterator<Item = (String, Value)>) -> Names {
        Names(functions.into_iter().collect())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Whether a text is the beginning of a name.
    pub(super) fn has_beginning(&self, text: &str) -> bool {
        self.0.iter().any(|(known, _)| known.starts_with(text))
    }

    /// The schema of a function's arguments; `null` for an unknown function.
    pub(super) fn schema(&self, name: &str) -> &Value {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or(&Value::Null, |(_, schema)| schema)
    }

    /// Whether an argument is always a string. `None` if no schema says.
    pub(super) fn is_text(&self, name: &str, argument: &str) -> Option<bool> {
        let schema = self.schema(name);
        let argument = schema["properties"].get(argument)?;
        Some(is_text(argument, schema, 0))
    }
}

/// Length from which a call counts as long, in bytes.
const LONG_CALL_BYTES: usize = 4096;

/// State of a reader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ReaderPlace {
    /// Only white space was read.
    Begin,
    /// Within text.
    Text,
    /// At a point where a call may begin, or the calls end. `n_calls` were read.
    Calls { n_calls: usize },
}

/// Separates text and calls. Text that may become part of a call is held back; if it does not, it is reported as
/// text.
#[derive(Clone, Debug)]
pub(crate) struct AnswerReader {
    syntax: Option<CallSyntax>,
    messages: Option<MessageReader>,
    around: Option<Around>,
    names: Names,
    /// Either the whole answer is calls, or it has none.
    is_whole: bool,
    held: String,
    place: ReaderPlace,
    /// The call under way, once its name is known.
    preview: Option<CallPreview>,
    /// Progress in reading its arguments.
    progress: TaggedProgress,
    n_calls: usize,
    /// No text came since the last call.
    is_behind_call: bool,
}

impl AnswerReader {
    /// A reader for answers with an optional call syntax, and with optional texts around them.
    pub(crate) fn new(
        syntax: Option<CallSyntax>,
        wrapper: Option<(&'static str, &'static str)>,
        names: Names,
    ) -> AnswerReader {
        AnswerReader {
            messages: syntax.as_ref().and_then(MessageReader::of),
            around: match syntax {
                Some(syntax) if syntax.has_recipients => {
                    Some(Around::Recipients(RecipientReader::default()))
                }
                _ => wrapper.map(Wrapper::new).map(Around::Marks),
            },
            is_whole: syntax.as_ref().is_some_and(|syntax| syntax.is_bare),
            syntax,
            names,
            held: String::new(),
            place: ReaderPlace::Begin,
            preview: None,
            progress: TaggedProgress::default(),
            n_calls: 0,
            is_behind_call: false,
        }
    }

    /// A reader for answers in channels without calls.
    pub(crate) fn of_channels() -> AnswerReader {
        AnswerReader {
            messages: Some(MessageReader::Harmony(HarmonyReader::new())),
            ..AnswerReader::new(None, None, Names::default())
        }
    }

    /// A reader for answers of messages to recipients, without calls.
    pub(crate) fn of_recipients() -> AnswerReader {
        AnswerReader {
            around: Some(Around::Recipients(RecipientReader::default())),
            ..AnswerReader::new(None, None, Names::default())
        }
    }

    /// The same for answers that are either calls or a form. In the texts of a form, lookalikes of a call or of the
    /// end of a message are plain text.
    pub(crate) fn beside_form(mut self) -> AnswerReader {
        self.is_whole = true;
        self.messages = self.messages.map(MessageReader::before_form);
        if let Some(Around::Recipients(reader)) = &mut self.around {
            reader.before_form();
        }
        self
    }

    /// Number of calls found so far.
    pub(crate) fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Takes more of the answer.
    pub(crate) fn push(&mut self, text: &str) -> Vec<AnswerPart> {
        let Some(around) = &mut self.around else {
            return self.read(text);
        };
        let pieces = around.push(text);
        let mut out = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            // Text across a removed mark does not become the beginning of a call.
            let is_space = self.is_behind_call && self.held.trim().is_empty();
            if i > 0 && self.place == ReaderPlace::Text && !is_space {
                self.tell(self.held.len(), &mut out);
            }
            out.extend(self.read(piece));
        }
        out
    }

    fn read(&mut self, text: &str) -> Vec<AnswerPart> {
        let mut out = Vec::new();
        if let Some(messages) = &mut self.messages {
            messages.push(text, &self.names, &mut out);
            self.count(&out);
            return out;
        }
        self.held.push_str(text);
        if let Some(preview) = self.preview.as_mut().filter(|preview| preview.is_open()) {
            preview.follow(&self.held, &mut out);
            if preview.is_open() {
                return out;
            }
        }
        // Other long arguments are checked only where they may end, not with every word.
        let is_amid =
            matches!(self.place, ReaderPlace::Calls { .. }) && self.held.len() > LONG_CALL_BYTES;
        if is_amid && !text.contains(['}', ')', ']', '>']) {
            return out;
        }
        match self.syntax {
            None => self.tell(self.held.len(), &mut out),
            Some(syntax) => while self.step(&syntax, &mut out) {},
        }
        out
    }

    fn count(&mut self, parts: &[AnswerPart]) {
        let is_call = |part: &&AnswerPart| matches!(part, AnswerPart::Call { .. });
        self.n_calls += parts.iter().filter(is_call).count();
    }

    fn tell(&mut self, n_bytes: usize, out: &mut Vec<AnswerPart>) {
        if n_bytes > 0 {
            self.is_behind_call = false;
            out.push(AnswerPart::Text(self.held.drain(..n_bytes).collect()));
        }
    }

    /// Reads on; true if there may be more to read.
    fn step(&mut self, syntax: &CallSyntax, out: &mut Vec<AnswerPart>) -> bool {
        match self.place {
            ReaderPlace::Begin => self.begin(syntax),
            ReaderPlace::Text => self.text(syntax, out),
            ReaderPlace::Calls { n_calls } => {
                let has_ended = self.calls(syntax, n_calls, out);
                if has_ended {
                    self.progress = TaggedProgress::default();
                }
                has_ended
            }
        }
    }

    fn begin(&mut self, syntax: &CallSyntax) -> bool {
        let begun = self.held.trim_start();
        if begun.is_empty() {
            return false;
        }
        let mark = match syntax.is_bare {
            true => &syntax.trigger()[..syntax.trigger_char().len_utf8()],
            false => syntax.trigger(),
        };
        self.place = match self.is_whole {
            true if begun.starts_with(mark) => ReaderPlace::Calls { n_calls: 0 },
            true if mark.starts_with(begun) => return false,
            _ => ReaderPlace::Text,
        };
        true
    }

    /// Reports text up to the start of calls.
    fn text(&mut self, syntax: &CallSyntax, out: &mut Vec<AnswerPart>) -> bool {
        let trigger = syntax.trigger();
        let found = self.held.find(trigger).filter(|_| !self.is_whole);
        let (n_text, is_found) = match found {
            Some(at) => (at, true),
            None if self.is_whole => (self.held.len(), false),
            None => (self.held.len() - overlap(&self.held, trigger), false),
        };
        // White space between calls is part of the syntax.
        let is_space = self.held[..n_text].trim().is_empty();
        match (is_space && self.is_behind_call, is_found) {
            (true, true) => drop(self.held.drain(..n_text)),
            (true, false) => return false,
            (false, _) => self.tell(n_text, out),
        }
        if is_found {
            self.place = ReaderPlace::Calls { n_calls: 0 };
        }
        is_found
    }

    /// Reads a call, or the end of calls. Text before the first call is held until that is complete.
    fn calls(&mut self, syntax: &CallSyntax, n_calls: usize, out: &mut Vec<AnswerPart>) -> bool {
        let opened = match n_calls {
            0 => loosely(&self.held, syntax.open),
            _ => loosely(&self.held, syntax.between),
        };
        let begin = match opened {
            CallFit::Full((), at) => Some(at),
            CallFit::Partial | CallFit::Not => None,
        };
        let read = opened.then(|(), at| {
            // Without a closing mark, the next call begins as in grammars, without white space within its mark.
            let is_behind = n_calls > 0 && syntax.close.is_empty() && !syntax.is_bare;
            match is_behind {
                true => fit::exactly(self.held[at..].trim_start(), syntax.again())
                    .then(|(), _| CallFit::Full((), at)),
                false => CallFit::Full((), at),
            }
        });
        let read = read.then(|(), at| {
            let text = &self.held[at..];
            let call = fit::call(syntax, &self.names, text, &mut self.progress);
            call.then(|call, n_bytes| CallFit::Full(call, at + n_bytes))
        });
        let n_read = match &read {
            CallFit::Full(_, n_bytes) => *n_bytes,
            CallFit::Partial | CallFit::Not => self.held.len(),
        };
        // Before any decision, so that the reports do not depend on how the text was cut.
        if let Some(at) = begin {
            let held = (&self.held[..n_read], at, &self.progress);
            fit::preview(syntax, &self.names, held, &mut self.preview, out);
        }
        let close = match n_calls {
            0 => CallFit::Not,
            _ => loosely(&self.held, syntax.close),
        };
        match (read, close) {
            (CallFit::Full((name, arguments), n_bytes), _) => {
                self.held.drain(..n_bytes);
                CallPreview::complete(self.preview.take(), name, arguments, out);
                self.n_calls += 1;
                self.is_behind_call = true;
                self.place = ReaderPlace::Calls {
                    n_calls: n_calls + 1,
                };
                true
            }
            (_, CallFit::Full((), n_bytes)) if !syntax.close.is_empty() => {
                self.held.drain(..n_bytes);
                self.place = ReaderPlace::Text;
                true
            }
            (CallFit::Partial, _) | (_, CallFit::Partial) => false,
            _ => {
                self.break_off(syntax, n_calls, out);
                true
            }
        }
    }

    /// Abandons the held text as a call.
    fn break_off(&mut self, syntax: &CallSyntax, n_calls: usize, out: &mut Vec<AnswerPart>) {
        if self.preview.take().is_some() {
            out.push(AnswerPart::CallBroken);
        }
        // The trigger without a call is text, and calls may still follow it.
        if n_calls == 0 {
            let trigger = self.held.find(syntax.trigger());
            let n_bytes = trigger.map_or(0, |at| at + syntax.trigger().len());
            self.tell(n_bytes, out);
        }
        self.place = ReaderPlace::Text;
    }

    /// Ends the answer. An incomplete call is text.
    pub(crate) fn finish(&mut self) -> Vec<AnswerPart> {
        let rest = self.around.as_mut().map(Around::finish);
        let mut out = self.read(&rest.unwrap_or_default());
        if let Some(messages) = &mut self.messages {
            let n_before = out.len();
            messages.finish(&mut out);
            let last = out[n_before..].to_vec();
            self.count(&last);
            return out;
        }
        let is_space = self.held.trim().is_empty() && self.is_behind_call;
        match is_space {
            true => self.held.clear(),
            false if self.preview.take().is_some() => {
                out.push(AnswerPart::CallCut(std::mem::take(&mut self.held)));
            }
            false => self.tell(self.held.len(), &mut out),
        }
        out
    }
}

/// Length of the longest end of `text` that is a proper beginning of `mark`.
pub(super) fn overlap(text: &str, mark: &str) -> usize {
    let longest = text.len().min(mark.len().saturating_sub(1));
    let ends = |n: &usize| mark.is_char_boundary(*n) && text.ends_with(&mark[..*n]);
    (1..=longest).rev().find(ends).unwrap_or(0)
}
