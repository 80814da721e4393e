//! `pprint`: Python's `pprint.pformat` of 80 columns.

use crate::chat::jinja::chars::is_space;
use crate::chat::jinja::compare::order;
use crate::chat::jinja::dict::Dict;
use crate::chat::jinja::fault::{self, Res};
use crate::chat::jinja::methods::lines;
use crate::chat::jinja::repr::to_repr;
use crate::chat::jinja::value::Value;
use std::cmp::Ordering;
use std::rc::Rc;

const WIDTH: usize = 80;

pub(super) fn format(value: &Value) -> Res<String> {
    let mut out = String::new();
    write(&in_order(value)?, &mut out, 0, 0, 0)?;
    Ok(out)
}

/// The value with the keys of its dictionaries in order.
fn in_order(value: &Value) -> Res<Value> {
    fault::spend(1)?;
    let all = |items: &[Value]| items.iter().map(in_order).collect::<Res<Vec<_>>>();
    match value {
        Value::List(list) => Value::list(all(&list.items)?),
        Value::Tuple(list) if !list.is_group => Value::tuple(all(&list.items)?),
        Value::Dict(dict) => {
            let mut pairs = Vec::with_capacity(dict.len());
            for (key, value) in dict.iter() {
                pairs.push((key.clone(), in_order(value)?));
            }
            pairs.sort_by(|(a, _), (b, _)| match order(a, b, "<") {
                Ok(order) => order.unwrap_or(Ordering::Equal),
                Err(_) => a.type_name().cmp(b.type_name()),
            });
            Ok(Value::Dict(Rc::new(Dict::new(pairs)?)))
        }
        other => Ok(other.clone()),
    }
}

fn n_chars(text: &str) -> usize {
    text.chars().count()
}

/// Writes a value that starts in the column `indent` and has `after` characters behind it.
fn write(value: &Value, out: &mut String, indent: usize, after: usize, level: u32) -> Res<()> {
    let text = to_repr(value)?;
    fault::text(out.len() + text.len() + indent)?;
    if n_chars(&text) + indent + after <= WIDTH {
        out.push_str(&text);
        return Ok(());
    }
    match value {
        Value::Dict(dict) => {
            out.push('{');
            let n = dict.len();
            for (i, (key, value)) in dict.iter().enumerate() {
                let key = to_repr(key)?;
                let column = indent + 1 + n_chars(&key) + 2;
                out.extend([&key, ": "]);
                let is_last = i + 1 == n;
                write(
                    value,
                    out,
                    column,
                    if is_last { after + 1 } else { 1 },
                    level + 1,
                )?;
                if !is_last {
                    new_line(out, indent + 1, ",");
                }
            }
            out.push('}');
        }
        Value::List(list) => items(&list.items, ["[", "]"], out, indent, after, level)?,
        Value::Tuple(list) if !list.is_group => {
            let close = if list.items.len() == 1 { ",)" } else { ")" };
            items(&list.items, ["(", close], out, indent, after, level)?;
        }
        Value::Str(text) if !text.is_markup && !text.text.is_empty() => {
            string(&text.text, out, indent, after, level + 1)?;
        }
        _ => out.push_str(&text),
    }
    Ok(())
}

fn new_line(out: &mut String, indent: usize, end: &str) {
    out.push_str(end);
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

fn items(
    all: &[Value],
    [open, close]: [&str; 2],
    out: &mut String,
    indent: usize,
    after: usize,
    level: u32,
) -> Res<()> {
    out.push_str(open);
    for (i, item) in all.iter().enumerate() {
        let is_last = i + 1 == all.len();
        let after = if is_last { after + close.len() } else { 1 };
        write(item, out, indent + 1, after, level + 1)?;
        if !is_last {
            new_line(out, indent + 1, ",");
        }
    }
    out.push_str(close);
    Ok(())
}

/// A long text in pieces: lines, and words where a line is too long.
fn string(text: &str, out: &mut String, indent: usize, after: usize, level: u32) -> Res<()> {
    let is_outermost = level == 1;
    let (indent, after) = match is_outermost {
        true => (indent + 1, after + 1),
        false => (indent, after),
    };
    let width = WIDTH as isize - indent as isize;
    let lines = lines(text, true);
    let quoted = |text: &str| to_repr(&Value::from(text));
    let fits = |text: &str, width: isize| n_chars(text) as isize <= width;
    let mut chunks = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let is_last_line = i + 1 == lines.len();
        let room = width - if is_last_line { after as isize } else { 0 };
        let whole = quoted(line)?;
        if fits(&whole, room) {
            chunks.push(whole);
            continue;
        }
        let words = words(line);
        let mut current = String::new();
        for (j, word) in words.iter().enumerate() {
            fault::spend(1 + current.len() / 16)?;
            let candidate = format!("{current}{word}");
            let is_last = is_last_line && j + 1 == words.len();
            let room = width - if is_last { after as isize } else { 0 };
            if fits(&quoted(&candidate)?, room) {
                current = candidate;
                continue;
            }
            if !current.is_empty() {
                chunks.push(quoted(&current)?);
            }
            current = (*word).to_owned();
        }
        if !current.is_empty() {
            chunks.push(quoted(&current)?);
        }
    }
    if let [_] = &chunks[..] {
        // A single piece is written as a plain line.
        out.push_str(&quoted(lines.last().unwrap_or(&""))?);
        return Ok(());
    }
    if is_outermost {
        out.push('(');
    }
    for (i, chunk) in chunks.iter().enumerate() {
        if i > 0 {
            new_line(out, indent, "");
        }
        out.push_str(chunk);
    }
    if is_outermost {
        out.push(')');
    }
    Ok(())
}

/// Words, each with the spaces behind it.
fn words(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let word = rest.find(is_space).unwrap_or(rest.len());
        let spaces = rest[word..]
            .find(|c| !is_space(c))
            .unwrap_or(rest.len() - word);
        out.push(&rest[..word + spaces]);
        rest = &rest[word + spaces..];
    }
    out
}
