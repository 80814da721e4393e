//! Tests: the predicates behind `is`.

use super::args::Args;
use super::ast::{BinaryOp, CompareOp};
use super::compare::{equal, is_same};
use super::eval::compared;
use super::fault::{FaultKind, Res, TemplateFault};
use super::methods::{is_lower, is_upper};
use super::value::{Object, Value};
use super::{filters, ops, repr};

const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

pub(crate) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

fn comparison(name: &str) -> Option<CompareOp> {
    Some(match name {
        "==" | "eq" | "equalto" => CompareOp::Eq,
        "!=" | "ne" => CompareOp::Ne,
        "<" | "lt" | "lessthan" => CompareOp::Lt,
        "<=" | "le" => CompareOp::Le,
        ">" | "gt" | "greaterthan" => CompareOp::Gt,
        ">=" | "ge" => CompareOp::Ge,
        _ => return None,
    })
}

/// `value is name(args)`
pub(crate) fn call(name: &str, value: &Value, args: Args) -> Res<bool> {
    if let Some(op) = comparison(name) {
        let bound = args.bind_unnamed("the comparison", &["other"], 1)?;
        return compared(op, value, bound.get(0).unwrap_or(&Value::None));
    }
    match name {
        "in" => {
            let bound = args.bind("in", &["seq"], 1, 0)?;
            compared(CompareOp::In, value, bound.get(0).unwrap_or(&Value::None))
        }
        "sameas" => {
            let bound = args.bind("sameas", &["other"], 1, 0)?;
            Ok(is_same(value, bound.get(0).unwrap_or(&Value::None)))
        }
        "divisibleby" => {
            let bound = args.bind("divisibleby", &["num"], 1, 0)?;
            leaves(value, bound.get(0).unwrap_or(&Value::None), 0)
        }
        _ => {
            args.none("the test")?;
            unary(name, value)
        }
    }
}

/// Whether a division leaves a given remainder.
fn leaves(value: &Value, divisor: &Value, rest: i128) -> Res<bool> {
    let found = ops::binary(BinaryOp::Mod, value, divisor)?;
    Ok(equal(&found, &Value::Int(rest)))
}

fn unary(name: &str, value: &Value) -> Res<bool> {
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => value.is_none(),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => matches!(value, Value::Str(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "escaped" => value.is_markup(),
        "odd" => leaves(value, &Value::Int(2), 1)?,
        "even" => leaves(value, &Value::Int(2), 0)?,
        "lower" => is_lower(&repr::to_str(value)?),
        "upper" => is_upper(&repr::to_str(value)?),
        "sequence" => matches!(
            value,
            Value::Str(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::Range(_)
                | Value::Undefined(_)
        ),
        "iterable" => match value {
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => false,
            Value::Object(object) => matches!(&**object, Object::Loop(_)),
            _ => true,
        },
        "callable" => match value {
            Value::Undefined(_) => true,
            Value::Object(object) => !matches!(
                &**object,
                Object::Namespace(_) | Object::Cycler(..) | Object::Template(_)
            ),
            _ => false,
        },
        "filter" => name_of(value)?.is_some_and(filters::is_known),
        "test" => name_of(value)?.is_some_and(is_known),
        other => {
            let reason = format!("no test is called \"{other}\"");
            return Err(TemplateFault::new(FaultKind::Template, reason));
        }
    })
}

/// A text that may be a name; other values that can be keys are never names.
fn name_of(value: &Value) -> Res<Option<&str>> {
    super::compare::DictKey::new(value.clone())?;
    Ok(value.as_str())
}
