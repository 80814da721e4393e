//! The messages of Functionary 3.2: each begins with a line that names its recipient.
//!
//! `all` is the user; any other name is a function, and the message has its arguments. A mark precedes the line; the
//! prompt contains the mark of the first message.

pub(super) use millrace_text::functionary::{MARK, SIGNS};
use millrace_text::functionary::{TO_USER, USER};

use super::calls::CallSyntax;
use super::fit::exactly;
use super::grammar::{CallGrammar, CallRules, MAX_CALLS};
use super::json::{CallFit, end_of};
use super::lark::{escaped, quoted};
use super::preview::CallPreview;
use super::reader::{AnswerPart, Names};

/// State of a reader.
#[derive(Clone, Debug, PartialEq)]
enum MessagePlace {
    /// Before the first message, whose mark is in the prompt.
    Begin,
    Text,
    /// In the arguments of this function.
    Arguments(String),
    /// After a call.
    Behind,
    /// In a text of a form, which is the last message.
    Form,
}

/// Reads messages while they are generated.
#[derive(Clone, Debug)]
pub(super) struct FunctionaryReader {
    held: String,
    place: MessagePlace,
    preview: Option<CallPreview>,
    has_form: bool,
}

impl FunctionaryReader {
    pub(super) fn new() -> FunctionaryReader {
        FunctionaryReader {
            held: String::new(),
            place: MessagePlace::Begin,
            preview: None,
            has_form: false,
        }
    }

    /// Makes a reader for answers with a form, whose texts are not messages.
    pub(super) fn before_form(self) -> FunctionaryReader {
        FunctionaryReader {
            has_form: true,
            ..self
        }
    }

    pub(super) fn push(&mut self, text: &str, names: &Names, out: &mut Vec<AnswerPart>) {
        self.held.push_str(text);
        while self.step(names, out) {}
    }

    /// Reads on; true if there may be more to read.
    fn step(&mut self, names: &Names, out: &mut Vec<AnswerPart>) -> bool {
        match &self.place {
            MessagePlace::Begin | MessagePlace::Behind => self.head(names),
            MessagePlace::Text => self.text(names, out),
            MessagePlace::Arguments(name) => {
                let name = name.clone();
                self.arguments(name, out)
            }
            MessagePlace::Form => {
                self.tell(self.held.len(), out);
                false
            }
        }
    }

    /// Reads the line that begins a message. The prompt has the mark of the first message, but a model may repeat it.
    fn head(&mut self, names: &Names) -> bool {
        let held = self.held.as_str();
        let is_first = self.place == MessagePlace::Begin;
        let (rest, fit) = match is_first {
            true => {
                let rest = held.strip_prefix(MARK).unwrap_or(held);
                (rest, recipient(rest, names))
            }
            false => {
                let rest = held.trim_start();
                (rest, message(rest, names))
            }
        };
        match fit {
            CallFit::Full(name, n_bytes) => {
                let (name, n_before) = (name.map(str::to_owned), held.len() - rest.len());
                self.begin(name, n_before + n_bytes);
                true
            }
            CallFit::Partial => false,
            CallFit::Not if is_first && MARK.starts_with(held) => false,
            CallFit::Not => {
                self.place = MessagePlace::Text;
                true
            }
        }
    }

    /// Begins a message for a function, or for the user, after `n_bytes` bytes.
    fn begin(&mut self, name: Option<String>, n_bytes: usize) {
        self.held.drain(..n_bytes);
        self.place = match name {
            Some(name) => MessagePlace::Arguments(name),
            None if self.has_form => MessagePlace::Form,
            None => MessagePlace::Text,
        };
    }

    /// Reports text up to the start of the next message.
    fn text(&mut self, names: &Names, out: &mut Vec<AnswerPart>) -> bool {
        let places = self.held.match_indices('>').map(|(at, _)| at);
        let found = places.into_iter().find_map(|at| {
            let fit = message(&self.held[at..], names);
            (fit != CallFit::Not).then_some((at, fit))
        });
        let (n_text, begun) = match found {
            Some((at, CallFit::Full(name, n_bytes))) => {
                (at, Some((name.map(str::to_owned), n_bytes)))
            }
            Some((at, _)) => (at, None),
            None => (self.held.len(), None),
        };
        self.tell(n_text, out);
        let has_begun = begun.is_some();
        if let Some((name, n_bytes)) = begun {
            self.begin(name, n_bytes);
        }
        has_begun
    }

    /// Reads the arguments of a call, which end with their JSON object.
    fn arguments(&mut self, name: String, out: &mut Vec<AnswerPart>) -> bool {
        let is_open = self.preview.as_ref().is_some_and(CallPreview::is_open);
        if is_open {
            CallPreview::show(&mut self.preview, &name, &self.held, out);
            if self.preview.as_ref().is_some_and(CallPreview::is_open) {
                return false;
            }
        }
        let begun = self.held.trim_start();
        let n_space = self.held.len() - begun.len();
        if begun.is_empty() {
            return false;
        }
        let end = match begun.starts_with('{') {
            true => end_of(begun).map(|end| n_space + end),
            false => Some(n_space),
        };
        let body = &self.held[..end.unwrap_or(self.held.len())];
        CallPreview::show(&mut self.preview, &name, body, out);
        let Some(end) = end else {
            return false;
        };
        if CallPreview::end(&mut self.preview, &name, body, out) {
            self.held.drain(..end);
            self.place = MessagePlace::Behind;
        } else {
            CallPreview::give_up(&mut self.preview, out);
            // Not a call: its line becomes part of the text.
            self.held.insert_str(0, &format!("{name}\n"));
            self.place = MessagePlace::Text;
        }
        true
    }

    fn tell(&mut self, n_bytes: usize, out: &mut Vec<AnswerPart>) {
        if n_bytes > 0 {
            out.push(AnswerPart::Text(self.held.drain(..n_bytes).collect()));
        }
    }

    /// Ends the answer. An incomplete call is text.
    pub(super) fn finish(&mut self, out: &mut Vec<AnswerPart>) {
        if let MessagePlace::Arguments(name) = &self.place {
            let text = format!("{name}\n{}", self.held);
            self.held.clear();
            CallPreview::cut(&mut self.preview, text, out);
            return;
        }
        if self.place == MessagePlace::Behind && self.held.trim().is_empty() {
            self.held.clear();
        }
        self.tell(self.held.len(), out);
    }
}

/// Reads the recipient's line at the beginning of a text: a function, or the user. The text may be incomplete.
fn recipient<'t>(text: &'t str, names: &Names) -> CallFit<Option<&'t str>> {
    match text.find('\n') {
        Some(end) if &text[..end] == USER => CallFit::Full(None, end + 1),
        Some(end) if names.has(&text[..end]) => CallFit::Full(Some(&text[..end]), end + 1),
        None if USER.starts_with(text) || names.has_beginning(text) => CallFit::Partial,
        _ => CallFit::Not,
    }
}

/// Reads the recipient's line after the mark of a message.
fn message<'t>(text: &'t str, names: &Names) -> CallFit<Option<&'t str>> {
    exactly(text, MARK).then(|(), n_mark| {
        recipient(&text[n_mark..], names).then(|name, n_line| CallFit::Full(name, n_mark + n_line))
    })
}

impl CallSyntax {
    /// Whether no function can have this name, since it means the user.
    pub(crate) fn is_taken(&self, name: &str) -> bool {
        self.is_functionary() && name == USER
    }

    /// Rules for messages: optionally one to the user, and then calls, each in a separate message. In the user's
    /// text, a new message begins only if the line names a function: `>>> 1 + 1` is text.
    pub(super) fn functionary_start(
        &self,
        calls: &CallGrammar<'_>,
        has_form: bool,
        rules: &mut CallRules<'_>,
    ) {
        let others = match calls.is_parallel {
            true => format!("({} call){{0,{}}}", quoted(MARK), MAX_CALLS - 1),
            false => String::new(),
        };
        let to_user = quoted(TO_USER);
        let start = match (calls.must_call, has_form) {
            (true, _) => format!("call {others}"),
            (false, true) => format!("call {others} | {to_user} form"),
            (false, false) => {
                let names = calls.functions.iter().map(|function| function.name);
                let line = |name: &str| format!("{MARK}{name}\n");
                let mut heads = Vec::new();
                for (i, name) in names.clone().enumerate() {
                    let head = rules.lazy(&format!("(.|\\n)*{}", escaped(&line(name))));
                    heads.push(rules.define("said", &format!("{head} arguments_{i}")));
                }
                let said = rules.define("said", &heads.join(" | "));
                let lines: Vec<String> = names.chain([USER]).map(line).collect();
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let text = rules.text_without(&lines);
                format!("call {others} | {to_user} ({text}? | {said} {others})")
            }
        };
        rules.line(&format!("start: {start}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tools::tests::accepts;
    use crate::grammar::Grammar;
    use crate::syntax::grammar::Callable;
    use crate::syntax::lark::Marks;
    use crate::syntax::reader::AnswerReader;
    use crate::syntax::rows::FUNCTIONARY_3_2;
    use serde_json::json;

    fn text(text: &str) -> AnswerPart {
        AnswerPart::Text(text.to_owned())
    }

    /// Reads an answer in pieces of `n_chars` characters, without the early reports of incomplete calls.
    fn read(answer: &str, n_chars: usize, has_form: bool) -> Vec<AnswerPart> {
        let names = ["lamp", "lamps"].map(|name| (name.to_owned(), json!({})));
        let reader = AnswerReader::new(Some(FUNCTIONARY_3_2), None, Names::new(names));
        let mut reader = match has_form {
            true => reader.beside_form(),
            false => reader,
        };
        let chars: Vec<char> = answer.chars().collect();
        let mut parts = Vec::new();
        for piece in chars.chunks(n_chars) {
            parts.extend(reader.push(&piece.iter().collect::<String>()));
        }
        parts.extend(reader.finish());
        let mut whole: Vec<AnswerPart> = Vec::new();
        for part in parts {
            match (whole.last_mut(), part) {
                (_, AnswerPart::CallBegin { .. } | AnswerPart::CallArguments(_)) => {}
                (_, AnswerPart::CallBroken) => {}
                (
                    Some(AnswerPart::Text(said)),
                    AnswerPart::Text(more) | AnswerPart::CallCut(more),
                ) => {
                    said.push_str(&more);
                }
                (_, AnswerPart::CallCut(more)) => whole.push(AnswerPart::Text(more)),
                (_, part) => whole.push(part),
            }
        }
        whole
    }

    #[test]
    fn messages_are_told_apart_however_they_are_cut() {
        let call = |name: &str, on: bool| AnswerPart::Call {
            name: name.to_owned(),
            arguments: json!({"on": on}),
        };
        for (answer, has_form, parts) in [
            ("all\nFine.", false, vec![text("Fine.")]),
            (">>>all\nFine.", false, vec![text("Fine.")]),
            ("lamp\n{\"on\": true}", false, vec![call("lamp", true)]),
            (
                "lamps\n{\"on\": true}>>>lamp\n{\"on\": false}\n",
                false,
                vec![call("lamps", true), call("lamp", false)],
            ),
            (
                "all\nI look.>>>lamp\n {\"on\": true} >>>all\nDone.",
                false,
                vec![text("I look."), call("lamp", true), text("Done.")],
            ),
            (
                "all\n>>> 1 + 1\n2\n>>>other\n>>>>lamp",
                false,
                vec![text(">>> 1 + 1\n2\n>>>other\n>>>>lamp")],
            ),
            (
                "all\n>>>>lamp\n{\"on\": true}",
                false,
                vec![text(">"), call("lamp", true)],
            ),
            // Text that is not a call is reported, including its line.
            ("lamp\n{\"on\": tr", false, vec![text("lamp\n{\"on\": tr")]),
            ("lamp\nOn!", false, vec![text("lamp\nOn!")]),
            (
                "lamp\n{\"on\": truth} >>>lamp\n{\"on\": true}",
                false,
                vec![text("lamp\n{\"on\": truth} "), call("lamp", true)],
            ),
            (
                "lamp\n{\"on\": true} and so",
                false,
                vec![call("lamp", true), text(" and so")],
            ),
            ("other\n{}", false, vec![text("other\n{}")]),
            ("lam", false, vec![text("lam")]),
            ("", false, vec![]),
            (
                "all\n{\"a\": \">>>lamp\"}\n>>>lamp\n{}",
                true,
                vec![text("{\"a\": \">>>lamp\"}\n>>>lamp\n{}")],
            ),
        ] {
            for n_chars in [1, 2, 3, 7, answer.len().max(1)] {
                assert_eq!(
                    read(answer, n_chars, has_form),
                    parts,
                    "{answer:?} by {n_chars}"
                );
            }
        }
    }

    #[test]
    fn a_hundred_functions_are_held() {
        let schema = json!({"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
                            "additionalProperties": false});
        let names: Vec<String> = (0..100).map(|i| format!("switch_the_lamp_{i}")).collect();
        let functions = names.iter().map(|name| Callable {
            name,
            schema: &schema,
        });
        let calls = CallGrammar {
            functions: functions.collect(),
            must_call: false,
            is_parallel: true,
            form: None,
            around: None,
        };
        let grammar = Grammar::Calls(FUNCTIONARY_3_2.grammar(&calls, &Marks::default()));
        for (answer, is_fine) in [
            (
                "all\nI look.>>>switch_the_lamp_42\n{\"on\": true}>>>switch_the_lamp_7\n{\"on\": false}",
                true,
            ),
            ("all\nI look.>>>switch_the_lamp_42\n{\"on\": 1}", false),
            // Only one message to the user is allowed, and it comes first.
            ("all\nI look.>>>all\nDone.", false),
            ("all\n>>>switch_the_lamp_100\nis none", true),
            ("switch_the_lamp_100\n{\"on\": true}", false),
        ] {
            assert_eq!(accepts(&grammar, answer), is_fine, "{answer}");
        }
    }
}
