//! Values as texts: `str`, `repr` and `ascii`.

use super::call::BuiltinFunction;
use super::chars::is_printable;
use super::fault::{self, Res, TemplateFault};
use super::value::{Object, Value, ViewKind};
use std::fmt::Write;

/// Levels of nested values that are written. A namespace can hold itself.
const MAX_LEVELS: u32 = fault::NESTING + 10;

/// `str(value)`
pub(crate) fn to_str(value: &Value) -> Res<String> {
    match value {
        Value::Undefined(_) => Ok(String::new()),
        Value::Str(text) => Ok(text.text.to_string()),
        other => to_repr(other),
    }
}

/// `repr(value)`
pub(crate) fn to_repr(value: &Value) -> Res<String> {
    let mut out = String::new();
    write_repr(value, &mut out, 0)?;
    Ok(out)
}

/// `ascii(value)`
pub(crate) fn to_ascii(value: &Value) -> Res<String> {
    let mut out = String::new();
    for c in to_repr(value)?.chars() {
        match c {
            c if c.is_ascii() => out.push(c),
            c => escape(c, &mut out),
        }
    }
    Ok(out)
}

fn write_repr(value: &Value, out: &mut String, level: u32) -> Res<()> {
    fault::spend(1)?;
    if level > MAX_LEVELS {
        return Err(TemplateFault::limit("it writes a value that holds itself"));
    }
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Float(n) => out.push_str(&float(*n, ["nan", "inf", "-inf"])),
        Value::Str(text) if text.is_markup => {
            out.push_str("Markup(");
            string(&text.text, out);
            out.push(')');
        }
        Value::Str(text) => string(&text.text, out),
        Value::List(list) => sequence(list.items.iter(), ["[", "]"], out, level)?,
        Value::Tuple(list) => {
            let close = if list.items.len() == 1 { ",)" } else { ")" };
            sequence(list.items.iter(), ["(", close], out, level)?;
        }
        Value::Dict(dict) => {
            out.push('{');
            for (i, (key, value)) in dict.iter().enumerate() {
                separate(i, out);
                write_repr(key, out, level + 1)?;
                out.push_str(": ");
                write_repr(value, out, level + 1)?;
            }
            out.push('}');
        }
        Value::Range(range) => {
            let step = match range.step {
                1 => String::new(),
                step => format!(", {step}"),
            };
            out.push_str(&format!("range({}, {}{step})", range.start, range.stop));
        }
        Value::View(kind, dict) => {
            out.push_str(value.type_name());
            match kind {
                ViewKind::Keys => sequence(dict.keys(), ["([", "])"], out, level)?,
                ViewKind::Values => sequence(dict.values(), ["([", "])"], out, level)?,
                ViewKind::Items => {
                    let items = value.iterate()?;
                    sequence(items.iter(), ["([", "])"], out, level)?;
                }
            }
        }
        Value::Iter(_) => out.push_str("<generator object>"),
        Value::Object(object) => write_object(object, out, level)?,
    }
    fault::text(out.len().saturating_sub(4096))
}

fn write_object(object: &Object, out: &mut String, level: u32) -> Res<()> {
    match object {
        Object::Namespace(namespace) => {
            out.push_str("<Namespace {");
            let attrs: Vec<_> = namespace.attrs.borrow().clone();
            for (i, (name, value)) in attrs.iter().enumerate() {
                separate(i, out);
                string(name, out);
                out.push_str(": ");
                write_repr(value, out, level + 1)?;
            }
            out.push_str("}>");
        }
        Object::Macro(def) => match &def.def.name {
            Some(name) => {
                out.push_str("<Macro ");
                string(name, out);
                out.push('>');
            }
            None => out.push_str("<Macro anonymous>"),
        },
        Object::Loop(state) => {
            out.push_str(&format!(
                "<LoopContext {}/{}>",
                state.at.get() + 1,
                state.n_items()
            ));
        }
        Object::Cycler(..) => out.push_str("<Cycler object>"),
        Object::Joiner(..) => out.push_str("<Joiner object>"),
        Object::Function(BuiltinFunction::Dict) => out.push_str("<TemplateDict object>"),
        Object::Function(BuiltinFunction::Namespace) => out.push_str("<class 'TemplateNamespace'>"),
        Object::Function(_) => out.push_str("<function>"),
        Object::Method(value, name) => {
            let of = value.type_name();
            out.push_str(&format!("<built-in method {name} of {of} object>"));
        }
        Object::Template(_) => out.push_str("<TemplateReference None>"),
        Object::BlockRef(name, _) => out.push_str(&format!("<BlockReference '{name}'>")),
    }
    Ok(())
}

fn separate(i: usize, out: &mut String) {
    if i > 0 {
        out.push_str(", ");
    }
}

fn sequence<'v>(
    items: impl Iterator<Item = &'v Value>,
    [open, close]: [&str; 2],
    out: &mut String,
    level: u32,
) -> Res<()> {
    out.push_str(open);
    for (i, item) in items.enumerate() {
        separate(i, out);
        write_repr(item, out, level + 1)?;
    }
    out.push_str(close);
    Ok(())
}

/// A float with the fewest digits that identify it; `odd` are the names of infinities and NaN.
pub(crate) fn float(x: f64, odd: [&str; 3]) -> String {
    if x.is_nan() {
        return odd[0].to_owned();
    }
    if x.is_infinite() {
        return odd[if x > 0.0 { 1 } else { 2 }].to_owned();
    }
    // Rust's debug format has Python's digits and thresholds, but writes 1e16 for 1e+16 and 1e-5 for
    // 1e-05.
    match format!("{x:?}").split_once('e') {
        Some((digits, exponent)) => {
            let (sign, digits_of) = match exponent.strip_prefix('-') {
                Some(rest) => ('-', rest),
                None => ('+', exponent),
            };
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            format!("{digits}e{sign}{digits_of:0>2}")
        }
        None => format!("{x:?}"),
    }
}

fn string(text: &str, out: &mut String) {
    let quote = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => escape(c, out),
        }
    }
    out.push(quote);
}

/// A character by its code.
fn escape(c: char, out: &mut String) {
    let code = c as u32;
    let written = match code {
        0..=0xFF => write!(out, "\\x{code:02x}"),
        0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("strings can be written to");
}
