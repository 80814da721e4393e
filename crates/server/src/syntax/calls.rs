//! Syntaxes of function calls in model output.

use super::rows::{N_ROWS, NONE, ROWS};
use super::unshown::BY_VOCABULARY;

/// A text of a row.
pub(super) type Text = &'static str;

/// A syntax of calls: `open`, then for each call `before`, its name, `middle`, its arguments and `after`, with
/// `between` between calls, and `close`. Readers accept other white space; grammars write it exactly like this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallSyntax {
    pub(crate) name: &'static str,
    pub(super) open: Text,
    pub(super) before: Text,
    /// An alternative to `before`; may be empty.
    pub(super) also_before: Text,
    pub(super) middle: Text,
    pub(super) after: Text,
    pub(super) between: Text,
    pub(super) close: Text,
    pub(super) arguments: Arguments,
    /// Either the whole answer is calls, or it has none.
    pub(super) is_bare: bool,
    /// Answers are messages, each with its recipient.
    pub(super) has_recipients: bool,
    /// Texts that a template of this syntax must all contain.
    pub(super) signs: &'static [&'static str],
    /// Texts that it must not contain.
    pub(super) unlike: &'static [&'static str],
}

/// How arguments are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arguments {
    /// As a JSON object. With `Some`, the whole call is a JSON object; these are its members for the name and for the
    /// arguments.
    Json(Option<(&'static str, &'static str)>),
    /// Each separately, strings without quotes and all other values as JSON.
    Tagged(Tags),
    /// As a call in Python: `a="x", b=True`.
    Python,
    /// As in Gemma 4: JSON with names unquoted and texts in other quotes.
    Gemma,
    /// As in MiniMax M3: nested elements, with this mark before their tags.
    Elements(Text),
    /// gpt-oss: calls are separate messages.
    Harmony,
    /// Functionary 3.2: calls are separate messages, after a line that names the function.
    Functionary,
}

/// Texts around each argument: `key`, its name, `value` or `json`, the argument, `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tags {
    pub(super) key: Text,
    /// Before a text.
    pub(super) value: Text,
    /// Before JSON.
    pub(super) json: Text,
    pub(super) end: Text,
    /// Strings with special characters may be in CDATA marks of XML.
    pub(super) has_cdata: bool,
}

/// Gemma 4's token for quotes.
pub(super) const GEMMA_QUOTE: &str = "<|\"|>";

/// The syntax of a template that shows functions. `has_token` looks up the vocabulary.
pub(crate) fn by_template(
    templates: &str,
    has_token: impl Fn(&str) -> bool,
) -> Option<&'static CallSyntax> {
    static KNOWN: [CallSyntax; N_ROWS] = ROWS;
    static OTHERS: [(&str, CallSyntax); 3] = BY_VOCABULARY;
    let has = |sign: &&str| templates.contains(*sign);
    let fits = |row: &&CallSyntax| row.signs.iter().all(has) && !row.unlike.iter().any(has);
    let found = KNOWN.iter().find(fits);
    let others = || {
        let is_it = |(sign, _): &&(&str, CallSyntax)| has(sign) || has_token(sign);
        OTHERS.iter().find(is_it).map(|(_, row)| row)
    };
    found
        .or_else(others)
        .or_else(|| has_token("<tool_call>").then(|| &KNOWN[N_ROWS - 1]))
}

impl CallSyntax {
    /// A syntax of JSON arguments that was derived from a template, with the texts `before`, `middle`, `after` and
    /// `between`. The texts are leaked, so derive it only once for each model.
    pub(super) fn of_json(texts: [&str; 4]) -> CallSyntax {
        let [before, middle, after, between] = texts.map(|text| &*String::from(text).leak());
        CallSyntax {
            name: "as the template has it",
            before,
            middle,
            after,
            between,
            ..NONE
        }
    }

    /// All texts of the syntax.
    pub(crate) fn texts(&self) -> Vec<&'static str> {
        let mut texts: Vec<&'static str> = vec![
            self.open,
            self.before,
            self.middle,
            self.after,
            self.between,
            self.close,
        ];
        match &self.arguments {
            Arguments::Tagged(tags) => texts.extend([tags.key, tags.value, tags.json, tags.end]),
            Arguments::Gemma => texts.push(GEMMA_QUOTE),
            Arguments::Elements(mark) => texts.push(mark),
            Arguments::Harmony => texts.extend(super::harmony::MARKS),
            _ => {}
        }
        if self.has_recipients {
            texts.extend(super::recipients::MARKS);
        }
        texts
    }

    /// Whether a call's identifier is its name with a number.
    pub(crate) fn has_named_ids(&self) -> bool {
        self.before.ends_with("functions.")
    }

    /// Whether answers come in channels.
    pub(crate) fn is_harmony(&self) -> bool {
        self.arguments == Arguments::Harmony
    }

    /// Whether answers are messages, each with a line that names its recipient.
    pub(super) fn is_functionary(&self) -> bool {
        self.arguments == Arguments::Functionary
    }

    /// The first character of a bare call, which is also the first of its [trigger](CallSyntax::trigger).
    pub(super) fn trigger_char(&self) -> char {
        self.trigger().chars().next().unwrap_or('{')
    }

    /// Texts that make a reader look for a call. After the last call of an answer, none of them may occur.
    pub(super) fn beginnings(&self) -> Vec<&'static str> {
        let mut words = vec![self.trigger()];
        if self.close.is_empty() {
            words.push(self.again());
        }
        words.dedup();
        words
    }

    /// The first word of a later call, apart from the separator.
    pub(super) fn again(&self) -> &'static str {
        let first = self.before.split_whitespace().next().unwrap_or(self.before);
        first.split('⟨').next().unwrap_or(first)
    }

    /// The text that signals a call: the first word of its opening.
    pub(super) fn trigger(&self) -> &'static str {
        let first = match self.open.is_empty() {
            true => self.before,
            false => self.open,
        };
        first.split_whitespace().next().unwrap_or(first)
    }
}
