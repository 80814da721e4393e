//! Filters of texts.

use super::soft_str;
use crate::chat::jinja::access::Path;
use crate::chat::jinja::args::Args;
use crate::chat::jinja::chars;
use crate::chat::jinja::dict::Dict;
use crate::chat::jinja::fault::{self, FaultKind, Res, TemplateFault};
use crate::chat::jinja::interp::Interp;
use crate::chat::jinja::markup::{escaped, stripped_of_tags};
use crate::chat::jinja::methods::{self, PadSide, lines, padded};
use crate::chat::jinja::value::{Text, Value};
use crate::chat::jinja::{printf, repr};
use std::rc::Rc;

pub(super) fn call(interp: &mut Interp, name: &str, value: &Value, args: Args) -> Res<Value> {
    match name {
        "indent" => indent(value, args),
        "truncate" => truncate(value, args),
        "replace" => replace(interp, value, args),
        "format" => format(value, args),
        "urlencode" => {
            args.none("urlencode")?;
            urlencode(value)
        }
        "xmlattr" => xmlattr(interp, value, args),
        "center" => {
            let bound = args.bind("center", &["width"], 0, 0)?;
            of_text(value, |text| {
                padded(text, bound.int(0, 80)?, ' ', PadSide::Both)
            })
        }
        "trim" => {
            let bound = args.bind("trim", &["chars"], 0, 0)?;
            let chars = bound.some_str(0)?;
            of_text(value, |text| {
                Ok(methods::stripped(text, chars, true, true).to_owned())
            })
        }
        _ => {
            args.none("the filter")?;
            plain(name, value)
        }
    }
}

/// A text made of another one, which is markup if that one is.
fn of_text(value: &Value, make: impl FnOnce(&str) -> Res<String>) -> Res<Value> {
    match soft_str(value)? {
        Value::Str(text) => {
            fault::text(text.text.len() * 4)?;
            Ok(Value::text(make(&text.text)?, text.is_markup))
        }
        other => Ok(other),
    }
}

fn plain(name: &str, value: &Value) -> Res<Value> {
    match name {
        "upper" => of_text(value, |text| Ok(text.to_uppercase())),
        "lower" => of_text(value, |text| Ok(methods::lowered(text))),
        "capitalize" => of_text(value, |text| Ok(methods::capitalized(text))),
        "title" => of_text(value, |text| Ok(title(text))).map(|text| match text {
            Value::Str(text) => Value::text(text.text, false),
            other => other,
        }),
        "wordcount" => {
            let text = repr::to_str(value)?;
            let words = text.split(|c| !chars::is_word(c));
            Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
        }
        "striptags" => repr::to_str(value).map(|text| Value::from(stripped_of_tags(&text))),
        "string" => soft_str(value),
        "safe" => repr::to_str(value).map(Value::markup),
        "escape" | "e" => match value {
            Value::Str(text) if text.is_markup => Ok(value.clone()),
            other => Ok(Value::markup(escaped(&repr::to_str(other)?))),
        },
        _ => Ok(Value::markup(escaped(&repr::to_str(value)?))),
    }
}

/// The filter `title`, which finds words by the characters before them.
fn title(text: &str) -> String {
    let is_before = |c: char| chars::is_space(c) || "-({[<".contains(c);
    let lower = methods::lowered(text);
    let mut out = String::with_capacity(text.len());
    let (mut starts, mut at) = (true, 0);
    for c in text.chars() {
        let n = c.to_lowercase().map(char::len_utf8).sum::<usize>();
        match starts {
            true => out.extend(c.to_uppercase()),
            false => out.push_str(&lower[at..at + n]),
        }
        starts = is_before(c);
        at += n;
    }
    out
}

/// Refuses any value other than a text.
fn needs_text(value: &Value) -> Res<&Text> {
    match value {
        Value::Str(text) => Ok(text),
        Value::Undefined(_) => Err(value.undefined_fault()),
        other => Err(TemplateFault::type_error(format!(
            "expected a string, found {}",
            other.type_name()
        ))),
    }
}

fn indent(value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("indent", &["width", "first", "blank"], 0, 0)?;
    let text = needs_text(value)?;
    let with = match bound.get(0) {
        Some(Value::Str(with)) if text.is_markup && !with.is_markup => escaped(&with.text),
        Some(Value::Str(with)) => with.text.to_string(),
        _ => " ".repeat(fault::width(bound.int(0, 4)?)?),
    };
    let source = format!("{}\n", text.text);
    let lines = lines(&source, false);
    fault::text(text.text.len() + lines.len().saturating_mul(with.len()))?;
    let is_blank_too = bound.is_true(2, false);
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let is_in = match i {
            0 => bound.is_true(1, false),
            _ => is_blank_too || !line.is_empty(),
        };
        if i > 0 {
            out.push('\n');
        }
        if is_in {
            out.push_str(&with);
        }
        out.push_str(line);
    }
    Ok(Value::text(out, text.is_markup))
}

fn truncate(value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("truncate", &["length", "killwords", "end", "leeway"], 0, 0)?;
    let length = bound.int(0, 255)?;
    let end = match bound.get(2) {
        Some(_) => bound.str(2)?,
        None => "...",
    };
    let leeway = bound.some_int(3)?.unwrap_or(5);
    let n_end = end.chars().count() as i128;
    if length < n_end || leeway < 0 {
        return Err(TemplateFault::new(
            FaultKind::Template,
            "expected a length of at least that of the end, and no negative leeway",
        ));
    }
    let n = value.length()? as i128;
    if n <= length.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let text = needs_text(value)?;
    let kept: String = text.text.chars().take((length - n_end) as usize).collect();
    let kept = match bound.is_true(1, false) {
        true => &kept[..],
        false => kept
            .rsplit_once(' ')
            .map_or(&kept[..], |(before, _)| before),
    };
    Ok(Value::text(format!("{kept}{end}"), text.is_markup))
}

fn replace(interp: &Interp, value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("replace", &["old", "new", "count"], 2, 0)?;
    let part = |at: usize| bound.get(at).map_or(Ok(String::new()), repr::to_str);
    let count = bound.some_int(2)?.unwrap_or(-1);
    let is_markup = |at: usize| bound.get(at).is_some_and(Value::is_markup);
    if !interp.is_escaping {
        let text = repr::to_str(value)?;
        let out = methods::replaced(&text, &part(0)?, &part(1)?, count)?;
        return Ok(Value::from(out));
    }
    // Markup in a part makes markup of the whole.
    let text = match is_markup(0) || (is_markup(1) && !value.is_markup()) {
        true if !value.is_markup() => Value::markup(escaped(&repr::to_str(value)?)),
        _ => soft_str(value)?,
    };
    let new = match text.is_markup() && !is_markup(1) {
        true => escaped(&part(1)?),
        false => part(1)?,
    };
    let out = methods::replaced(&repr::to_str(&text)?, &part(0)?, &new, count)?;
    Ok(Value::text(out, text.is_markup()))
}

/// `join(d="", attribute=None)`
pub(super) fn join(interp: &Interp, value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("join", &["d", "attribute"], 0, 0)?;
    let mut items = value.iterate()?;
    if let Some(attribute) = bound.given(1) {
        let path = Path::new(attribute);
        items = items
            .iter()
            .map(|item| path.of(item, None))
            .collect::<Res<_>>()?;
    }
    let separator = bound.get(0).cloned().unwrap_or_else(|| Value::from(""));
    let all = || items.iter().chain([&separator]);
    let is_markup = interp.is_escaping && all().any(Value::is_markup);
    let part = |value: &Value| -> Res<String> {
        let text = repr::to_str(value)?;
        Ok(match is_markup && !value.is_markup() {
            true => escaped(&text),
            false => text,
        })
    };
    let between = part(&separator)?;
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        let text = part(item)?;
        fault::text(out.len() + between.len() + text.len())?;
        if i > 0 {
            out.push_str(&between);
        }
        out.push_str(&text);
    }
    Ok(Value::text(out, is_markup))
}

fn format(value: &Value, args: Args) -> Res<Value> {
    if !args.positional.is_empty() && !args.named.is_empty() {
        return Err(TemplateFault::new(
            FaultKind::Template,
            "can't handle positional and keyword arguments at the same time",
        ));
    }
    let Value::Str(pattern) = soft_str(value)? else {
        return Ok(Value::from(""));
    };
    let values = match args.named.is_empty() {
        true => Value::tuple(args.positional)?,
        false => {
            let pairs = args.named.into_iter();
            let pairs = pairs.map(|(name, value)| (Value::from(&*name), value));
            Value::Dict(Rc::new(Dict::new(pairs)?))
        }
    };
    printf::format(&pattern, &values)
}

/// A text for a part of an address.
fn quoted(value: &Value, is_query: bool) -> Res<String> {
    let text = repr::to_str(value)?;
    fault::text(text.len() * 3)?;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'/' if !is_query => out.push('/'),
            b' ' if is_query => out.push('+'),
            b'_' | b'.' | b'-' | b'~' => out.push(byte.into()),
            b if b.is_ascii_alphanumeric() => out.push(b.into()),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    Ok(out)
}

fn urlencode(value: &Value) -> Res<Value> {
    let pairs = match value {
        Value::Dict(dict) => {
            let pairs = dict.iter();
            pairs
                .map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()]))
                .collect::<Res<Vec<_>>>()?
        }
        Value::Str(_) | Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            return quoted(value, false).map(Value::from);
        }
        Value::Object(_) => return quoted(value, false).map(Value::from),
        other => other.iterate()?,
    };
    let mut out = Vec::new();
    for pair in pairs {
        let [key, value] = <[Value; 2]>::try_from(pair.iterate()?)
            .map_err(|_| TemplateFault::value_error("urlencode needs pairs"))?;
        out.push(format!("{}={}", quoted(&key, true)?, quoted(&value, true)?));
    }
    Ok(Value::from(out.join("&")))
}

fn xmlattr(interp: &Interp, value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("xmlattr", &["autospace"], 0, 0)?;
    let Value::Dict(dict) = value else {
        if value.is_undefined() {
            return Err(value.undefined_fault());
        }
        return Err(TemplateFault::type_error(format!(
            "'{}' object has no attribute 'items'",
            value.type_name()
        )));
    };
    let part = |value: &Value| -> Res<String> {
        let text = repr::to_str(value)?;
        Ok(if value.is_markup() {
            text
        } else {
            escaped(&text)
        })
    };
    let mut out = Vec::new();
    for (key, value) in dict.iter() {
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let name = needs_text(key)?;
        let is_wrong = |c: char| " \t\n\r\x0c\x0b/>=".contains(c);
        if name.text.contains(is_wrong) {
            return Err(TemplateFault::value_error(
                "invalid character in attribute name",
            ));
        }
        out.push(format!("{}=\"{}\"", part(key)?, part(value)?));
    }
    let mut out = out.join(" ");
    if bound.is_true(0, true) && !out.is_empty() {
        out.insert(0, ' ');
    }
    Ok(Value::text(out, interp.is_escaping))
}
