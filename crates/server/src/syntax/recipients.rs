//! The messages of Muse: each begins with its recipient, and an answer may have several.
//!
//! `to=self` is a thought, which [`thoughts`](super::thoughts) separates. `to=user` is the answer. Any other
//! recipient is a function that the message calls.

use super::calls::CallSyntax;
use super::grammar::{CallGrammar, CallRules, MAX_CALLS};
use super::lark::{Marks, quoted};
use super::reader::overlap;

const START: &str = "<|start|>";
const MESSAGE: &str = "<|message|>";
const END: &str = "<|eom|>";

/// The control tokens of messages.
pub(super) const MARKS: [&str; 3] = [START, MESSAGE, END];

/// Maximum length of the text before a message, in bytes.
const MAX_HEADER_BYTES: usize = 300;

/// State of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum MessagePlace {
    /// Before a message: a header may come.
    #[default]
    Begin,
    Header,
    Body,
    /// In the last message, which may contain any text.
    Last,
}

/// Removes headers and ends of messages from an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct RecipientReader {
    held: String,
    place: MessagePlace,
    has_form: bool,
}

impl RecipientReader {
    /// Prepares for answers with a form, whose texts may look like the end of a message.
    pub(super) fn before_form(&mut self) {
        self.has_form = true;
    }

    /// Takes more text. Returns text that certainly belongs to messages, as pieces between which something was
    /// removed.
    pub(super) fn push(&mut self, text: &str) -> Vec<String> {
        self.held.push_str(text);
        let mut out = vec![String::new()];
        while self.step(&mut out) {}
        out
    }

    fn step(&mut self, out: &mut Vec<String>) -> bool {
        match self.place {
            MessagePlace::Begin => self.begin(),
            MessagePlace::Header => {
                let Some(at) = self.held.find(MESSAGE) else {
                    let is_none = self.held.len() > MAX_HEADER_BYTES;
                    if is_none {
                        self.place = MessagePlace::Body;
                    }
                    return is_none;
                };
                let is_last = self.has_form && self.held[..at].trim_end().ends_with("to=user");
                self.held.drain(..at + MESSAGE.len());
                self.place = match is_last {
                    true => MessagePlace::Last,
                    false => MessagePlace::Body,
                };
                out.push(String::new());
                true
            }
            MessagePlace::Body => self.body(out),
            MessagePlace::Last => {
                tell(&self.held, out);
                self.held.clear();
                false
            }
        }
    }

    fn begin(&mut self) -> bool {
        let begun = self.held.trim_start();
        let marks = [START, "to="];
        if marks.iter().any(|mark| begun.starts_with(mark)) {
            self.place = MessagePlace::Header;
            return true;
        }
        if marks.iter().any(|mark| mark.starts_with(begun)) {
            return false;
        }
        self.place = MessagePlace::Body;
        true
    }

    fn body(&mut self, out: &mut Vec<String>) -> bool {
        let found = [END, START]
            .into_iter()
            .filter_map(|mark| Some((self.held.find(mark)?, mark)))
            .min_by_key(|(at, _)| *at);
        let Some((at, mark)) = found else {
            let kept = [END, START].map(|mark| overlap(&self.held, mark));
            let n_safe = self.held.len() - kept[0].max(kept[1]);
            tell(&self.held[..n_safe], out);
            self.held.drain(..n_safe);
            return false;
        };
        tell(&self.held[..at], out);
        out.push(String::new());
        if mark == END {
            self.held.drain(..at + END.len());
            self.place = MessagePlace::Begin;
        } else {
            self.held.drain(..at);
            self.place = MessagePlace::Header;
        }
        true
    }

    /// Ends the answer: the held text is not a mark.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

fn tell(text: &str, out: &mut [String]) {
    if let Some(last) = out.last_mut() {
        last.push_str(text);
    }
}

/// The rule for the text before a message.
fn header(recipient: &str, marks: &Marks) -> String {
    marks.rule(&format!(" to={recipient}{MESSAGE}"))
}

/// The rule for a message that another one follows.
fn message(recipient: &str, rules: &mut CallRules<'_>) -> String {
    let text = rules.text_up_to(END, &[START]);
    let again = rules.marks.rule(&format!("{START}assistant"));
    format!("{} {text} {again}", header(recipient, rules.marks))
}

impl CallSyntax {
    /// Rules for messages: optionally one of thoughts and one preamble, and then either calls, each in a separate
    /// message, or the answer.
    pub(super) fn recipients_start(
        &self,
        calls: &CallGrammar<'_>,
        has_form: bool,
        rules: &mut CallRules<'_>,
    ) {
        let (thought, preamble) = (message("self", rules), message("user", rules));
        let (open, close) = (rules.marks.rule(self.open), rules.marks.rule(self.close));
        let mut messages = Vec::new();
        for (i, function) in calls.functions.iter().enumerate() {
            let header = format!(
                "{} {}",
                quoted(&format!(" to={}", function.name)),
                rules.marks.rule(MESSAGE)
            );
            messages.push(rules.define("message", &format!("{header} {open} call_{i} {close}")));
        }
        let messages = rules.define("message", &messages.join(" | "));
        let others = match calls.is_parallel {
            true => {
                let again = rules.marks.rule(&format!("{END}{START}assistant"));
                format!("({again} {messages}){{0,{}}}", MAX_CALLS - 1)
            }
            false => String::new(),
        };
        let user = header("user", rules.marks);
        let last = match (calls.must_call, has_form) {
            (true, _) => String::new(),
            (false, true) => format!(" | {user} form"),
            (false, false) => format!(" | {user} {}?", rules.text_without(&[END, START])),
        };
        // With a form, the calls are the whole answer.
        let preamble = match has_form {
            true => String::new(),
            false => format!("({preamble})?"),
        };
        rules.line(&format!(
            "start: ({thought})? {preamble} ({messages} {others}{last})"
        ));
    }
}

/// A grammar for answers with a form: optionally thoughts, then a message of this form.
pub(crate) fn recipient_form(form: &str, marks: &Marks) -> String {
    let mut rules = CallRules::new(marks);
    let thought = message("self", &mut rules);
    rules.line(&format!(
        "start: ({thought})? {} form",
        header("user", marks)
    ));
    rules.line(&format!("form: {form}"));
    rules.source + &marks.definitions()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_ends_are_left_out_however_they_are_cut() {
        for (answer, has_form, found) in [
            (" to=user<|message|>Fine.", false, "Fine."),
            ("<|start|>assistant to=user<|message|>Fine.", false, "Fine."),
            (
                " to=user<|message|>I look.<|eom|><|start|>assistant to=f<|message|><a>",
                false,
                "I look.|<a>",
            ),
            ("Fine < there <|", false, "Fine < there <|"),
            ("to", false, "to"),
            ("a<|start|>assistant", false, "a|<|start|>assistant"),
            (
                " to=user<|message|>{\"a\": \"<|eom|>\"}",
                true,
                "{\"a\": \"<|eom|>\"}",
            ),
        ] {
            for n_chars in [1, 2, 5, answer.len()] {
                let mut reader = RecipientReader::default();
                if has_form {
                    reader.before_form();
                }
                let chars: Vec<char> = answer.chars().collect();
                let mut pieces = vec![String::new()];
                for cut in chars.chunks(n_chars) {
                    let more = reader.push(&cut.iter().collect::<String>());
                    pieces.last_mut().unwrap().push_str(&more[0]);
                    pieces.extend(more[1..].iter().cloned());
                }
                pieces.last_mut().unwrap().push_str(&reader.finish());
                pieces.retain(|piece| !piece.is_empty());
                assert_eq!(pieces.join("|"), found, "{answer} by {n_chars}");
            }
        }
    }
}
