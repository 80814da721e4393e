//! Equality, order and hashes of values, as Python has them.

use super::fault::{self, Res, TemplateFault};
use super::value::{Object, Value, ViewKind};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// `a == b`. It spends steps, and returns false where they are used up: the caller then fails at once.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    if !fault::spend_quietly(1) {
        return false;
    }
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return a == b;
    }
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        return match (a.as_int(), b.as_int()) {
            // A float equals only the integer with exactly its value, not those that round to it.
            (Some(n), None) => x == y && as_whole(y) == Some(n),
            (None, Some(n)) => x == y && as_whole(x) == Some(n),
            _ => x == y,
        };
    }
    match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(a), Value::Str(b)) => {
            fault::spend_quietly(a.text.len().min(b.text.len()) as u64 / 64);
            a.text == b.text
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            Rc::ptr_eq(a, b) || all_equal(&a.items, &b.items)
        }
        (Value::Dict(a), Value::Dict(b)) => {
            let same = |(key, x)| b.get(key).is_ok_and(|y| y.is_some_and(|y| equal(x, y)));
            Rc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().all(same))
        }
        (Value::Range(a), Value::Range(b)) => {
            let n = a.len();
            n == b.len() && (n == 0 || a.start == b.start && (n == 1 || a.step == b.step))
        }
        (Value::View(x, a), Value::View(y, b)) => match (x, y) {
            (ViewKind::Keys, ViewKind::Keys) => {
                a.len() == b.len() && a.keys().all(|key| matches!(b.get(key), Ok(Some(_))))
            }
            (ViewKind::Items, ViewKind::Items) => {
                equal(&Value::Dict(Rc::clone(a)), &Value::Dict(Rc::clone(b)))
            }
            _ => false,
        },
        (Value::Iter(a), Value::Iter(b)) => Rc::ptr_eq(a, b),
        (Value::Object(a), Value::Object(b)) => match (&**a, &**b) {
            (Object::Method(x, m), Object::Method(y, n)) => m == n && is_same(x, y),
            _ => Rc::ptr_eq(a, b),
        },
        _ => false,
    }
}

fn all_equal(a: &[Value], b: &[Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b) || equal(a, b))
}

/// `a is b`
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        // Small numbers and short texts are shared in Python, and others are compared by constants.
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits() && !a.is_nan(),
        (Value::Str(a), Value::Str(b)) => Rc::ptr_eq(&a.text, &b.text) || a.text == b.text,
        (Value::List(a), Value::List(b)) => Rc::ptr_eq(a, b),
        (Value::Tuple(a), Value::Tuple(b)) => {
            Rc::ptr_eq(a, b) || (a.items.is_empty() && b.items.is_empty())
        }
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Iter(a), Value::Iter(b)) => Rc::ptr_eq(a, b),
        (Value::Object(a), Value::Object(b)) => Rc::ptr_eq(a, b),
        (Value::Undefined(a), Value::Undefined(b)) => Rc::ptr_eq(a, b),
        _ => false,
    }
}

/// The integer with a float's value.
pub(crate) fn as_whole(x: f64) -> Option<i128> {
    let is_whole = x.fract() == 0.0 && x.abs() < 1.7e38;
    is_whole.then_some(x as i128)
}

/// The order of two values; `None` where a float is NaN.
pub(crate) fn order(a: &Value, b: &Value, op: &str) -> Res<Option<Ordering>> {
    fault::spend(1)?;
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return Ok(Some(a.cmp(&b)));
    }
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        return Ok(x.partial_cmp(&y));
    }
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => Ok(Some(a.text.cmp(&b.text))),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            for (a, b) in a.items.iter().zip(&b.items) {
                if !equal(a, b) {
                    return order(a, b, op);
                }
            }
            Ok(Some(a.items.len().cmp(&b.items.len())))
        }
        (Value::Undefined(_), _) => Err(a.undefined_fault()),
        (_, Value::Undefined(_)) => Err(b.undefined_fault()),
        _ => Err(TemplateFault::type_error(format!(
            "'{op}' not supported between instances of '{}' and '{}'",
            a.type_name(),
            b.type_name()
        ))),
    }
}

/// `sorted(items, key=…)` with the keys beside the values.
pub(crate) fn sorted(mut items: Vec<(Value, Value)>, is_reverse: bool) -> Res<Vec<Value>> {
    let mut failure = None;
    let mut compare = |a: &(Value, Value), b: &(Value, Value)| match order(&a.0, &b.0, "<") {
        Ok(order) => order.unwrap_or(Ordering::Equal),
        Err(fault) => {
            failure.get_or_insert(fault);
            Ordering::Equal
        }
    };
    // Equal values keep their order either way.
    match is_reverse {
        true => items.sort_by(|a, b| compare(b, a)),
        false => items.sort_by(|a, b| compare(a, b)),
    }
    match failure {
        Some(fault) => Err(fault),
        None => Ok(items.into_iter().map(|(_, value)| value).collect()),
    }
}

/// `item in container`
pub(crate) fn contains(container: &Value, item: &Value) -> Res<bool> {
    match container {
        Value::Str(text) => match item {
            Value::Str(part) => {
                fault::spend(text.text.len() / 64)?;
                Ok(text.text.contains(&*part.text))
            }
            Value::Undefined(_) => Err(TemplateFault::type_error(
                "'in <string>' requires string as left operand, not Undefined",
            )),
            other => Err(TemplateFault::type_error(format!(
                "'in <string>' requires string as left operand, not {}",
                other.type_name()
            ))),
        },
        Value::Dict(dict) | Value::View(ViewKind::Keys, dict) => Ok(dict.get(item)?.is_some()),
        Value::Range(range) => match (item.as_int(), item.as_float().and_then(as_whole)) {
            (Some(n), _) | (None, Some(n)) => Ok(range.contains(n)),
            _ => Ok(false),
        },
        Value::List(list) | Value::Tuple(list) => {
            fault::spend(list.items.len() / 4)?;
            Ok(list
                .items
                .iter()
                .any(|known| is_same(known, item) || equal(known, item)))
        }
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Err(TemplateFault::type_error(format!(
                "argument of type '{}' is not iterable",
                container.type_name()
            )))
        }
        Value::Iter(items) => {
            // Items are taken out as they are compared.
            loop {
                let Some(next) = items.borrow_mut().pop_front() else {
                    return Ok(false);
                };
                if equal(&next, item) {
                    return Ok(true);
                }
            }
        }
        other => Ok(other.iterate()?.iter().any(|known| equal(known, item))),
    }
}

/// A value that can be the key of a dictionary.
#[derive(Clone, Debug)]
pub(crate) struct DictKey(Value);

impl DictKey {
    pub(crate) fn new(value: Value) -> Res<DictKey> {
        fault::spend(1)?;
        let is_hashable = match &value {
            Value::List(_) | Value::Dict(_) => false,
            Value::View(kind, _) => *kind == ViewKind::Values,
            Value::Tuple(list) => {
                for item in &list.items {
                    DictKey::new(item.clone())?;
                }
                true
            }
            _ => true,
        };
        match is_hashable {
            true => Ok(DictKey(value)),
            false => Err(TemplateFault::type_error(format!(
                "unhashable type: '{}'",
                value.type_name()
            ))),
        }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.0
    }
}

impl PartialEq for DictKey {
    fn eq(&self, other: &DictKey) -> bool {
        equal(&self.0, &other.0)
    }
}

impl Eq for DictKey {}

impl Hash for DictKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(&self.0, state);
    }
}

/// Equal values have equal hashes: 1, 1.0 and `True`.
fn hash<H: Hasher>(value: &Value, state: &mut H) {
    if !fault::spend_quietly(1) {
        return;
    }
    if let Some(n) = value.as_int() {
        return n.hash(state);
    }
    match value {
        Value::Float(x) => match as_whole(*x) {
            Some(n) => n.hash(state),
            None => x.to_bits().hash(state),
        },
        Value::Str(text) => text.text.hash(state),
        Value::Tuple(list) => list.items.iter().for_each(|item| hash(item, state)),
        other => other.type_name().hash(state),
    }
}
