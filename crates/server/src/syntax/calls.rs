//! How models write calls of functions.

use super::rows::{N_ROWS, NONE, ROWS};
use super::unshown::BY_VOCABULARY;

/// A text of a row.
pub(super) type Text = &'static str;

/// A way of writing calls: `open`, then for each call `before`, its name, `middle`, its arguments and `after`, with `between` between
/// calls, and `close`. White space need not be as it is here, but a grammar has it so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallSyntax {
    pub(crate) name: &'static str,
    pub(super) open: Text,
    pub(super) before: Text,
    /// What may stand in the place of `before`, if anything may.
    pub(super) also_before: Text,
    pub(super) middle: Text,
    pub(super) after: Text,
    pub(super) between: Text,
    pub(super) close: Text,
    pub(super) arguments: Arguments,
    /// Calls are the whole answer, or there are none.
    pub(super) is_bare: bool,
    /// Answers are messages, of which each says whom it is for.
    pub(super) has_recipients: bool,
    /// What a template of this way has, all of it.
    pub(super) signs: &'static [&'static str],
    /// What it has not.
    pub(super) unlike: &'static [&'static str],
}

/// How arguments are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arguments {
    /// As a JSON object. In `Some` the whole call is one, whose members these are: for the name, and for the arguments.
    Json(Option<(&'static str, &'static str)>),
    /// Each by itself, texts without quotes and all else as JSON.
    Tagged(Tags),
    /// As a call in Python: `a="x", b=True`.
    Python,
    /// As Gemma 4 has them: JSON with names and texts quoted another way.
    Gemma,
    /// As MiniMax M3 has them: elements in each other, before whose tags this mark stands.
    Elements(Text),
    /// gpt-oss: calls are messages of their own.
    Harmony,
    /// Functionary 3.2: so they are, behind a line that names the function.
    Functionary,
}

/// What stands around each argument: `key`, its name, `value`, what it is, `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tags {
    pub(super) key: Text,
    /// Before a text.
    pub(super) value: Text,
    /// Before JSON.
    pub(super) json: Text,
    pub(super) end: Text,
    /// A text may stand between the marks of XML for texts in which anything may be.
    pub(super) has_cdata: bool,
}

/// The text that Gemma 4 has for quotes.
pub(super) const GEMMA_QUOTE: &str = "<|\"|>";

/// The way that a template shows, which knows functions. `has_token` asks the vocabulary.
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
    /// A way of JSON arguments, as a template was found to have it: its texts `before`, `middle`, `after` and `between`. They are
    /// kept for ever, so that a way is to be found once a model.
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

    /// All texts that it writes.
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

    /// Whether a call's identifier is its name, with a number.
    pub(crate) fn has_named_ids(&self) -> bool {
        self.before.ends_with("functions.")
    }

    /// Whether answers come in channels.
    pub(crate) fn is_harmony(&self) -> bool {
        self.arguments == Arguments::Harmony
    }

    /// Whether answers are messages, of which each says in a line whom it is for.
    pub(super) fn is_functionary(&self) -> bool {
        self.arguments == Arguments::Functionary
    }

    /// The character that a bare call begins with, which is the first of its [trigger](CallSyntax::trigger).
    pub(super) fn trigger_char(&self) -> char {
        self.trigger().chars().next().unwrap_or('{')
    }

    /// What makes a reader look for a call, wherever it stands: behind the last call of an answer none of it may be.
    pub(super) fn beginnings(&self) -> Vec<&'static str> {
        let mut words = vec![self.trigger()];
        if self.close.is_empty() {
            words.push(self.again());
        }
        words.dedup();
        words
    }

    /// The first word of a call that is not the first, apart from what stands between.
    pub(super) fn again(&self) -> &'static str {
        let first = self.before.split_whitespace().next().unwrap_or(self.before);
        first.split('⟨').next().unwrap_or(first)
    }

    /// What tells that calls begin: the first word of what is written first.
    pub(super) fn trigger(&self) -> &'static str {
        let first = match self.open.is_empty() {
            true => self.before,
            false => self.open,
        };
        first.split_whitespace().next().unwrap_or(first)
    }
}
