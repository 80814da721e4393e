//! Methods of lists, tuples, ranges and dictionaries.

use crate::chat::jinja::access::bounds;
use crate::chat::jinja::args::Args;
use crate::chat::jinja::compare::{contains, equal};
use crate::chat::jinja::dict::Dict;
use crate::chat::jinja::fault::{Res, TemplateFault};
use crate::chat::jinja::value::{Value, ViewKind};
use std::rc::Rc;

pub(super) fn call(value: &Value, name: &str, args: Args) -> Res<Value> {
    match (value, name) {
        (Value::Dict(dict), _) => of_dict(value, dict, name, args),
        (Value::View(..), _) => {
            let bound = args.bind_unnamed("isdisjoint", &["other"], 1)?;
            let others = bound.get(0).map_or(Ok(Vec::new()), Value::iterate)?;
            for other in &others {
                if contains(value, other)? {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        }
        (_, "copy") => args.none("copy").map(|()| value.clone()),
        (_, "count") => {
            let bound = args.bind_unnamed("count", &["value"], 1)?;
            let items = value.iterate()?;
            let wanted = bound.get(0).cloned().unwrap_or(Value::None);
            Ok(Value::from(
                items.iter().filter(|item| equal(item, &wanted)).count(),
            ))
        }
        _ => index(value, args),
    }
}

fn index(value: &Value, args: Args) -> Res<Value> {
    let names: &[&str] = match value {
        Value::Range(_) => &["value"],
        _ => &["value", "start", "stop"],
    };
    let bound = args.bind_unnamed("index", names, 1)?;
    let items = value.iterate()?;
    let (from, to) = match names.len() {
        1 => (None, None),
        _ => (
            bound.get(1).map(|_| bound.int(1, 0)).transpose()?,
            bound.get(2).map(|_| bound.int(2, 0)).transpose()?,
        ),
    };
    let (from, to) = bounds(items.len(), from, to, 1);
    let wanted = bound.get(0).cloned().unwrap_or(Value::None);
    let found = (from..to).find(|at| equal(&items[*at as usize], &wanted));
    found
        .map(Value::Int)
        .ok_or_else(|| TemplateFault::value_error("the value is not in the list"))
}

fn of_dict(value: &Value, dict: &Rc<Dict>, name: &str, args: Args) -> Res<Value> {
    let view = |kind| Ok(Value::View(kind, Rc::clone(dict)));
    match name {
        "get" => {
            let bound = args.bind_unnamed("get", &["key", "default"], 1)?;
            let key = bound.get(0).cloned().unwrap_or(Value::None);
            let found = dict.get(&key)?.or(bound.get(1));
            Ok(found.cloned().unwrap_or(Value::None))
        }
        "fromkeys" => {
            let bound = args.bind_unnamed("fromkeys", &["keys", "value"], 1)?;
            let keys = bound.get(0).map_or(Ok(Vec::new()), Value::iterate)?;
            let value = bound.get(1).cloned().unwrap_or(Value::None);
            let pairs = keys.into_iter().map(|key| (key, value.clone()));
            Ok(Value::Dict(Rc::new(Dict::new(pairs)?)))
        }
        _ => {
            args.none("a method of a dictionary")?;
            match name {
                "items" => view(ViewKind::Items),
                "keys" => view(ViewKind::Keys),
                "values" => view(ViewKind::Values),
                _ => Ok(value.clone()),
            }
        }
    }
}
