//! Filters of sequences by attributes, by other filters and by tests.

use crate::chat::jinja::access::{Path, without_case};
use crate::chat::jinja::args::{Args, BoundArgs};
use crate::chat::jinja::ast::BinaryOp;
use crate::chat::jinja::compare::{DictKey, equal, order, sorted};
use crate::chat::jinja::fault::{FaultKind, Res, TemplateFault};
use crate::chat::jinja::interp::Interp;
use crate::chat::jinja::value::Value;
use crate::chat::jinja::{ops, predicates};
use std::collections::HashSet;
use std::rc::Rc;

/// A wrong use of a filter.
fn misuse(reason: &str) -> TemplateFault {
    TemplateFault::new(FaultKind::Template, reason)
}

/// `map(attribute=…, default=…)` or `map("filter", …)`
pub(super) fn map(interp: &mut Interp, value: &Value, args: Args) -> Res<Value> {
    if !value.is_true() {
        return Ok(Value::iter([]));
    }
    let is_by_attribute =
        args.positional.is_empty() && args.named.iter().any(|(name, _)| &**name == "attribute");
    let items = value.iterate()?;
    let mut out = Vec::with_capacity(items.len());
    if is_by_attribute {
        let bound = args.bind("map", &["attribute", "default"], 0, 0)?;
        let path = Path::new(bound.get(0).unwrap_or(&Value::None));
        for item in &items {
            out.push(path.of(item, bound.given(1))?);
        }
        return Ok(Value::iter(out));
    }
    let Some(Value::Str(name)) = args.positional.first() else {
        return Err(misuse("map requires a filter argument"));
    };
    for item in items {
        let args = rest_of(&args, 1);
        out.push(super::call(interp, &name.text, item, args)?);
    }
    Ok(Value::iter(out))
}

/// Arguments without the first `n`.
fn rest_of(args: &Args, n: usize) -> Args {
    let named = args.named.iter();
    Args {
        positional: args.positional.iter().skip(n).cloned().collect(),
        named: named
            .map(|(name, value)| (Rc::clone(name), value.clone()))
            .collect(),
    }
}

/// `select`, `reject` and their forms by attribute.
pub(super) fn select(value: &Value, args: Args, by_attribute: bool, keeps: bool) -> Res<Value> {
    if !value.is_true() {
        return Ok(Value::iter([]));
    }
    let path = match (by_attribute, args.positional.first()) {
        (false, _) => None,
        (true, Some(attribute)) => Some(Path::new(attribute)),
        (true, None) => return Err(misuse("missing parameter for attribute name")),
    };
    let n_before = usize::from(by_attribute);
    let test = args.positional.get(n_before).cloned();
    let mut out = Vec::new();
    for item in value.iterate()? {
        let subject = match &path {
            Some(path) => path.of(&item, None)?,
            None => item.clone(),
        };
        let is = match &test {
            None => subject.is_true(),
            Some(Value::Str(name)) if predicates::is_known(&name.text) => {
                predicates::call(&name.text, &subject, rest_of(&args, n_before + 1))?
            }
            Some(other) => {
                let name = other.as_str().unwrap_or("?");
                return Err(misuse(&format!("no test is called \"{name}\"")));
            }
        };
        if is == keeps {
            out.push(item);
        }
    }
    Ok(Value::iter(out))
}

/// Filters that order values or sum them up.
pub(super) fn ordered(name: &str, value: &Value, args: Args) -> Res<Value> {
    match name {
        "sort" => {
            let names = ["reverse", "case_sensitive", "attribute"];
            let bound = args.bind("sort", &names, 0, 0)?;
            let paths = Path::several(bound.get(2).unwrap_or(&Value::None));
            let mut items = Vec::new();
            for item in value.iterate()? {
                let mut keys = Vec::with_capacity(paths.len());
                for path in &paths {
                    keys.push(with_case(path.of(&item, None)?, bound.is_true(1, false)));
                }
                items.push((Value::list(keys)?, item));
            }
            Value::list(sorted(items, bound.is_true(0, false))?)
        }
        "min" | "max" => {
            let bound = args.bind(
                if name == "min" { "min" } else { "max" },
                &["case_sensitive", "attribute"],
                0,
                0,
            )?;
            extreme(value, &bound, name == "max")
        }
        "unique" => {
            let bound = args.bind("unique", &["case_sensitive", "attribute"], 0, 0)?;
            let path = Path::new(bound.get(1).unwrap_or(&Value::None));
            let (mut seen, mut out) = (HashSet::new(), Vec::new());
            for item in value.iterate()? {
                let key = with_case(path.of(&item, None)?, bound.is_true(0, false));
                if seen.insert(DictKey::new(key)?) {
                    out.push(item);
                }
            }
            Ok(Value::iter(out))
        }
        "sum" => sum(value, args),
        _ => groupby(value, args),
    }
}

fn with_case(value: Value, is_case_sensitive: bool) -> Value {
    if is_case_sensitive {
        value
    } else {
        without_case(value)
    }
}

fn extreme(value: &Value, bound: &BoundArgs, is_max: bool) -> Res<Value> {
    let path = Path::new(bound.get(1).unwrap_or(&Value::None));
    let mut best: Option<(Value, Value)> = None;
    for item in value.iterate()? {
        let key = with_case(path.of(&item, None)?, bound.is_true(0, false));
        let is_better = match &best {
            None => true,
            Some((known, _)) => {
                let (a, b, op) = if is_max {
                    (&key, known, ">")
                } else {
                    (&key, known, "<")
                };
                let order = order(a, b, op)?;
                order.is_some_and(|o| if is_max { o.is_gt() } else { o.is_lt() })
            }
        };
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(match best {
        Some((_, item)) => item,
        None => Value::undefined("no aggregated item, sequence was empty"),
    })
}

fn sum(value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("sum", &["attribute", "start"], 0, 0)?;
    let path = Path::new(bound.get(0).unwrap_or(&Value::None));
    let mut total = bound.get(1).cloned().unwrap_or(Value::Int(0));
    if matches!(total, Value::Str(_)) {
        return Err(TemplateFault::type_error("sum() can't sum strings"));
    }
    for item in value.iterate()? {
        total = ops::binary(BinaryOp::Add, &total, &path.of(&item, None)?)?;
    }
    Ok(total)
}

fn groupby(value: &Value, args: Args) -> Res<Value> {
    let names = ["attribute", "default", "case_sensitive"];
    let bound = args.bind("groupby", &names, 1, 0)?;
    let path = Path::new(bound.get(0).unwrap_or(&Value::None));
    let is_case_sensitive = bound.is_true(2, false);
    let key = |item: &Value| -> Res<Value> {
        Ok(with_case(path.of(item, bound.given(1))?, is_case_sensitive))
    };
    let mut items = Vec::new();
    for item in value.iterate()? {
        items.push((key(&item)?, item));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for item in sorted(items, false)? {
        let key = key(&item)?;
        match groups.last_mut() {
            Some((known, group)) if equal(known, &key) => group.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for (_, group) in groups {
        // The name of the group is its first item's, as written.
        let shown = path.of(&group[0], bound.given(1))?;
        out.push(Value::group(shown, group)?);
    }
    Value::list(out)
}
