//! Grammars that hold answers to functions, in any of the ways of writing.

use std::fmt::Write;

use serde_json::{Value, json};

use super::calls::{Arguments, CallSyntax, Tags};
use super::harmony::ENDS;
use super::lark::{Marks, escaped, quoted};
use super::reader::is_text;
use super::values;
use crate::grammar::compact;

/// Calls in one answer at most. After the last a grammar takes no text that would begin another.
pub(super) const MAX_CALLS: usize = 8;

/// A function that may be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable<'a> {
    pub(crate) name: &'a str,
    /// A schema of the arguments, an object's.
    pub(crate) schema: &'a Value,
}

/// What an answer may be.
#[derive(Clone, Debug)]
pub(crate) struct CallGrammar<'a> {
    pub(crate) functions: Vec<Callable<'a>>,
    /// It must be calls.
    pub(crate) must_call: bool,
    /// Several calls.
    pub(crate) is_parallel: bool,
    /// Where it is no call, it is JSON of this schema, and not any text.
    pub(crate) form: Option<&'a Value>,
}

/// A grammar under way.
pub(super) struct CallRules<'m> {
    pub(super) source: String,
    pub(super) marks: &'m Marks,
    n_rules: usize,
    /// The bodies of rules of texts, and their names.
    texts: Vec<(String, String)>,
}

/// What takes texts with these words out of an expression.
fn excluded(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| escaped(word)).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(" & ~/(.|\\n)*({})(.|\\n)*/", words.join("|")),
    }
}

impl CallRules<'_> {
    /// Defines a rule, and gives its name.
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

    /// A rule of any text up to another, and of that. The text has none of `without` in it.
    pub(super) fn text_up_to(&mut self, end: &str, without: &[&str]) -> String {
        if self.marks.is_token(end) {
            // Readers see texts: what is spelled as the token is one to them.
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

    /// A rule of what an expression matches, as soon as it does.
    pub(super) fn lazy(&mut self, expression: &str) -> String {
        let name = format!("head_{}", self.n_rules);
        self.n_rules += 1;
        let _ = writeln!(self.source, "{name}[lazy]: /{expression}/");
        name
    }

    /// A rule of any text, not empty, that has none of these words in it.
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
    /// What answers with these functions may look like, as Lark.
    pub(crate) fn grammar(&self, calls: &CallGrammar<'_>, marks: &Marks) -> String {
        let mut rules = CallRules {
            source: String::new(),
            marks,
            n_rules: 0,
            texts: Vec::new(),
        };
        let form = calls.form.filter(|_| !calls.must_call);
        if self.is_harmony() {
            self.harmony_start(calls, form.is_some(), &mut rules);
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

    /// What this way cannot hold of a schema of arguments, in words.
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
            (false, false) => {
                let head = rules.text_up_to(self.trigger(), &[]);
                match self.open.is_empty() {
                    true => rules.line(&format!("start: ({head} call){{0,{most}}} tail")),
                    false => {
                        let rest = rules.marks.rule(&self.open[self.trigger().len()..]);
                        rules.line(&format!(
                            "start: ({head} {rest} {one} {others} {close})? tail"
                        ));
                    }
                }
                let text = rules.text_without(&self.beginnings());
                rules.line(&format!("tail: {text}?"));
            }
        }
    }

    /// Messages of gpt-oss: one of thoughts, one that tells what it does, and then a call or the answer.
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

    /// A call, without what [opens](CallSyntax::trigger) it.
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

    /// The rule of the arguments of a call of the function with this number.
    fn arguments(&self, i: usize, function: &Callable<'_>, rules: &mut CallRules<'_>) -> String {
        let body = match &self.arguments {
            Arguments::Tagged(tags) => tagged(tags, function.schema, rules),
            Arguments::Python => values::python(function.schema, rules),
            Arguments::Gemma => values::gemma(function.schema, rules),
            _ => format!("%json {}", compact(function.schema.clone())),
        };
        let body = if body.is_empty() { "\"\"" } else { &body };
        rules.line(&format!("arguments_{i}: {body}"));
        format!("arguments_{i}")
    }
}

/// A message of gpt-oss that another follows.
fn message(rules: &mut CallRules<'_>, channel: &str) -> String {
    let end = rules.text_up_to("<|end|>", &["<|start|>"]);
    let head = rules
        .marks
        .rule(&format!("<|channel|>{channel}<|message|>"));
    format!("{head} {end} {}", rules.marks.rule("<|start|>assistant"))
}

/// Answers of gpt-oss that are of a form: thoughts perhaps, then a message of this rule.
pub(crate) fn channel_form(form: &str, marks: &Marks) -> String {
    let mut rules = CallRules {
        source: String::new(),
        marks,
        n_rules: 0,
        texts: Vec::new(),
    };
    let thought = message(&mut rules, "analysis");
    let head = marks.rule("<|channel|>final<|message|>");
    rules.line(&format!("start: ({thought})? {head} form"));
    rules.line(&format!("form: {form}"));
    rules.source + &marks.definitions()
}

/// What a schema says of texts that only a grammar of quoted texts holds.
pub(super) const TEXT_KEYWORDS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];

/// The keywords of a list that an argument's schema has.
pub(super) fn present(name: &str, schema: &Value, keywords: &[&str]) -> Vec<String> {
    let found = keywords
        .iter()
        .filter(|keyword| schema.get(keyword).is_some());
    found
        .map(|keyword| format!("`{keyword}` of `{name}`, which this model writes without quotes"))
        .collect()
}

/// A call as JSON. Beside JSON of a form, it must be made of the same words: what begins as one of its texts and is longer
/// would hide that from the grammar's reader.
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

/// The arguments that a schema names, in its order, and whether each must be there.
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

/// A schema within another, by itself.
pub(super) fn alone(schema: &Value, root: &Value) -> Value {
    let mut schema = schema.clone();
    if let (Some(object), Some(definitions)) = (schema.as_object_mut(), root.get("$defs")) {
        object.entry("$defs").or_insert_with(|| definitions.clone());
    }
    schema
}

/// The texts that a schema lists, if it lists any.
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

fn tagged(tags: &Tags, schema: &Value, rules: &mut CallRules<'_>) -> String {
    let key = rules.marks.rule(tags.key);
    let members = members(schema);
    if members.is_empty() {
        return match schema["additionalProperties"] == false || schema["properties"].is_object() {
            true => String::new(),
            // Whatever it is called, and whatever it is.
            false => {
                let (value, end) = (
                    rules.marks.rule(tags.value),
                    rules.text_up_to(tags.end.trim(), &[]),
                );
                let any = rules.define(
                    "any",
                    &format!("{key} /[A-Za-z0-9_.-]{{1,64}}/ {value} {end}"),
                );
                format!("{any}{{0,64}}")
            }
        };
    }
    let mut out = String::new();
    for (name, member, is_required) in members {
        let value = tagged_value(tags, member, schema, rules);
        let rule = rules.define("argument", &format!("{key} {} {value}", quoted(name)));
        out += &rule;
        out += if is_required { " " } else { "? " };
    }
    out
}

/// A value with its tags.
fn tagged_value(tags: &Tags, member: &Value, root: &Value, rules: &mut CallRules<'_>) -> String {
    let end = rules.marks.rule(tags.end);
    if !is_text(member, root, 0) {
        let json = rules.marks.rule(tags.json);
        let held = compact(alone(member, root));
        return format!("{json} %json {held} {end}");
    }
    let value = rules.marks.rule(tags.value);
    if let Some(texts) = listed(member, root) {
        let texts: Vec<String> = texts.into_iter().map(quoted).collect();
        return format!("{value} ({}) {end}", texts.join(" | "));
    }
    let trimmed = tags.end.trim();
    let behind = &tags.end[tags.end.find(trimmed).unwrap_or(0) + trimmed.len()..];
    let behind = rules.marks.rule(behind);
    format!("{value} {} {behind}", rules.text_up_to(trimmed, &[]))
}
