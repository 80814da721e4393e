//! Parses single calls in text.

use serde_json::Value;

use super::calls::{Arguments, CallSyntax};
use super::json::{CallFit, object};
use super::lark::BLANKS;
use super::preview::CallPreview;
use super::reader::{AnswerPart, Names};
use super::tagged::TaggedProgress;
use super::{elements, python, tagged};

/// Whether a text begins with a pattern, ignoring white space. The text may be incomplete.
pub(super) fn loosely(text: &str, pattern: &str) -> CallFit<()> {
    let (mut at, mut left) = (0, pattern.trim_start());
    while let Some(wanted) = left.chars().next() {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        let blank = BLANKS.iter().find(|(blank, _)| left.starts_with(blank));
        if let Some((blank, _)) = blank {
            let n_bytes = rest.find(|c: char| !is_of_blank(blank, c));
            match n_bytes {
                None => return CallFit::Partial,
                Some(0) => return CallFit::Not,
                Some(n_bytes) => at += n_bytes,
            }
            left = left[blank.len()..].trim_start();
            continue;
        }
        match rest.chars().next() {
            None => return CallFit::Partial,
            Some(found) if found == wanted => at += found.len_utf8(),
            Some(_) => return CallFit::Not,
        }
        left = left[wanted.len_utf8()..].trim_start();
    }
    CallFit::Full((), at)
}

/// Whether a text begins with a word. The text may be incomplete.
pub(super) fn exactly(text: &str, word: &str) -> CallFit<()> {
    match text.starts_with(word) {
        true => CallFit::Full((), word.len()),
        false if word.starts_with(text) => CallFit::Partial,
        false => CallFit::Not,
    }
}

fn is_of_blank(blank: &str, c: char) -> bool {
    match blank {
        "⟨n⟩" => c.is_ascii_digit(),
        "⟨w⟩" => c.is_ascii_lowercase(),
        _ => c.is_ascii_alphanumeric() || "_-".contains(c),
    }
}

/// Reads a function's name, up to the first character that names do not have.
fn name(text: &str) -> CallFit<&str> {
    let rest = text.trim_start();
    let n_space = text.len() - rest.len();
    match rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))) {
        None => CallFit::Partial,
        Some(0) => CallFit::Not,
        Some(n_bytes) => CallFit::Full(&rest[..n_bytes], n_space + n_bytes),
    }
}

/// Reads the call at the beginning of a text: its name, and its arguments. Arguments in tags that were read are kept
/// for a longer text.
pub(super) fn call(
    syntax: &CallSyntax,
    names: &Names,
    text: &str,
    progress: &mut TaggedProgress,
) -> CallFit<(String, Value)> {
    if let Some(members) = members_in_any_order(syntax) {
        return whole_object(syntax, names, text, members);
    }
    head(syntax, names, text).then(|name, at| {
        let read = arguments(syntax, (names, name), (text, at), progress);
        read.then(|value, n_bytes| CallFit::Full((name.to_owned(), value), at + n_bytes))
    })
}

/// The members of a call that is one JSON object, if any order is allowed. A bare call must have its grammar's order
/// and spelling, since any other object is an answer.
fn members_in_any_order(syntax: &CallSyntax) -> Option<[&'static str; 2]> {
    match syntax.arguments {
        Arguments::Json(Some((name, arguments))) if !syntax.is_bare => Some([name, arguments]),
        _ => None,
    }
}

/// Reads the text before the name of a call.
fn before(syntax: &CallSyntax, text: &str) -> CallFit<()> {
    let usual = loosely(text, syntax.before);
    let other = match syntax.also_before.is_empty() {
        true => CallFit::Not,
        false => loosely(text, syntax.also_before),
    };
    match (usual, other) {
        (CallFit::Not, other) => other,
        (CallFit::Partial, other @ CallFit::Full(..)) => other,
        (usual, _) => usual,
    }
}

/// Reads the name of a call, and the text around it.
fn head<'t>(syntax: &CallSyntax, names: &Names, text: &'t str) -> CallFit<&'t str> {
    before(syntax, text).then(|(), at| {
        name(&text[at..]).then(|name, n_name| {
            if !names.has(name) {
                return CallFit::Not;
            }
            let at = at + n_name;
            loosely(&text[at..], syntax.middle)
                .then(|(), n_middle| CallFit::Full(name, at + n_middle))
        })
    })
}

/// Reports the certain part of the call that begins at byte `at` of the held text: its name, and the arguments
/// received so far. [`call`] has read that text with the same progress.
pub(super) fn preview(
    syntax: &CallSyntax,
    names: &Names,
    (held, at, progress): (&str, usize, &TaggedProgress),
    preview: &mut Option<CallPreview>,
    out: &mut Vec<AnswerPart>,
) {
    if let Some(preview) = preview.as_mut().filter(|preview| preview.is_open()) {
        return preview.follow(held, out);
    }
    let text = &held[at..];
    let fit = match members_in_any_order(syntax) {
        Some(members) => object_head(syntax, text, members),
        None => head(syntax, names, text).then(|name, at| CallFit::Full(name.to_owned(), at)),
    };
    let CallFit::Full(name, n_head) = fit else {
        return;
    };
    let rest = text[n_head..].trim_start();
    let read;
    let members = match &syntax.arguments {
        Arguments::Tagged(_) => progress.arguments(),
        Arguments::Python => {
            read = python::complete(rest, syntax.after, false);
            &read
        }
        Arguments::Gemma => {
            read = python::complete(rest, syntax.after, true);
            &read
        }
        Arguments::Elements(mark) => {
            read = elements::complete(mark, syntax.after, (names, &name), rest);
            &read
        }
        Arguments::Json(_) | Arguments::Harmony | Arguments::Functionary => {
            if preview.is_none() && rest.starts_with('{') && names.has(&name) {
                let json_at = held.len() - rest.len();
                let begun = preview.insert(CallPreview::begin(&name, Some(json_at), out));
                begun.follow(held, out);
            }
            return;
        }
    };
    if !members.is_empty() {
        preview
            .get_or_insert_with(|| CallPreview::begin(&name, None, out))
            .tell_members(members, out);
    }
}

/// Finds the name in a call that is one JSON object, and the start of its arguments. Only if the name comes first.
fn object_head(
    syntax: &CallSyntax,
    text: &str,
    [name_key, arguments_key]: [&str; 2],
) -> CallFit<String> {
    let before = syntax.before.split('{').next().unwrap_or_default();
    let (mut name, mut mark) = (None, "{");
    loosely(text, before).then(|(), mut at| {
        loop {
            let key = loosely(&text[at..], mark).then(|(), n_mark| {
                scalar(&text[at + n_mark..]).then(|key, n_key| {
                    let n_key = n_mark + n_key;
                    loosely(&text[at + n_key..], ":")
                        .then(|(), n_colon| CallFit::Full(key, n_key + n_colon))
                })
            });
            let (key, n_key) = match key {
                CallFit::Full(key, n_key) => (key, n_key),
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => return CallFit::Not,
            };
            at += n_key;
            if let Some(name) = name.take_if(|_| key == arguments_key) {
                return CallFit::Full(name, at);
            }
            match scalar(&text[at..]) {
                CallFit::Full(value, n_value) => {
                    at += n_value;
                    if key == name_key {
                        name = value.as_str().map(str::to_owned);
                    }
                }
                CallFit::Partial => return CallFit::Partial,
                CallFit::Not => return CallFit::Not,
            }
            mark = ",";
        }
    })
}

/// Reads a string, a number or a word of JSON, followed by something.
fn scalar(text: &str) -> CallFit<Value> {
    let rest = text.trim_start();
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    match values.next() {
        Some(Ok(Value::Object(_) | Value::Array(_))) => CallFit::Not,
        Some(Ok(_)) if values.byte_offset() == rest.len() => CallFit::Partial,
        Some(Ok(value)) => CallFit::Full(value, text.len() - rest.len() + values.byte_offset()),
        Some(Err(error)) if error.is_eof() && !rest.starts_with(['{', '[']) => CallFit::Partial,
        Some(Err(_)) => CallFit::Not,
        None => CallFit::Partial,
    }
}

/// Reads arguments, and the text after them.
fn arguments(
    syntax: &CallSyntax,
    (names, name): (&Names, &str),
    (call, start): (&str, usize),
    progress: &mut TaggedProgress,
) -> CallFit<Value> {
    let (after, text) = (syntax.after, &call[start..]);
    match &syntax.arguments {
        Arguments::Tagged(tags) => {
            tagged::arguments(tags, after, (names, name), (call, start), progress)
        }
        Arguments::Python => python::arguments(text, after),
        Arguments::Gemma => python::gemma_arguments(text, after),
        Arguments::Elements(mark) => elements::arguments(mark, after, (names, name), text),
        Arguments::Json(_) | Arguments::Harmony | Arguments::Functionary => {
            let rest = text.trim_start();
            let n_space = text.len() - rest.len();
            object(rest).then(|value, n_bytes| {
                let at = n_space + n_bytes;
                loosely(&text[at..], after).then(|(), n_after| CallFit::Full(value, at + n_after))
            })
        }
    }
}

/// Reads a call that is one JSON object, with its members in any order.
fn whole_object(
    syntax: &CallSyntax,
    names: &Names,
    text: &str,
    members: [&'static str; 2],
) -> CallFit<(String, Value)> {
    let before = syntax.before.split('{').next().unwrap_or_default();
    let after = syntax.after.rsplit('}').next().unwrap_or_default();
    loosely(text, before).then(|(), at| {
        let rest = text[at..].trim_start();
        let at = text.len() - rest.len();
        object(rest).then(|value, n_bytes| {
            let Some(call) = of_object(value, names, members) else {
                return CallFit::Not;
            };
            let at = at + n_bytes;
            loosely(&text[at..], after).then(|(), n_after| CallFit::Full(call, at + n_after))
        })
    })
}

fn of_object(
    mut value: Value,
    names: &Names,
    [name, arguments]: [&str; 2],
) -> Option<(String, Value)> {
    let called = value.get(name)?.as_str()?.to_owned();
    if !names.has(&called) {
        return None;
    }
    let object = value.as_object_mut()?;
    let found = [arguments, "arguments", "parameters"];
    let arguments = match found.iter().find_map(|key| object.remove(*key))? {
        // JSON encoded twice, as some templates show earlier calls.
        Value::String(text) => serde_json::from_str(&text).ok()?,
        arguments => arguments,
    };
    arguments.is_object().then_some((called, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_matters_to_no_pattern() {
        for (text, pattern, fit) in [
            ("<a>\n {\"b", "<a>{\"b", CallFit::Full((), 8)),
            ("<a>{", "<a>\n{\"", CallFit::Partial),
            ("", "<a>", CallFit::Partial),
            ("<b>", "<a>", CallFit::Not),
            (":12<x>", ":⟨n⟩<x>", CallFit::Full((), 6)),
            (":12", ":⟨n⟩<x>", CallFit::Partial),
            (":a", ":⟨n⟩<x>", CallFit::Not),
            ("any", "", CallFit::Full((), 0)),
        ] {
            assert_eq!(loosely(text, pattern), fit, "{text:?} {pattern:?}");
        }
    }
}
