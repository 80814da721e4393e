//! Filters of numbers.

use crate::chat::jinja::args::Args;
use crate::chat::jinja::ast::BinaryOp;
use crate::chat::jinja::chars::is_space;
use crate::chat::jinja::compare::as_whole;
use crate::chat::jinja::fault::{FaultKind, Res, TemplateFault};
use crate::chat::jinja::ops;
use crate::chat::jinja::value::Value;

pub(super) fn call(name: &str, value: &Value, args: Args) -> Res<Value> {
    match name {
        "abs" => {
            args.none("abs")?;
            match value {
                Value::Float(x) => Ok(Value::Float(x.abs())),
                other => match other.as_int() {
                    Some(n) if n < 0 => ops::signed(value, true),
                    Some(n) => Ok(Value::Int(n)),
                    None => Err(wrong("bad operand type for abs()", other)),
                },
            }
        }
        "int" => {
            let mut bound = args.bind("int", &["default", "base"], 0, 0)?;
            let base = bound.int(1, 10)?;
            let default = bound.take(0).unwrap_or(Value::Int(0));
            to_int(value, base, default)
        }
        "float" => {
            let mut bound = args.bind("float", &["default"], 0, 0)?;
            let default = bound.take(0).unwrap_or(Value::Float(0.0));
            match to_float(value) {
                Ok(x) => Ok(Value::Float(x)),
                Err(fault) if fault.is_type_or_value() => Ok(default),
                Err(fault) => Err(fault),
            }
        }
        "round" => round(value, args),
        _ => file_size(value, args),
    }
}

fn wrong(what: &str, value: &Value) -> TemplateFault {
    if value.is_undefined() {
        return value.undefined_fault();
    }
    TemplateFault::type_error(format!("{what}: '{}'", value.type_name()))
}

/// `float(value)`
fn to_float(value: &Value) -> Res<f64> {
    match value {
        Value::Str(text) => parsed_float(&text.text).ok_or_else(|| {
            TemplateFault::value_error(format!(
                "could not convert string to float: '{}'",
                text.text
            ))
        }),
        other => other
            .as_float()
            .ok_or_else(|| wrong("float() argument", other)),
    }
}

fn parsed_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let plain = without_underscores(text)?;
    plain.parse().ok()
}

/// Digits without the single underscores between them.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_alphanumeric)
    };
    let between = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let mut places = bytes.iter().enumerate().filter(|(_, b)| **b == b'_');
    places
        .all(|(at, _)| between(at))
        .then(|| text.replace('_', ""))
}

/// `int(text, base)`
fn parsed_int(text: &str, base: i128) -> Res<Option<i128>> {
    let text = text.trim_matches(is_space);
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let named = match prefix.as_deref() {
        Some("0b") => 2,
        Some("0o") => 8,
        Some("0x") => 16,
        _ => 0,
    };
    let (base, digits) = match (base, named) {
        (0, 0) if digits.starts_with('0') && digits.bytes().any(|b| (b'1'..=b'9').contains(&b)) => {
            return Ok(None);
        }
        (0, 0) => (10, digits.to_owned()),
        (base, named) if named != 0 && (base == 0 || base == named) => (
            named,
            digits[2..]
                .strip_prefix('_')
                .unwrap_or(&digits[2..])
                .to_owned(),
        ),
        (base, _) => (base, digits.to_owned()),
    };
    let base = u32::try_from(base)
        .ok()
        .filter(|base| (2..=36).contains(base));
    let (Some(base), Some(digits)) = (base, without_underscores(&digits)) else {
        return Ok(None);
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Ok(None);
    }
    match i128::from_str_radix(&digits, base) {
        Ok(n) => Ok(Some(if is_negative { -n } else { n })),
        Err(_) => Err(ops::beyond_128_bits()),
    }
}

fn to_int(value: &Value, base: i128, default: Value) -> Res<Value> {
    // A number that is too large for 128 bits is no reason for the default.
    let whole = |x: f64| match as_whole(x.trunc()) {
        Some(n) => Ok(Value::Int(n)),
        None if x.is_finite() => Err(ops::beyond_128_bits()),
        None => Ok(default.clone()),
    };
    match value {
        Value::Str(text) => {
            if let Some(n) = parsed_int(&text.text, base)? {
                return Ok(Value::Int(n));
            }
            // "42.23" is 42.
            parsed_float(&text.text).map_or(Ok(default.clone()), whole)
        }
        Value::Float(x) if x.is_infinite() => Err(TemplateFault::new(
            FaultKind::Arithmetic,
            "cannot convert float infinity to integer",
        )),
        Value::Float(x) => whole(*x),
        Value::Undefined(_) => Err(value.undefined_fault()),
        other => Ok(other.as_int().map_or(default, Value::Int)),
    }
}

fn round(value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("round", &["precision", "method"], 0, 0)?;
    let precision = bound.int(0, 0)?;
    match bound.get(1).map(|method| method.as_str()) {
        None | Some(Some("common")) => match (value.as_int(), value.as_float()) {
            (Some(n), _) => Ok(Value::Int(rounded_int(n, precision))),
            (None, Some(x)) => rounded(x, precision).map(Value::Float),
            _ => Err(wrong("it cannot be rounded", value)),
        },
        Some(Some(method @ ("ceil" | "floor"))) => {
            let power = ops::binary(BinaryOp::Pow, &Value::Int(10), &Value::Int(precision))?;
            let scaled = ops::binary(BinaryOp::Mul, value, &power)?;
            let whole = match scaled {
                Value::Float(x) if !x.is_finite() => {
                    return Err(TemplateFault::new(
                        FaultKind::Arithmetic,
                        "no integer is near it",
                    ));
                }
                Value::Float(x) => {
                    let x = if method == "ceil" {
                        x.ceil()
                    } else {
                        x.floor()
                    };
                    Value::Int(as_whole(x).ok_or_else(ops::beyond_128_bits)?)
                }
                other if other.as_int().is_some() => other,
                other => return Err(wrong("it cannot be rounded", &other)),
            };
            ops::binary(BinaryOp::Div, &whole, &power)
        }
        _ => Err(TemplateFault::new(
            FaultKind::Template,
            "method must be common, ceil or floor",
        )),
    }
}

/// Rounds to a number of decimals, halves to even.
fn rounded(x: f64, precision: i128) -> Res<f64> {
    if !x.is_finite() {
        return Ok(x);
    }
    let rounded = match precision {
        // No float has this many decimals.
        330.. => x,
        0.. => format!("{x:.*}", precision as usize).parse().unwrap_or(x),
        -330..=-1 => {
            let power = 10_f64.powi(-precision as i32);
            (x / power).round_ties_even() * power
        }
        _ => 0.0 * x,
    };
    match rounded.is_finite() {
        true => Ok(rounded),
        false => Err(TemplateFault::new(
            FaultKind::Arithmetic,
            "rounded value too large to represent",
        )),
    }
}

fn rounded_int(n: i128, precision: i128) -> i128 {
    let Some(power) = u32::try_from(-precision)
        .ok()
        .and_then(|p| 10_i128.checked_pow(p))
    else {
        return if precision >= 0 { n } else { 0 };
    };
    if power == 1 {
        return n;
    }
    let (quotient, rest) = (n.div_euclid(power), n.rem_euclid(power));
    let is_up = rest * 2 > power || (rest * 2 == power && quotient % 2 != 0);
    (quotient + i128::from(is_up)) * power
}

fn file_size(value: &Value, args: Args) -> Res<Value> {
    let bound = args.bind("filesizeformat", &["binary"], 0, 0)?;
    let is_binary = bound.is_true(0, false);
    let n_bytes = to_float(value)?;
    let base: f64 = if is_binary { 1024.0 } else { 1000.0 };
    if n_bytes == 1.0 {
        return Ok(Value::from("1 Byte"));
    }
    if n_bytes < base {
        return match as_whole(n_bytes.trunc()) {
            Some(n) => Ok(Value::from(format!("{n} Bytes"))),
            None => Err(TemplateFault::value_error(
                "cannot convert float NaN to integer",
            )),
        };
    }
    let prefixes = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut shown = String::new();
    for (i, prefix) in prefixes.into_iter().enumerate() {
        let unit = base.powi(i as i32 + 2);
        let name = match (is_binary, prefix) {
            (true, "k") => "KiB".to_owned(),
            (true, prefix) => format!("{prefix}iB"),
            (false, prefix) => format!("{prefix}B"),
        };
        shown = format!("{:.1} {name}", base * n_bytes / unit);
        if n_bytes < unit {
            break;
        }
    }
    Ok(Value::from(shown))
}
