//! Filters of sequences that need no other filter or test.

use crate::chat::jinja::access::{own_attribute, without_case};
use crate::chat::jinja::args::Args;
use crate::chat::jinja::compare::{as_whole, sorted};
use crate::chat::jinja::fault::{self, FaultKind, Res, TemplateFault};
use crate::chat::jinja::value::{Value, ViewKind};
use std::rc::Rc;

pub(super) fn call(name: &str, value: Value, args: Args) -> Res<Value> {
    match name {
        "attr" => {
            let bound = args.bind("attr", &["name"], 1, 0)?;
            if value.is_undefined() {
                return Err(value.undefined_fault());
            }
            let name = Rc::from(bound.str(0)?);
            let found = own_attribute(&value, &name)?;
            Ok(found.unwrap_or_else(|| Value::undefined(format!("it has no attribute '{name}'"))))
        }
        "d" | "default" => {
            let mut bound = args.bind("default", &["default_value", "boolean"], 0, 0)?;
            let is_missing = value.is_undefined() || (bound.is_true(1, false) && !value.is_true());
            Ok(match is_missing {
                true => bound.take(0).unwrap_or_else(|| Value::from("")),
                false => value,
            })
        }
        "batch" | "slice" => in_parts(name, &value, args),
        "dictsort" => dictsort(&value, args),
        _ => {
            args.none("the filter")?;
            plain(name, value)
        }
    }
}

fn plain(name: &str, value: Value) -> Res<Value> {
    match name {
        "count" | "length" => value.length().map(Value::from),
        "list" => Value::list(value.iterate()?),
        "items" => match &value {
            Value::Undefined(_) => Ok(Value::iter([])),
            Value::Dict(dict) => {
                let view = Value::View(ViewKind::Items, Rc::clone(dict));
                Ok(Value::iter(view.iterate()?))
            }
            _ => Err(TemplateFault::type_error(
                "can only get item pairs from a mapping",
            )),
        },
        "first" => {
            let first = match &value {
                Value::Iter(items) => items.borrow_mut().pop_front(),
                other => other.iterate()?.into_iter().next(),
            };
            Ok(first.unwrap_or_else(|| Value::undefined("no first item, sequence was empty")))
        }
        "last" => {
            if matches!(value, Value::Iter(_)) {
                return Err(TemplateFault::type_error(
                    "'generator' object is not reversible",
                ));
            }
            let last = value.iterate()?.pop();
            Ok(last.unwrap_or_else(|| Value::undefined("no last item, sequence was empty")))
        }
        _ => reversed(&value),
    }
}

fn reversed(value: &Value) -> Res<Value> {
    match value {
        Value::Str(text) => {
            let chars: String = text.text.chars().rev().collect();
            Ok(Value::text(chars, text.is_markup))
        }
        Value::Iter(_) => {
            let mut items = value.iterate()?;
            items.reverse();
            Value::list(items)
        }
        other => {
            let mut items = other.iterate().map_err(|fault| match fault.kind {
                FaultKind::Type => {
                    TemplateFault::new(FaultKind::Template, "argument must be iterable")
                }
                _ => fault,
            })?;
            items.reverse();
            Ok(Value::iter(items))
        }
    }
}

fn in_parts(name: &str, value: &Value, args: Args) -> Res<Value> {
    let names = match name {
        "batch" => ["linecount", "fill_with"],
        _ => ["slices", "fill_with"],
    };
    let bound = args.bind("the filter", &names, 1, 0)?;
    let fill = bound.given(1);
    let items = value.iterate()?;
    let parts = match name {
        "batch" => {
            // Lengths are only compared with it, which no value refuses.
            let n = bound.get(0).and_then(Value::as_float).and_then(as_whole);
            batches(items, n, fill)?
        }
        _ => slices(&items, bound.int(0, 0)?, fill)?,
    };
    let parts: Vec<Value> = parts.into_iter().map(Value::list).collect::<Res<_>>()?;
    Ok(Value::iter(parts))
}

fn batches(items: Vec<Value>, n: Option<i128>, fill: Option<&Value>) -> Res<Vec<Vec<Value>>> {
    let (mut out, mut part) = (Vec::new(), Vec::new());
    for item in items {
        if Some(part.len() as i128) == n {
            out.push(std::mem::take(&mut part));
        }
        part.push(item);
    }
    if !part.is_empty() {
        if let Some(fill) = fill {
            let n = n.ok_or_else(|| TemplateFault::type_error("batch expected an integer"))?;
            let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
            fault::items(n)?;
            part.resize(part.len().max(n), fill.clone());
        }
        out.push(part);
    }
    Ok(out)
}

fn slices(items: &[Value], n: i128, fill: Option<&Value>) -> Res<Vec<Vec<Value>>> {
    if n == 0 {
        let reason = "integer division or modulo by zero";
        return Err(TemplateFault::new(FaultKind::Arithmetic, reason));
    }
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    if n == 0 {
        return Ok(Vec::new());
    }
    fault::items(n)?;
    let (each, n_longer) = (items.len() / n, items.len() % n);
    let mut out = Vec::with_capacity(n);
    let mut start = 0;
    for at in 0..n {
        let end = start + each + usize::from(at < n_longer);
        let mut part = items[start..end].to_vec();
        if at >= n_longer {
            part.extend(fill.cloned());
        }
        out.push(part);
        start = end;
    }
    Ok(out)
}

fn dictsort(value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("dictsort", &["case_sensitive", "by", "reverse"], 0, 0)?;
    let is_case_sensitive = bound.is_true(0, false);
    let by_value = match bound.get(1).map(|by| by.as_str()) {
        None | Some(Some("key")) => false,
        Some(Some("value")) => true,
        _ => {
            let reason = "you can only sort by either \"key\" or \"value\"";
            return Err(TemplateFault::new(FaultKind::Template, reason));
        }
    };
    let Value::Dict(dict) = value else {
        if value.is_undefined() {
            return Err(value.undefined_fault());
        }
        return Err(TemplateFault::type_error(format!(
            "'{}' object has no attribute 'items'",
            value.type_name()
        )));
    };
    let mut pairs = Vec::with_capacity(dict.len());
    for (key, value) in dict.iter() {
        let by = if by_value { value } else { key }.clone();
        let by = if is_case_sensitive {
            by
        } else {
            without_case(by)
        };
        pairs.push((by, Value::tuple(vec![key.clone(), value.clone()])?));
    }
    Value::list(sorted(pairs, bound.is_true(2, false))?)
}
