//! `value.name`, `value[key]` and `value[from:to:step]`.

use super::fault::{self, Res, TemplateFault};
use super::methods;
use super::value::{Object, Value};
use std::rc::Rc;

/// `value.name`: an attribute, else the entry of a dictionary under the name.
pub(crate) fn attribute(value: &Value, name: &Rc<str>) -> Res<Value> {
    if value.is_undefined() {
        return Err(value.undefined_fault());
    }
    if let Some(found) = own_attribute(value, name)? {
        return Ok(found);
    }
    let found = match value {
        Value::Dict(dict) => dict.get_str(name).cloned(),
        _ => None,
    };
    Ok(found.unwrap_or_else(|| {
        Value::undefined(format!(
            "'{} object' has no attribute '{name}'",
            value.type_name()
        ))
    }))
}

/// `value[key]`: an item, else the attribute of that name.
pub(crate) fn item(value: &Value, key: &Value) -> Res<Value> {
    if value.is_undefined() {
        return Err(value.undefined_fault());
    }
    if let Some(found) = own_item(value, key)? {
        return Ok(found);
    }
    if let Value::Str(name) = key
        && let Some(found) = own_attribute(value, &name.text)?
    {
        return Ok(found);
    }
    let of = value.type_name();
    Ok(Value::undefined(match key {
        Value::Str(name) => format!("'{of} object' has no attribute '{}'", name.text),
        other => format!(
            "{of} object has no element {}",
            super::repr::to_repr(other)?
        ),
    }))
}

/// An attribute that values of the type have. Those that lead into the interpreter, or would change the
/// value, exist but cannot be used.
pub(crate) fn own_attribute(value: &Value, name: &Rc<str>) -> Res<Option<Value>> {
    if name.starts_with("__") && name.ends_with("__") {
        return Ok(Some(Value::unsafe_attribute(value, name)));
    }
    if methods::would_mutate(value, name) {
        return Ok(Some(Value::unsafe_attribute(value, name)));
    }
    if methods::has(value, name) {
        let method = Object::Method(value.clone(), Rc::clone(name));
        return Ok(Some(Value::object(method)));
    }
    match value {
        Value::Bool(_) | Value::Int(_) => Ok(match &**name {
            "real" | "numerator" => value.as_int().map(Value::Int),
            "imag" => Some(Value::Int(0)),
            "denominator" => Some(Value::Int(1)),
            _ => None,
        }),
        Value::Float(_) => Ok(match &**name {
            "real" => Some(value.clone()),
            "imag" => Some(Value::Float(0.0)),
            _ => None,
        }),
        Value::Range(range) => Ok(match &**name {
            "start" => Some(Value::Int(range.start)),
            "stop" => Some(Value::Int(range.stop)),
            "step" => Some(Value::Int(range.step)),
            _ => None,
        }),
        Value::Tuple(list) if list.is_group => Ok(match &**name {
            "grouper" => Some(list.items[0].clone()),
            "list" => Some(list.items[1].clone()),
            _ => None,
        }),
        Value::Object(object) => object_attribute(object, name),
        _ => Ok(None),
    }
}

fn object_attribute(object: &Object, name: &str) -> Res<Option<Value>> {
    Ok(match object {
        Object::Namespace(namespace) => namespace.get(name),
        Object::Loop(state) => state.attribute(name)?,
        Object::Macro(def) => match name {
            "name" => Some(match &def.def.name {
                Some(name) => Value::from(&**name),
                None => Value::None,
            }),
            "arguments" => {
                let names = def.def.params.iter().map(|name| Value::from(&**name));
                Some(Value::tuple(names.collect())?)
            }
            "catch_kwargs" => Some(Value::Bool(def.def.takes_named)),
            "catch_varargs" => Some(Value::Bool(def.def.takes_more)),
            "caller" => Some(Value::Bool(def.def.takes_caller)),
            _ => None,
        },
        Object::Cycler(items, at) => match name {
            "current" => Some(items[at.get()].clone()),
            "pos" => Some(Value::from(at.get())),
            "items" => Some(Value::tuple(items.clone())?),
            _ => None,
        },
        Object::Joiner(separator, used) => match name {
            "sep" => Some(separator.clone()),
            "used" => Some(Value::Bool(used.get())),
            _ => None,
        },
        Object::Function(function) => function.attribute(name),
        Object::Template(scope) => {
            let name = Rc::from(name);
            Some(Value::object(Object::BlockRef(name, Rc::clone(scope))))
        }
        Object::BlockRef(..) | Object::Method(..) => None,
    })
}

/// The item of a sequence or dictionary; nothing where there is none, or the key cannot be used.
fn own_item(value: &Value, key: &Value) -> Res<Option<Value>> {
    match value {
        Value::Dict(dict) => Ok(dict.get(key).ok().flatten().cloned()),
        Value::List(list) | Value::Tuple(list) => {
            Ok(place(key, list.items.len()).map(|at| list.items[at].clone()))
        }
        Value::Range(range) => Ok(place(key, range.len()).map(|at| range.get(at))),
        Value::Str(text) => {
            if key.as_int().is_none() {
                return Ok(None);
            }
            fault::spend(text.text.len() / 64)?;
            let n = match text.text.is_ascii() {
                true => text.text.len(),
                false => text.text.chars().count(),
            };
            let c = place(key, n).and_then(|at| text.text.chars().nth(at));
            Ok(c.map(|c| Value::text(c.to_string(), text.is_markup)))
        }
        _ => Ok(None),
    }
}

/// The place that an index names, which counts from the end if it is negative.
fn place(key: &Value, n: usize) -> Option<usize> {
    let at = key.as_int()?;
    let at = if at < 0 { at + n as i128 } else { at };
    usize::try_from(at).ok().filter(|at| *at < n)
}

/// `value[from:to:step]`
pub(crate) fn slice(value: &Value, parts: [Option<Value>; 3]) -> Res<Value> {
    let [from, to, step] = parts;
    let number = |part: &Option<Value>| match part {
        None | Some(Value::None) => Ok(None),
        Some(value) => match value.as_int() {
            Some(n) => Ok(Some(n)),
            None if value.is_undefined() => Err(value.undefined_fault()),
            None => Err(TemplateFault::type_error(
                "slice indices must be integers or None",
            )),
        },
    };
    if value.is_undefined() {
        return Err(value.undefined_fault());
    }
    let (from, to, step) = (number(&from)?, number(&to)?, number(&step)?);
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(TemplateFault::value_error("slice step cannot be zero"));
    }
    match value {
        Value::Str(text) => {
            fault::spend(text.text.len() / 16)?;
            let chars: Vec<char> = text.text.chars().collect();
            let places = places(chars.len(), from, to, step);
            let picked: String = places.map(|at| chars[at]).collect();
            Ok(Value::text(picked, text.is_markup))
        }
        Value::List(list) => Value::list(picked(&list.items, from, to, step)),
        Value::Tuple(list) => Value::tuple(picked(&list.items, from, to, step)),
        Value::Range(range) => {
            let (first, last) = bounds(range.len(), from, to, step);
            Ok(Value::Range(super::value::Range {
                start: range.start + range.step * first,
                stop: range.start + range.step * last,
                step: range.step * step,
            }))
        }
        other => Err(TemplateFault::type_error(format!(
            "'{}' object has no slices",
            other.type_name()
        ))),
    }
}

fn picked(items: &[Value], from: Option<i128>, to: Option<i128>, step: i128) -> Vec<Value> {
    let places = places(items.len(), from, to, step);
    places.map(|at| items[at].clone()).collect()
}

/// Where a slice starts and before which place it ends.
pub(crate) fn bounds(n: usize, from: Option<i128>, to: Option<i128>, step: i128) -> (i128, i128) {
    let n = n as i128;
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let clamp = |at: i128| {
        let at = if at < 0 { at + n } else { at };
        at.clamp(low, high)
    };
    let default = if step > 0 { (low, high) } else { (high, low) };
    (from.map_or(default.0, clamp), to.map_or(default.1, clamp))
}

fn places(
    n: usize,
    from: Option<i128>,
    to: Option<i128>,
    step: i128,
) -> impl Iterator<Item = usize> {
    let (first, last) = bounds(n, from, to, step);
    let mut at = first;
    std::iter::from_fn(move || {
        let is_inside = if step > 0 { at < last } else { at > last };
        let here = is_inside.then_some(at as usize);
        at = at.saturating_add(step);
        here
    })
}

/// The path in `|attribute` parameters of filters: parts between dots, numbers among them.
pub(crate) struct Path(Vec<Value>);

impl Path {
    pub(crate) fn new(attribute: &Value) -> Path {
        Path(match attribute {
            Value::None => Vec::new(),
            Value::Str(text) => text.text.split('.').map(Path::part).collect(),
            other => vec![other.clone()],
        })
    }

    fn part(part: &str) -> Value {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        match part.parse() {
            Ok(n) if is_number => Value::Int(n),
            _ => Value::from(part),
        }
    }

    /// Several, with commas between.
    pub(crate) fn several(attribute: &Value) -> Vec<Path> {
        match attribute {
            Value::Str(text) => {
                let parts = text.text.split(',');
                parts.map(|part| Path::new(&Value::from(part))).collect()
            }
            other => vec![Path::new(other)],
        }
    }

    pub(crate) fn of(&self, value: &Value, default: Option<&Value>) -> Res<Value> {
        let mut value = value.clone();
        for part in &self.0 {
            value = item(&value, part)?;
            if let (Some(default), true) = (default, value.is_undefined()) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

/// A value for sorting and comparing without regard to case.
pub(crate) fn without_case(value: Value) -> Value {
    match &value {
        Value::Str(text) => Value::text(text.text.to_lowercase(), text.is_markup),
        _ => value,
    }
}
