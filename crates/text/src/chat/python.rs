//! Values as Python writes them: `json.dumps` and `str`.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// The arguments of `json.dumps`.
#[derive(Debug)]
pub(super) struct JsonStyle {
    pub(super) ensure_ascii: bool,
    /// What a level of nesting is indented by; `None` keeps everything on one line.
    indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> JsonStyle {
        JsonStyle {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }
}

/// More would only make huge output.
const MAX_INDENT: usize = 64;

impl JsonStyle {
    /// Sets the indentation: a number of spaces or a string. The separator of items loses its
    /// space.
    pub(super) fn set_indent(&mut self, indent: &Value) -> Result<(), Error> {
        let text = match (indent.as_str(), indent.as_usize()) {
            (Some(text), _) if text.len() <= MAX_INDENT => text.to_owned(),
            (None, Some(n)) if n <= MAX_INDENT => " ".repeat(n),
            _ => {
                let reason = format!("indent must be at most {MAX_INDENT} spaces");
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        };
        self.indent = Some(text);
        self.item_separator = ",".to_owned();
        Ok(())
    }
}

/// `json.dumps(value)`
pub(super) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_json(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value, ["NaN", "Infinity", "-Infinity"])),
        ValueKind::String => json_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            container(['[', ']'], items.len(), style, depth, out, |i, out| {
                write_json(&items[i], style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            container(['{', '}'], keys.len(), style, depth, out, |i, out| {
                json_key(&keys[i], style, out)?;
                out.push_str(&style.key_separator);
                write_json(&value.get_item(&keys[i])?, style, depth + 1, out)
            })?;
        }
        _ => return Err(not_json(value)),
    }
    Ok(())
}

fn not_json(value: &Value) -> Error {
    let reason = format!("a value of type {} is not JSON serializable", value.kind());
    Error::new(ErrorKind::BadSerialization, reason)
}

fn container(
    [open, close]: [char; 2],
    n: usize,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    mut item: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(open);
    for i in 0..n {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        line(depth + 1, out);
        item(i, out)?;
    }
    if n > 0 {
        line(depth, out);
    }
    out.push(close);
    Ok(())
}

/// Keys are strings; numbers, booleans and `None` become such.
fn json_key(key: &Value, style: &JsonStyle, out: &mut String) -> Result<(), Error> {
    match key.kind() {
        ValueKind::String => json_string(key.as_str().unwrap_or_default(), style, out),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            out.push('"');
            write_json(key, style, 0, out)?;
            out.push('"');
        }
        _ => return Err(not_json(key)),
    }
    Ok(())
}

fn json_string(text: &str, style: &JsonStyle, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            c if super::prompt::is_mark(c) => out.push(c),
            c if c < ' ' || (style.ensure_ascii && c > '~') => {
                c.encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| escape(out, "\\u", 4, *unit));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escape(out: &mut String, prefix: &str, width: usize, code: impl Into<u32>) {
    write!(out, "{prefix}{:0width$x}", code.into()).expect("strings can be written to");
}

/// A number as `repr` writes it; `odd` are the names of what is no number.
fn number(value: &Value, odd: [&str; 3]) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) if float.is_nan() => odd[0].to_owned(),
        Ok(float) if float.is_infinite() => odd[if float > 0.0 { 1 } else { 2 }].to_owned(),
        // Rust's debug format has Python's digits and thresholds, but writes 1e16 for 1e+16 and
        // 1e-5 for 1e-05.
        Ok(float) => match format!("{float:?}").split_once('e') {
            Some((digits, exponent)) => {
                let (sign, digits_of) = match exponent.strip_prefix('-') {
                    Some(rest) => ('-', rest),
                    None => ('+', exponent),
                };
                format!("{digits}e{sign}{digits_of:0>2}")
            }
            None => format!("{float:?}"),
        },
        Err(_) => value.to_string(),
    }
}

/// `str(value)` where it differs from what the engine prints: for floats, lists and dictionaries.
pub(super) fn display(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => Some(number(value, ["nan", "inf", "-inf"])),
        ValueKind::Seq | ValueKind::Map => {
            let mut out = String::new();
            repr(value, &mut out);
            Some(out)
        }
        _ => None,
    }
}

/// `repr(value)`
fn repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::Number => out.push_str(&number(value, ["nan", "inf", "-inf"])),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq if value.is_tuple() => {
            let close = if value.len() == Some(1) { ",)" } else { ")" };
            repr_items(value, ["(", close], out, &mut repr);
        }
        ValueKind::Seq => repr_items(value, ["[", "]"], out, &mut repr),
        ValueKind::Map => repr_items(value, ["{", "}"], out, &mut |key, out| {
            repr(key, out);
            out.push_str(": ");
            repr(&value.get_item(key).unwrap_or_default(), out);
        }),
        _ => out.push_str(&value.to_string()),
    }
}

fn repr_items(
    value: &Value,
    [open, close]: [&str; 2],
    out: &mut String,
    item: &mut dyn FnMut(&Value, &mut String),
) {
    out.push_str(open);
    for (i, entry) in value.try_iter().into_iter().flatten().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        item(&entry, out);
    }
    out.push_str(close);
}

fn repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => escape(out, "\\x", 2, c),
            c => out.push(c),
        }
    }
    out.push(quote);
}
