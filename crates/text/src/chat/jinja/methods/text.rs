//! Methods of strings that test, pad and format.

use crate::chat::jinja::args::Args;
use crate::chat::jinja::chars;
use crate::chat::jinja::dict::Dict;
use crate::chat::jinja::fault::{self, FaultKind, Res, TemplateFault};
use crate::chat::jinja::markup;
use crate::chat::jinja::strformat;
use crate::chat::jinja::value::{Text, Value};
use std::rc::Rc;

/// The sides on which padding goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PadSide {
    Left,
    Right,
    Both,
}

pub(super) fn call(text: &Text, name: &str, args: Args) -> Res<Value> {
    fault::spend(text.text.len() / 64)?;
    let t = &*text.text;
    match name {
        "center" => pad(text, args, PadSide::Both),
        "ljust" => pad(text, args, PadSide::Right),
        "rjust" => pad(text, args, PadSide::Left),
        "zfill" => zero_fill(text, args),
        "format" => {
            let values = Value::Dict(Rc::new(Dict::new(
                args.named
                    .into_iter()
                    .map(|(name, value)| (Value::from(&*name), value)),
            )?));
            strformat::format(text, &args.positional, &values)
        }
        "format_map" => {
            let bound = args.bind_unnamed("format_map", &["mapping"], 1)?;
            let values = bound.get(0).cloned().unwrap_or(Value::None);
            strformat::format(text, &[], &values)
        }
        "translate" => translate(text, args),
        "maketrans" => make_translation(args),
        "unescape" => args
            .none("unescape")
            .map(|()| Value::from(markup::unescaped(t))),
        "striptags" => args
            .none("striptags")
            .map(|()| Value::from(markup::stripped_of_tags(t))),
        "encode" => Err(TemplateFault::new(
            FaultKind::Template,
            "encode makes bytes, which are no text for a prompt",
        )),
        "escape" => Err(TemplateFault::new(
            FaultKind::Template,
            "use the filter escape",
        )),
        _ => {
            args.none("a method that asks about a string")?;
            Ok(Value::Bool(is(t, name)))
        }
    }
}

/// `isalpha` and the like.
fn is(t: &str, name: &str) -> bool {
    let all = |is: fn(char) -> bool| !t.is_empty() && t.chars().all(is);
    match name {
        "isalnum" => all(chars::is_alnum),
        "isalpha" => all(chars::is_alpha),
        "isascii" => t.is_ascii(),
        "isdecimal" => all(chars::is_decimal),
        "isdigit" => all(chars::is_digit),
        "isidentifier" => chars::is_identifier(t),
        "isnumeric" => all(chars::is_numeric),
        "isprintable" => t.chars().all(chars::is_printable),
        "isspace" => all(chars::is_space),
        "islower" => is_lower(t),
        "isupper" => is_upper(t),
        _ => is_title(t),
    }
}

pub(crate) fn is_lower(t: &str) -> bool {
    let has_other = t.chars().any(|c| chars::is_upper(c) || chars::is_title(c));
    !has_other && t.chars().any(chars::is_lower)
}

pub(crate) fn is_upper(t: &str) -> bool {
    let has_other = t.chars().any(|c| chars::is_lower(c) || chars::is_title(c));
    !has_other && t.chars().any(chars::is_upper)
}

fn is_title(t: &str) -> bool {
    let (mut in_word, mut has_cased) = (false, false);
    for c in t.chars() {
        if chars::is_upper(c) || chars::is_title(c) {
            if in_word {
                return false;
            }
            (in_word, has_cased) = (true, true);
        } else if chars::is_lower(c) {
            if !in_word {
                return false;
            }
            has_cased = true;
        } else {
            in_word = false;
        }
    }
    has_cased
}

fn pad(text: &Text, args: Args, side: PadSide) -> Res<Value> {
    let bound = args.bind_unnamed("padding", &["width", "fillchar"], 1)?;
    let mut fill = match bound.get(1) {
        Some(_) => bound.str(1)?.chars(),
        None => " ".chars(),
    };
    let (Some(fill), None) = (fill.next(), fill.next()) else {
        return Err(TemplateFault::type_error(
            "the fill character must be exactly one character long",
        ));
    };
    let padded = padded(&text.text, bound.int(0, 0)?, fill, side)?;
    Ok(Value::text(padded, text.is_markup))
}

/// A text of at least a width.
pub(crate) fn padded(text: &str, width: i128, fill: char, side: PadSide) -> Res<String> {
    let n = text.chars().count();
    let missing = fault::width(width)?.saturating_sub(n);
    let left = match side {
        PadSide::Left => missing,
        PadSide::Right => 0,
        // The odd one goes to the left where the width is odd.
        PadSide::Both => missing / 2 + (missing & (n + missing) & 1),
    };
    let mut out = String::with_capacity(text.len() + missing);
    out.extend(std::iter::repeat_n(fill, left));
    out.push_str(text);
    out.extend(std::iter::repeat_n(fill, missing - left));
    Ok(out)
}

fn zero_fill(text: &Text, args: Args) -> Res<Value> {
    let bound = args.bind_unnamed("zfill", &["width"], 1)?;
    let width = bound.int(0, 0)?;
    let (sign, digits) = match text.text.chars().next() {
        Some('+' | '-') => text.text.split_at(1),
        _ => ("", &*text.text),
    };
    let digits = padded(digits, width - sign.len() as i128, '0', PadSide::Left)?;
    Ok(Value::text(format!("{sign}{digits}"), text.is_markup))
}

fn translate(text: &Text, args: Args) -> Res<Value> {
    let bound = args.bind_unnamed("translate", &["table"], 1)?;
    let Some(Value::Dict(table)) = bound.get(0) else {
        return Err(TemplateFault::type_error("translate needs a dictionary"));
    };
    let mut out = String::new();
    for c in text.text.chars() {
        match table.get(&Value::Int(i128::from(c as u32)))? {
            None => out.push(c),
            Some(Value::None) => {}
            Some(Value::Str(to)) => out.push_str(&to.text),
            Some(other) => {
                let code = other.as_int().and_then(|n| u32::try_from(n).ok());
                let Some(c) = code.and_then(char::from_u32) else {
                    return Err(TemplateFault::type_error(
                        "character mapping must return integer, None or str",
                    ));
                };
                out.push(c);
            }
        }
        fault::text(out.len().saturating_sub(4096))?;
    }
    Ok(Value::text(out, text.is_markup))
}

fn make_translation(args: Args) -> Res<Value> {
    let n = args.positional.len();
    let bound = args.bind_unnamed("maketrans", &["x", "y", "z"], 1)?;
    let code = |c: char| Value::Int(i128::from(c as u32));
    let mut pairs = Vec::new();
    if n == 1 {
        let Some(Value::Dict(dict)) = bound.get(0) else {
            return Err(TemplateFault::type_error(
                "if you give only one argument to maketrans it must be a dict",
            ));
        };
        for (key, value) in dict.iter() {
            let key = match key {
                Value::Str(text) => match &*text.text.chars().collect::<Vec<_>>() {
                    [c] => code(*c),
                    _ => return Err(TemplateFault::value_error("keys must be of length 1")),
                },
                other if other.as_int().is_some() => other.clone(),
                _ => {
                    return Err(TemplateFault::type_error(
                        "keys must be strings or integers",
                    ));
                }
            };
            pairs.push((key, value.clone()));
        }
    } else {
        let (from, to) = (bound.str(0)?, bound.str(1)?);
        if from.chars().count() != to.chars().count() {
            return Err(TemplateFault::value_error(
                "the first two maketrans arguments must have equal length",
            ));
        }
        pairs.extend(from.chars().map(code).zip(to.chars().map(code)));
        if n == 3 {
            pairs.extend(bound.str(2)?.chars().map(|c| (code(c), Value::None)));
        }
    }
    Ok(Value::Dict(Rc::new(Dict::new(pairs)?)))
}
