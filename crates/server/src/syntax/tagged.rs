//! Arguments that stand each between tags of their own.

use serde_json::Value;

use super::calls::Tags;
use super::fit::loosely;
use super::json::{CallFit, value};
use super::reader::Names;

/// The arguments of a function, and `after` behind them.
pub(super) fn arguments(
    tags: &Tags,
    after: &str,
    names: &Names,
    name: &str,
    text: &str,
) -> CallFit<Value> {
    let mut arguments = Vec::new();
    let fit = read(tags, after, names, name, text, &mut arguments);
    fit.then(|(), n_bytes| CallFit::Full(Value::Object(arguments.into_iter().collect()), n_bytes))
}

/// Those arguments that are complete, of a call that need not be, in their order.
pub(super) fn complete(
    tags: &Tags,
    after: &str,
    names: &Names,
    name: &str,
    text: &str,
) -> Vec<(String, Value)> {
    let mut arguments = Vec::new();
    read(tags, after, names, name, text, &mut arguments);
    arguments
}

fn read(
    tags: &Tags,
    after: &str,
    names: &Names,
    name: &str,
    text: &str,
    arguments: &mut Vec<(String, Value)>,
) -> CallFit<()> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let key = loosely(rest, tags.key);
        match (key, loosely(rest, after)) {
            (_, CallFit::Full((), n_bytes)) => return CallFit::Full((), at + n_bytes),
            (CallFit::Full((), n_key), _) => match argument(tags, names, name, &rest[n_key..]) {
                CallFit::Full(argument, n_bytes) => {
                    arguments.push(argument);
                    at += n_key + n_bytes;
                }
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => return CallFit::Not,
            },
            (CallFit::Not, CallFit::Not) => return CallFit::Not,
            _ => return CallFit::Partial,
        }
    }
}

/// One argument, from its name on.
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
    let end = tags.end.trim();
    // The schema says it more surely than a mark, which may be any word.
    let known = names.is_text(function, key);
    let is_text = known.unwrap_or(is_marked_text);
    if known == Some(false) {
        // JSON may have the end's text within.
        let read = value(rest.trim_start());
        let n_space = rest.len() - rest.trim_start().len();
        match read.then(|value, n_bytes| {
            let n_bytes = n_space + n_bytes;
            loosely(&rest[n_bytes..], end).then(|(), n_end| CallFit::Full(value, n_bytes + n_end))
        }) {
            CallFit::Full(value, n_bytes) => {
                return CallFit::Full((key.to_owned(), value), n_key + n_mark + n_bytes);
            }
            CallFit::Partial => return CallFit::Partial,
            CallFit::Not => {}
        }
    }
    let Some(n_value) = rest.find(end) else {
        return CallFit::Partial;
    };
    let mut value = &rest[..n_value];
    if tags.value.ends_with('\n') {
        value = value.strip_prefix('\n').unwrap_or(value);
    }
    if tags.end.starts_with('\n') {
        value = value.strip_suffix('\n').unwrap_or(value);
    }
    let value = match is_text {
        true => value.into(),
        false => serde_json::from_str(value.trim()).unwrap_or_else(|_| value.into()),
    };
    CallFit::Full(
        (key.to_owned(), value),
        n_key + n_mark + n_value + end.len(),
    )
}
