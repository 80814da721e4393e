//! Grammars of answers with functions, for all call syntaxes.

use std::fmt::Write;

use serde_json::{Value, json};

use super::calls::{Arguments, CallSyntax};
use super::harmony::ENDS;
use super::kinds::is_text;
use super::lark::{Marks, escaped, quoted};
use super::{elements, tagged, values};
use crate::grammar::compact;

/// Maximum number of calls in an answer. After the last one, a grammar allows no text that would begin another.
pub(super) const MAX_CALLS: usize = 8;

/// A function that may be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable<'a> {
    pub(crate) name: &'a str,
    /// The schema of the arguments, an object.
    pub(crate) schema: &'a Value,
}

/// The allowed answers.
#[derive(Clone, Debug)]
pub(crate) struct CallGrammar<'a> {
    pub(crate) functions: Vec<Callable<'a>>,
    /// The answer must be calls.
    pub(crate) must_call: bool,
    /// Several calls are allowed.
    pub(crate) is_parallel: bool,
    /// The schema for an answer that is not a call; without it any text is allowed.
    pub(crate) form: Option<&'a Value>,
    /// Optional texts around the answer's text; their control tokens cannot occur elsewhere.
    pub(crate) around: Option<(&'a str, &'a str)>,
}

/// A grammar under construction.
pub(super) struct CallRules<'m> {
    pub(super) source: String,
    pub(super) marks: &'m Marks,
    n_rules: usize,
    /// The bodies of text rules, with their names.
    texts: Vec<(String, String)>,
}

/// An expression that excludes texts containing these words.
fn excluded(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| escaped(word)).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(" & ~/(.|\\n)*({})(.|\\n)*/", words.join("|")),
    }
}

impl<'m> CallRules<'m> {
    pub(super) fn new(marks: &'m Marks) -> CallRules<'m> {
        CallRules {
            source: String::new(),
            marks,
            n_rules: 0,
            texts: Vec::new(),
        }
    }

    /// Defines a rule, and returns its name.
    pub(super) fn define(&mut self, kind: &str, body: &str) -> String {
        let name = format!("{kind}_{}", self.n_rules);
        self.n_rules += 1;
        // Writing to a string does not fail.
        let _ = writeln!(self.source, "{name}: {body}");
        name
    }

    pub(super) fn line(&mut self, line: &str) {
        self.source.push_str(line);
        self.source.push('\n');
    }

    /// A rule for any text that ends with `end`. The text contains none of `without`.
    pub(super) fn text_up_to(&mut self, end: &str, without: &[&str]) -> String {
        if self.marks.is_token(end) {
            // Readers see only text: a spelled-out token looks like the token to them.
            let words: Vec<&str> = std::iter::once(&end).chain(without).copied().collect();
            let text = self.text_without(&words);
            return format!("{text}? {}", self.marks.rule(end));
        }
        // A lexeme ends where a control token begins.
        let (word, rest) = self.marks.parted(end);
        let name = format!("upto_{}", self.n_rules);
        self.n_rules += 1;
        let word = escaped(word);
        let excluded = excluded(without);
        let _ = writeln!(self.source, "{name}[lazy]: /(.|\\n)*{word}/{excluded}");
        format!("{name} {}", self.marks.rule(rest))
    }

    /// A rule for any text up to a mark followed by a word. The text before does not contain the mark.
    pub(super) fn text_up_to_mark(&mut self, mark: &str, word: &str) -> String {
        if self.marks.is_token(mark) {
            let text = self.text_without(&[mark]);
            return format!("{text}? {} {}", self.marks.rule(mark), quoted(word));
        }
        let name = format!("upto_{}", self.n_rules);
        self.n_rules += 1;
        let (mark, end) = (escaped(mark), escaped(&format!("{mark}{word}")));
        let _ = writeln!(
            self.source,
            "{name}[lazy]: /(.|\\n)*{end}/ & ~/(.|\\n)*{mark}(.|\\n)*{end}/"
        );
        name
    }

    /// A rule that matches an expression as soon as possible.
    pub(super) fn lazy(&mut self, expression: &str) -> String {
        let name = format!("head_{}", self.n_rules);
        self.n_rules += 1;
        let _ = writeln!(self.source, "{name}[lazy]: /{expression}/");
        name
    }

    /// A rule for non-empty text that contains none of these words.
    pub(super) fn text_without(&mut self, words: &[&str]) -> String {
        let body = format!("/(.|\\n)+/{}", excluded(words));
        let known = self.texts.iter().find(|(known, _)| *known == body);
        if let Some((_, name)) = known {
            return name.clone();
        }
        let name = self.define("TEXT", &body);
        self.texts.push((body, name.clone()));
        name
    }
}

impl CallSyntax {
    /// The grammar of answers with these functions, as Lark.
    pub(crate) fn grammar(&self, calls: &CallGrammar<'_>, marks: &Marks) -> String {
        let mut rules = CallRules::new(marks);
        let form = calls.form.filter(|_| !calls.must_call);
        if self.is_harmony() {
            self.harmony_start(calls, form.is_some(), &mut rules);
        } else if self.is_functionary() {
            self.functionary_start(calls, form.is_some(), &mut rules);
        } else if self.has_recipients {
            self.recipients_start(calls, form.is_some(), &mut rules);
        } else {
            self.start(calls, form.is_some(), &mut rules);
        }
        let names: Vec<String> = (0..calls.functions.len())
            .map(|i| format!("call_{i}"))
            .collect();
        rules.line(&format!("call: {}", names.join(" | ")));
        for (i, function) in calls.functions.iter().enumerate() {
            let body = self.call(i, function, form.is_some(), &mut rules);
            rules.line(&format!("call_{i}: {body}"));
        }
        if let Some(form) = form {
            let form = self.form_beside(form, &calls.functions);
            rules.line(&format!("form: %json {}", compact(form)));
        }
        rules.source + &marks.definitions()
    }

    /// Parts of a schema of arguments that this syntax cannot enforce, as descriptions.
    pub(crate) fn unheld(&self, schema: &Value) -> Vec<String> {
        match &self.arguments {
            Arguments::Tagged(_) => {
                let texts = members(schema).into_iter().filter(|(_, member, _)| {
                    is_text(member, schema, 0) && listed(member, schema).is_none()
                });
                texts
                    .flat_map(|(name, member, _)| present(name, member, &TEXT_KEYWORDS))
                    .collect()
            }
            Arguments::Gemma => values::unheld_by_gemma(schema, schema, 0),
            Arguments::Elements(_) => elements::unheld(schema, schema, 0),
            _ => Vec::new(),
        }
    }

    /// The rules above those of the calls.
    fn start(&self, calls: &CallGrammar<'_>, has_form: bool, rules: &mut CallRules<'_>) {
        let most = if calls.is_parallel { MAX_CALLS } else { 1 };
        let one = if self.is_bare || !self.open.is_empty() {
            "call"
        } else {
            "opened"
        };
        let between = rules.marks.rule(self.between);
        let (open, close) = (rules.marks.rule(self.open), rules.marks.rule(self.close));
        let others = match calls.is_parallel {
            true => format!("({between} {one}){{0,{}}}", MAX_CALLS - 1),
            false => String::new(),
        };
        let all = format!("{open} {one} {others} {close}");
        if !self.is_bare && self.open.is_empty() {
            let trigger = rules.marks.rule(self.trigger());
            rules.line(&format!("opened: {trigger} call"));
        }
        match (calls.must_call, has_form) {
            (true, _) => rules.line(&format!("start: {all}")),
            (false, true) => rules.line(&format!("start: {all} | form")),
            (false, false) if self.is_bare => self.bare_start(calls, &others, rules),
            (false, false) => self.free_start(calls, most, (one, &others), rules),
        }
    }

    /// The rules above those of the calls, for calls within text.
    fn free_start(
        &self,
        calls: &CallGrammar<'_>,
        most: usize,
        (one, others): (&str, &str),
        rules: &mut CallRules<'_>,
    ) {
        let close = rules.marks.rule(self.close);
        let head = rules.text_up_to(self.trigger(), &[]);
        let text = rules.text_without(&self.beginnings());
        // Marks without tokens are covered by the text rules.
        let has_token = |text: &&str| !rules.marks.parted(text).1.is_empty();
        let around = calls
            .around
            .filter(|(open, close)| [open, close].into_iter().any(has_token));
        let (begin, amid, end) = match around {
            Some((open, close)) => {
                let (open, close) = (rules.marks.rule(open), rules.marks.rule(close));
                (
                    format!("({open})?"),
                    format!("({text}? {close})?"),
                    format!("({close})?"),
                )
            }
            None => Default::default(),
        };
        match self.open.is_empty() {
            true => rules.line(&format!(
                "start: {begin} ({amid} {head} call){{0,{most}}} tail {end}"
            )),
            false => {
                let rest = rules.marks.rule(&self.open[self.trigger().len()..]);
                rules.line(&format!(
                    "start: {begin} ({amid} {head} {rest} {one} {others} {close})? tail {end}"
                ));
            }
        }
        rules.line(&format!("tail: {text}?"));
    }

    /// Rules for messages of gpt-oss: optionally one of thoughts and one preamble, and then a call or the answer.
    fn harmony_start(&self, calls: &CallGrammar<'_>, has_form: bool, rules: &mut CallRules<'_>) {
        let (thought, preamble) = (message(rules, "analysis"), message(rules, "commentary"));
        let rule = |text: &str| rules.marks.rule(text);
        let header_end = rule("<|message|>");
        let last = match (calls.must_call, has_form) {
            (true, _) => String::new(),
            (false, true) => format!(" | {} form", rule("<|channel|>final<|message|>")),
            (false, false) => {
                let text = rules.text_without(&ENDS);
                format!(" | {} {text}?", rule("<|channel|>final<|message|>"))
            }
        };
        let head = rule("<|channel|>commentary to=functions.");
        rules.line(&format!(
            "start: ({thought})? ({preamble})? ({head} call{last})"
        ));
        rules.line(&format!("message: {header_end}"));
    }

    /// The rule of a call, without its [trigger](CallSyntax::trigger).
    fn call(
        &self,
        i: usize,
        function: &Callable<'_>,
        has_form: bool,
        rules: &mut CallRules<'_>,
    ) -> String {
        let name = quoted(function.name);
        match &self.arguments {
            Arguments::Harmony => {
                let kind = rules.marks.rule(" <|constrain|>json");
                let arguments = self.arguments(i, function, rules);
                return format!("{name} {kind} message {arguments}");
            }
            Arguments::Json(Some(members)) if has_form && self.is_bare => {
                let (name, arguments) = *members;
                return format!(
                    "%json {}",
                    compact(call_schema(function, [name, arguments]))
                );
            }
            _ => {}
        }
        let before = match self.open.is_empty() && !self.is_bare {
            true => &self.before[self.trigger().len()..],
            false => self.before,
        };
        let before = rules.marks.rule(before);
        let middle = rules.marks.rule(self.middle);
        let after = rules.marks.rule(self.after);
        let arguments = self.arguments(i, function, rules);
        format!("{before} {name} {middle} {arguments} {after}")
    }

    /// The rule for the arguments of a call of function `i`.
    fn arguments(&self, i: usize, function: &Callable<'_>, rules: &mut CallRules<'_>) -> String {
        let body = match &self.arguments {
            Arguments::Tagged(tags) => tagged::rule(tags, function.schema, rules),
            Arguments::Python => values::python(function.schema, rules),
            Arguments::Gemma => values::gemma(function.schema, rules),
            Arguments::Elements(mark) => elements::rule(mark, function.schema, rules),
            _ => format!("%json {}", compact(function.schema.clone())),
        };
        let body = if body.is_empty() { "\"\"" } else { &body };
        rules.line(&format!("arguments_{i}: {body}"));
        format!("arguments_{i}")
    }
}

/// The rule for a message of gpt-oss that another one follows.
fn message(rules: &mut CallRules<'_>, channel: &str) -> String {
    let end = rules.text_up_to("<|end|>", &["<|start|>"]);
    let head = rules
        .marks
        .rule(&format!("<|channel|>{channel}<|message|>"));
    format!("{head} {end} {}", rules.marks.rule("<|start|>assistant"))
}

/// A grammar for answers of gpt-oss with a form: optionally thoughts, then a message of this form.
pub(crate) fn channel_form(form: &str, marks: &Marks) -> String {
    let mut rules = CallRules::new(marks);
    let thought = message(&mut rules, "analysis");
    let head = marks.rule("<|channel|>final<|message|>");
    rules.line(&format!("start: ({thought})? {head} form"));
    rules.line(&format!("form: {form}"));
    rules.source + &marks.definitions()
}

/// Keywords for strings that only a grammar of quoted strings can enforce.
pub(super) const TEXT_KEYWORDS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];

/// The keywords of a list that an argument's schema contains.
pub(super) fn present(name: &str, schema: &Value, keywords: &[&str]) -> Vec<String> {
    let found = keywords
        .iter()
        .filter(|keyword| schema.get(keyword).is_some());
    found
        .map(|keyword| format!("`{keyword}` of `{name}`, which this model writes without quotes"))
        .collect()
}

/// The schema of a call as JSON. Beside JSON of a form, a call must use the same lexemes. A longer lexeme with the
/// same beginning would hide the form's from the grammar's parser.
fn call_schema(function: &Callable<'_>, [name, arguments]: [&str; 2]) -> Value {
    let mut held = function.schema.clone();
    let definitions = held.as_object_mut().and_then(|held| held.remove("$defs"));
    let mut schema = json!({
        "type": "object", "properties": {name: {"const": function.name}, arguments: held},
        "required": [name, arguments], "additionalProperties": false,
    });
    if let Some(definitions) = definitions {
        schema["$defs"] = definitions;
    }
    schema
}

/// The arguments that a schema declares, in its order, and whether each is required.
pub(super) fn members(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, schema)| (name.as_str(), schema, required.contains(&name.as_str())))
        .collect()
}

/// A subschema as a schema of its own, with its definitions.
pub(super) fn alone(schema: &Value, root: &Value) -> Value {
    let mut schema = schema.clone();
    if let (Some(object), Some(definitions)) = (schema.as_object_mut(), root.get("$defs")) {
        object.entry("$defs").or_insert_with(|| definitions.clone());
    }
    schema
}

/// The strings that a schema enumerates, if it does.
pub(super) fn listed<'s>(schema: &'s Value, root: &'s Value) -> Option<Vec<&'s str>> {
    let target = schema["$ref"]
        .as_str()
        .and_then(|name| root.pointer(name.strip_prefix('#')?));
    let schema = target.unwrap_or(schema);
    if let Some(only) = schema["const"].as_str() {
        return Some(vec![only]);
    }
    schema["enum"]
        .as_array()?
        .iter()
        .map(Value::as_str)
        .collect()
}
