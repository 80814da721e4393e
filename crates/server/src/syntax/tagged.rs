//! Arguments that are each between tags.

use serde_json::Value;

use super::calls::Tags;
use super::fit::{exactly, loosely};
use super::grammar::{CallRules, alone, listed, members};
use super::json::{CallFit, value};
use super::json_text::may_become_json;
use super::kinds::{is_text, may_be, unquoted};
use super::lark::quoted;
use super::reader::Names;
use crate::grammar::compact;

/// Marks around a string with special characters.
pub(super) const CDATA: [&str; 2] = ["<![CDATA[", "]]>"];

/// Progress in reading the arguments of the call under way, so that none is parsed again with every new piece.
#[derive(Clone, Debug, Default)]
pub(super) struct TaggedProgress {
    /// Start of the arguments within the call.
    start: usize,
    /// Number of their bytes that are read.
    at: usize,
    /// The complete ones, in their order.
    arguments: Vec<(String, Value)>,
}

impl TaggedProgress {
    /// The complete arguments of a possibly incomplete call, in their order.
    pub(super) fn arguments(&self) -> &[(String, Value)] {
        &self.arguments
    }
}

/// Reads the arguments of a function, which begin at byte `start` of a call, followed by `after`. `text` is the call,
/// or a beginning of it no shorter than at the last progress.
pub(super) fn arguments(
    tags: &Tags,
    after: &str,
    (names, name): (&Names, &str),
    (text, start): (&str, usize),
    progress: &mut TaggedProgress,
) -> CallFit<Value> {
    if progress.start != start {
        *progress = TaggedProgress {
            start,
            ..TaggedProgress::default()
        };
    }
    let fit = read(tags, after, names, name, &text[start..], progress);
    fit.then(|(), n_bytes| {
        let arguments = progress.arguments.iter().cloned().collect();
        CallFit::Full(Value::Object(arguments), n_bytes)
    })
}

fn read(
    tags: &Tags,
    after: &str,
    names: &Names,
    name: &str,
    text: &str,
    progress: &mut TaggedProgress,
) -> CallFit<()> {
    loop {
        let rest = &text[progress.at..];
        let key = loosely(rest, tags.key);
        match (key, loosely(rest, after)) {
            (_, CallFit::Full((), n_bytes)) => return CallFit::Full((), progress.at + n_bytes),
            (CallFit::Full((), n_key), _) => match argument(tags, names, name, &rest[n_key..]) {
                CallFit::Full(argument, n_bytes) => {
                    progress.arguments.push(argument);
                    progress.at += n_key + n_bytes;
                }
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => return CallFit::Not,
            },
            (CallFit::Not, CallFit::Not) => return CallFit::Not,
            _ => return CallFit::Partial,
        }
    }
}

/// Reads one argument, from its name on.
fn argument(tags: &Tags, names: &Names, function: &str, text: &str) -> CallFit<(String, Value)> {
    let delimiter = tags.value.chars().find(|c| !c.is_whitespace());
    let Some(n_key) = delimiter.and_then(|c| text.find(c)) else {
        return CallFit::Partial;
    };
    let (key, rest) = (text[..n_key].trim(), &text[n_key..]);
    let (is_marked_text, n_mark) = match (loosely(rest, tags.value), loosely(rest, tags.json)) {
        (CallFit::Full((), n_mark), _) => (tags.value != tags.json, n_mark),
        (_, CallFit::Full((), n_mark)) => (false, n_mark),
        (CallFit::Not, CallFit::Not) => return CallFit::Not,
        _ => return CallFit::Partial,
    };
    let rest = &rest[n_mark..];
    // The schema is more reliable than the mark, which may be any word.
    let known = names.is_text(function, key);
    let fit = match known {
        Some(false) => json(tags, names.schema(function), key, rest),
        _ if tags.has_cdata => cdata(tags, rest),
        _ => CallFit::Not,
    };
    let fit = match fit {
        CallFit::Not => {
            let is_text = known.unwrap_or(is_marked_text);
            plain(tags, (names.schema(function), key), is_text, rest)
        }
        fit => fit,
    };
    fit.then(|value, n_value| CallFit::Full((key.to_owned(), value), n_key + n_mark + n_value))
}

/// Reads a JSON value, which may contain the end's text, and its end.
fn json(tags: &Tags, schema: &Value, key: &str, text: &str) -> CallFit<Value> {
    let rest = text.trim_start();
    let n_space = text.len() - rest.len();
    let read = match value(rest) {
        // Values printed by another language may leave quotes open in JSON.
        CallFit::Partial if !may_become_json(rest) => CallFit::Not,
        read => read,
    };
    read.then(|value, n_bytes| {
        if !may_be(&schema["properties"][key], schema, &value) {
            return CallFit::Not;
        }
        let n_bytes = n_space + n_bytes;
        loosely(&text[n_bytes..], tags.end.trim())
            .then(|(), n_end| CallFit::Full(value, n_bytes + n_end))
    })
}

/// Reads a string between CDATA marks, and its end.
fn cdata(tags: &Tags, text: &str) -> CallFit<Value> {
    let [open, close] = CDATA;
    let rest = text.trim_start();
    let at = text.len() - rest.len() + open.len();
    exactly(rest, open).then(|(), n_open| {
        for (n_value, _) in rest[n_open..].match_indices(close) {
            let behind = n_value + close.len();
            match exactly(&rest[n_open + behind..], tags.end.trim()) {
                CallFit::Full((), n_end) => {
                    let value = rest[n_open..n_open + n_value].into();
                    return CallFit::Full(value, at + behind + n_end);
                }
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => {}
            }
        }
        CallFit::Partial
    })
}

/// Reads a value up to the first text that ends one.
fn plain(tags: &Tags, (schema, key): (&Value, &str), is_text: bool, text: &str) -> CallFit<Value> {
    let end = tags.end.trim();
    let Some(n_value) = text.find(end) else {
        return CallFit::Partial;
    };
    let mut value = &text[..n_value];
    if tags.value.ends_with('\n') {
        value = value.strip_prefix('\n').unwrap_or(value);
    }
    if tags.end.starts_with('\n') {
        value = value.strip_suffix('\n').unwrap_or(value);
    }
    let value = match is_text {
        true => value.into(),
        false => unquoted(value, &schema["properties"][key], schema),
    };
    CallFit::Full(value, n_value + end.len())
}

/// The grammar rule for arguments of a schema.
pub(super) fn rule(tags: &Tags, schema: &Value, rules: &mut CallRules<'_>) -> String {
    let key = rules.marks.rule(tags.key);
    let members = members(schema);
    if members.is_empty() {
        return match schema["additionalProperties"] == false || schema["properties"].is_object() {
            true => String::new(),
            // Any name and any value.
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
        let value = value_rule(tags, member, schema, rules);
        let rule = rules.define("argument", &format!("{key} {} {value}", quoted(name)));
        out += &rule;
        out += if is_required { " " } else { "? " };
    }
    out
}

/// The grammar rule for a value with its tags.
fn value_rule(tags: &Tags, member: &Value, root: &Value, rules: &mut CallRules<'_>) -> String {
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
    if tags.has_cdata {
        let [open, close] = CDATA;
        let plain = rules.text_up_to(trimmed, &[open]);
        let marked = rules.text_up_to(&format!("{close}{trimmed}"), &[]);
        return format!("{value} ({plain} | {} {marked}) {behind}", quoted(open));
    }
    format!("{value} {} {behind}", rules.text_up_to(trimmed, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn complete_arguments_are_not_read_again() {
        let tags = Tags {
            key: "<a=",
            value: ">",
            json: ">",
            end: "</a>",
            has_cdata: false,
        };
        let schema = json!({"properties": {"x": {"type": "string"}, "y": {"type": "integer"}}});
        let names = Names::new([("f".to_owned(), schema)]);
        let mut progress = TaggedProgress::default();
        let mut read = |text: &str, start: usize| {
            arguments(&tags, "</f>", (&names, "f"), (text, start), &mut progress)
        };
        let call = "f:<a=x>one</a><a=y>2</a></f>";
        for end in 2..call.len() {
            assert_eq!(read(&call[..end], 2), CallFit::Partial, "{end}");
        }
        // If the text of the first argument changes, reading it again gives another value.
        let other = call.replace("one", "two");
        let value = json!({"x": "one", "y": 2});
        assert_eq!(read(&other, 2), CallFit::Full(value, call.len() - 2));
        // Arguments that begin elsewhere are read again.
        let value = json!({"x": "two", "y": 2});
        let longer = format!(" {other}");
        assert_eq!(read(&longer, 3), CallFit::Full(value, call.len() - 2));
    }
}
