//! Calls in text, one at a time.

use serde_json::Value;

use super::calls::{Arguments, CallSyntax};
use super::json::{CallFit, object};
use super::lark::BLANKS;
use super::reader::Names;
use super::{python, tagged};

/// Whether a text begins with a pattern, apart from white space. The text may be cut.
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

fn is_of_blank(blank: &str, c: char) -> bool {
    match blank {
        "⟨n⟩" => c.is_ascii_digit(),
        "⟨w⟩" => c.is_ascii_lowercase(),
        _ => c.is_ascii_alphanumeric() || "_-".contains(c),
    }
}

/// A name of a function, up to whatever no name has.
fn name(text: &str) -> CallFit<&str> {
    let rest = text.trim_start();
    let n_space = text.len() - rest.len();
    match rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))) {
        None => CallFit::Partial,
        Some(0) => CallFit::Not,
        Some(n_bytes) => CallFit::Full(&rest[..n_bytes], n_space + n_bytes),
    }
}

/// The call that a text begins with: its name, and its arguments.
pub(super) fn call(syntax: &CallSyntax, names: &Names, text: &str) -> CallFit<(String, Value)> {
    if let Arguments::Json(Some((name, arguments))) = syntax.arguments {
        return whole_object(syntax, names, text, [name, arguments]);
    }
    loosely(text, syntax.before).then(|(), at| {
        name(&text[at..]).then(|name, n_name| {
            if !names.has(name) {
                return CallFit::Not;
            }
            let at = at + n_name;
            loosely(&text[at..], syntax.middle).then(|(), n_middle| {
                let at = at + n_middle;
                let read = arguments(syntax, names, name, &text[at..]);
                read.then(|value, n_bytes| CallFit::Full((name.to_owned(), value), at + n_bytes))
            })
        })
    })
}

/// Arguments, and what stands behind them.
fn arguments(syntax: &CallSyntax, names: &Names, name: &str, text: &str) -> CallFit<Value> {
    let after = syntax.after;
    match &syntax.arguments {
        Arguments::Tagged(tags) => tagged::arguments(tags, after, names, name, text),
        Arguments::Python => python::arguments(text, after),
        Arguments::Gemma => python::gemma_arguments(text, after),
        Arguments::Json(_) | Arguments::Harmony => {
            let rest = text.trim_start();
            let n_space = text.len() - rest.len();
            object(rest).then(|value, n_bytes| {
                let at = n_space + n_bytes;
                loosely(&text[at..], after).then(|(), n_after| CallFit::Full(value, at + n_after))
            })
        }
    }
}

/// A call that is one JSON object, whose members may come in any order.
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
    let arguments = found.iter().find_map(|key| object.remove(*key))?;
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
