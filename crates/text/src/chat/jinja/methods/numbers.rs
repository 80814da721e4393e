//! Methods of numbers.

use crate::chat::jinja::args::Args;
use crate::chat::jinja::fault::{FaultKind, Res, TemplateFault};
use crate::chat::jinja::value::Value;

pub(super) fn call(value: &Value, name: &str, args: Args) -> Res<Value> {
    if !matches!(name, "to_bytes" | "from_bytes" | "fromhex") {
        args.none("a method of a number")?;
    }
    match (value, name) {
        (Value::Float(x), "is_integer") => Ok(Value::Bool(x.is_finite() && x.fract() == 0.0)),
        (Value::Float(x), "as_integer_ratio") => ratio(*x),
        (_, "conjugate") => Ok(value.as_int().map_or_else(|| value.clone(), Value::Int)),
        (_, "bit_length") => {
            let n = value.as_int().unwrap_or(0).unsigned_abs();
            Ok(Value::Int(i128::from(128 - n.leading_zeros())))
        }
        (_, "bit_count") => {
            let n = value.as_int().unwrap_or(0).unsigned_abs();
            Ok(Value::Int(i128::from(n.count_ones())))
        }
        (_, "as_integer_ratio") => {
            let n = value.as_int().unwrap_or(0);
            Value::tuple(vec![Value::Int(n), Value::Int(1)])
        }
        _ => Err(TemplateFault::new(
            FaultKind::Template,
            format!("the method '{name}' of numbers is not known here"),
        )),
    }
}

/// A float as a fraction in lowest terms.
fn ratio(x: f64) -> Res<Value> {
    if !x.is_finite() {
        return Err(TemplateFault::value_error(
            "cannot convert it to an integer ratio",
        ));
    }
    let (mut numerator, mut denominator) = (x, 1_i128);
    while numerator.fract() != 0.0 {
        if denominator > i128::MAX / 4 {
            return Err(TemplateFault::limit(
                "it computes an integer of more than 128 bits",
            ));
        }
        numerator *= 2.0;
        denominator *= 2;
    }
    match super::super::compare::as_whole(numerator) {
        Some(n) => Value::tuple(vec![Value::Int(n), Value::Int(denominator)]),
        None => Err(TemplateFault::limit(
            "it computes an integer of more than 128 bits",
        )),
    }
}
