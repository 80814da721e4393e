//! `tojson`: Python's `json.dumps`.

use super::args::{Args, BoundArgs};
use super::compare::sorted;
use super::fault::{self, Res, TemplateFault};
use super::repr;
use super::value::Value;
use crate::chat::prompt::is_mark;
use std::fmt::Write;

/// The arguments of `json.dumps`.
struct JsonStyle {
    ensure_ascii: bool,
    /// The indent of a level of nesting; `None` keeps everything on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
pub(crate) fn filter(value: &Value, args: Args) -> Res<Value> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let style = JsonStyle::new(&args.bind("tojson", &names, 0, 0)?)?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

fn not_json(value: &Value) -> TemplateFault {
    TemplateFault::type_error(format!(
        "Object of type {} is not JSON serializable",
        value.type_name()
    ))
}

impl JsonStyle {
    fn new(bound: &BoundArgs) -> Res<JsonStyle> {
        let indent = match bound.given(1) {
            None => None,
            Some(Value::Str(text)) => Some(text.text.to_string()),
            Some(_) => Some(" ".repeat(fault::width(bound.int(1, 0)?)?)),
        };
        let separators = match bound.given(2) {
            None => None,
            Some(value) => match &value.iterate()?[..] {
                [Value::Str(item), Value::Str(key)] => {
                    Some((item.text.to_string(), key.text.to_string()))
                }
                _ => return Err(TemplateFault::type_error("separators must be two strings")),
            },
        };
        let item = if indent.is_some() { "," } else { ", " };
        let (item_separator, key_separator) =
            separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned()));
        Ok(JsonStyle {
            ensure_ascii: bound.is_true(0, false),
            indent,
            item_separator,
            key_separator,
            sort_keys: bound.is_true(3, false),
        })
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Res<()> {
        fault::spend(1)?;
        match value {
            Value::Str(text) => self.string(&text.text, out),
            Value::List(list) | Value::Tuple(list) => {
                let n = list.items.len();
                self.container(['[', ']'], n, depth, out, &mut |i, out| {
                    self.write(&list.items[i], depth + 1, out)
                })?;
            }
            Value::Dict(dict) => {
                let mut pairs: Vec<(&Value, &Value)> = dict.iter().collect();
                let keys;
                if self.sort_keys {
                    keys = sorted(dict.keys().map(|k| (k.clone(), k.clone())).collect(), false)?;
                    pairs.clear();
                    for key in &keys {
                        pairs.extend(dict.get(key)?.map(|value| (key, value)));
                    }
                }
                self.container(['{', '}'], pairs.len(), depth, out, &mut |i, out| {
                    let (key, value) = pairs[i];
                    self.key(key, out)?;
                    out.push_str(&self.key_separator);
                    self.write(value, depth + 1, out)
                })?;
            }
            other => out.push_str(&scalar(other)?),
        }
        fault::text(out.len().saturating_sub(4096))
    }

    fn container(
        &self,
        [open, close]: [char; 2],
        n: usize,
        depth: usize,
        out: &mut String,
        item: &mut dyn FnMut(usize, &mut String) -> Res<()>,
    ) -> Res<()> {
        let line = |depth: usize, out: &mut String| {
            if let Some(indent) = &self.indent {
                fault::text(out.len() + indent.len() * depth)?;
                out.push('\n');
                (0..depth).for_each(|_| out.push_str(indent));
            }
            Ok(())
        };
        out.push(open);
        for i in 0..n {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            line(depth + 1, out)?;
            item(i, out)?;
        }
        if n > 0 {
            line(depth, out)?;
        }
        out.push(close);
        Ok(())
    }

    /// Keys are strings; numbers, booleans and `None` become such.
    fn key(&self, key: &Value, out: &mut String) -> Res<()> {
        match key {
            Value::Str(text) => self.string(&text.text, out),
            other => {
                let text = scalar(other).map_err(|_| {
                    TemplateFault::type_error(format!(
                        "keys must be str, int, float, bool or None, not {}",
                        key.type_name()
                    ))
                })?;
                out.extend(["\"", &text, "\""]);
            }
        }
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) {
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
                c if is_mark(c) => out.push(c),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}").expect("strings can be written to");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn scalar(value: &Value) -> Res<String> {
    Ok(match value {
        Value::None => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) => repr::float(*x, ["NaN", "Infinity", "-Infinity"]),
        other => return Err(not_json(other)),
    })
}
