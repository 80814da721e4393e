//! Methods of strings that cut and join.

use crate::chat::jinja::args::{Args, BoundArgs};
use crate::chat::jinja::chars::{is_line_end, is_space};
use crate::chat::jinja::fault::{self, Res, TemplateFault};
use crate::chat::jinja::markup::escaped;
use crate::chat::jinja::value::{Text, Value};

pub(super) fn call(text: &Text, name: &str, args: Args) -> Res<Value> {
    fault::spend(text.text.len() / 64)?;
    let t = &*text.text;
    let one = |part: &str| Value::text(part, text.is_markup);
    let all = |parts: Vec<&str>| {
        fault::items(parts.len())?;
        Value::list(parts.into_iter().map(one).collect())
    };
    match name {
        "split" | "rsplit" => {
            let bound = args.bind("split", &["sep", "maxsplit"], 0, 0)?;
            let n = usize::try_from(bound.int(1, -1)?).ok();
            let parts = match bound.some_str(0)? {
                Some("") => return Err(TemplateFault::value_error("empty separator")),
                Some(separator) => by_separator(t, separator, n, name == "rsplit"),
                None if name == "rsplit" => words_from_the_end(t, n),
                None => words(t, n),
            };
            all(parts)
        }
        "splitlines" => {
            let bound = args.bind("splitlines", &["keepends"], 0, 0)?;
            all(lines(t, bound.is_true(0, false)))
        }
        "partition" | "rpartition" => {
            let bound = args.bind_unnamed("partition", &["sep"], 1)?;
            let separator = bound.str(0)?;
            if separator.is_empty() {
                return Err(TemplateFault::value_error("empty separator"));
            }
            let parts = match name {
                "partition" => t
                    .split_once(separator)
                    .map_or([t, "", ""], |(a, b)| [a, separator, b]),
                _ => t
                    .rsplit_once(separator)
                    .map_or(["", "", t], |(a, b)| [a, separator, b]),
            };
            Value::tuple(parts.map(one).to_vec())
        }
        "join" => join(text, args),
        "strip" | "lstrip" | "rstrip" => {
            let bound = args.bind_unnamed("strip", &["chars"], 0)?;
            let chars = bound.some_str(0)?;
            Ok(one(stripped(t, chars, name != "rstrip", name != "lstrip")))
        }
        "removeprefix" => {
            let bound = args.bind_unnamed("removeprefix", &["prefix"], 1)?;
            Ok(one(t.strip_prefix(bound.str(0)?).unwrap_or(t)))
        }
        "removesuffix" => {
            let bound = args.bind_unnamed("removesuffix", &["suffix"], 1)?;
            Ok(one(t.strip_suffix(bound.str(0)?).unwrap_or(t)))
        }
        _ => expand_tabs(text, &args.bind("expandtabs", &["tabsize"], 0, 0)?),
    }
}

/// A text without some characters at its ends; without spaces if no characters are given.
pub(crate) fn stripped<'t>(text: &'t str, chars: Option<&str>, start: bool, end: bool) -> &'t str {
    let is_out = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start {
        text.trim_start_matches(is_out)
    } else {
        text
    };
    if end {
        text.trim_end_matches(is_out)
    } else {
        text
    }
}

fn by_separator<'t>(
    text: &'t str,
    separator: &str,
    n: Option<usize>,
    is_right: bool,
) -> Vec<&'t str> {
    match (n, is_right) {
        (None, _) => text.split(separator).collect(),
        (Some(n), false) => text.splitn(n.saturating_add(1), separator).collect(),
        (Some(n), true) => {
            let mut parts: Vec<_> = text.rsplitn(n.saturating_add(1), separator).collect();
            parts.reverse();
            parts
        }
    }
}

/// Words between spaces; after `n` of them the unchanged rest.
fn words(text: &str, n: Option<usize>) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if n == Some(out.len()) {
            out.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        out.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    out
}

fn words_from_the_end(text: &str, n: Option<usize>) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if n == Some(out.len()) {
            out.push(rest);
            break;
        }
        let start = rest.rfind(is_space).map_or(0, |at| {
            at + rest[at..].chars().next().map_or(0, char::len_utf8)
        });
        out.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    out.reverse();
    out
}

/// The lines of a text by all of Unicode's line ends.
pub(crate) fn lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_line_end).unwrap_or(rest.len());
        let n_end = match rest[end..].chars().next() {
            Some('\r') if rest[end + 1..].starts_with('\n') => 2,
            Some(c) => c.len_utf8(),
            None => 0,
        };
        let shown = if keeps_ends { end + n_end } else { end };
        out.push(&rest[..shown]);
        rest = &rest[end + n_end..];
    }
    out
}

fn join(text: &Text, args: Args) -> Res<Value> {
    let bound = args.bind_unnamed("join", &["iterable"], 1)?;
    let items = bound.get(0).map_or(Ok(Vec::new()), Value::iterate)?;
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        let Value::Str(item) = item else {
            return Err(TemplateFault::type_error(format!(
                "sequence item {i}: expected str instance, {} found",
                item.type_name()
            )));
        };
        fault::text(out.len() + item.text.len() + text.text.len())?;
        if i > 0 {
            out.push_str(&text.text);
        }
        match text.is_markup && !item.is_markup {
            true => out.push_str(&escaped(&item.text)),
            false => out.push_str(&item.text),
        }
    }
    Ok(Value::text(out, text.is_markup))
}

fn expand_tabs(text: &Text, bound: &BoundArgs) -> Res<Value> {
    let size = bound.int(0, 8)?;
    let n_tabs = text.text.matches('\t').count();
    let size = match n_tabs {
        0 => 0,
        n => fault::width(size.saturating_mul(n as i128))? / n,
    };
    let (mut out, mut column) = (String::new(), 0);
    for c in text.text.chars() {
        match c {
            '\t' if size > 0 => {
                let n = size - column % size;
                out.extend(std::iter::repeat_n(' ', n));
                column += n;
            }
            '\t' => {}
            '\n' | '\r' => {
                column = 0;
                out.push(c);
            }
            c => {
                column += 1;
                out.push(c);
            }
        }
    }
    Ok(Value::text(out, text.is_markup))
}
