//! Arithmetic as Python has it.

use super::ast::BinaryOp;
use super::fault::{self, FaultKind, Res, TemplateFault};
use super::markup::escaped;
use super::printf;
use super::value::{Text, Value};
use std::rc::Rc;

impl BinaryOp {
    fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "** or pow()",
        }
    }
}

fn unsupported(op: BinaryOp, a: &Value, b: &Value) -> TemplateFault {
    let undefined = [a, b].into_iter().find(|value| value.is_undefined());
    if let Some(undefined) = undefined {
        return undefined.undefined_fault();
    }
    TemplateFault::type_error(format!(
        "unsupported operand type(s) for {}: '{}' and '{}'",
        op.symbol(),
        a.type_name(),
        b.type_name()
    ))
}

pub(crate) fn beyond_128_bits() -> TemplateFault {
    TemplateFault::limit("it computes an integer of more than 128 bits")
}

fn by_zero() -> TemplateFault {
    TemplateFault::new(FaultKind::Arithmetic, "division by zero")
}

/// `a op b`
pub(crate) fn binary(op: BinaryOp, a: &Value, b: &Value) -> Res<Value> {
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return integers(op, x, y);
    }
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        return floats(op, x, y);
    }
    match (op, a, b) {
        (BinaryOp::Mod, Value::Str(pattern), _) => printf::format(pattern, b),
        (BinaryOp::Add, Value::Str(x), Value::Str(y)) => joined(x, y),
        (BinaryOp::Add, Value::List(x), Value::List(y)) => {
            fault::items(x.items.len() + y.items.len())?;
            Value::list([&x.items[..], &y.items[..]].concat())
        }
        (BinaryOp::Add, Value::Tuple(x), Value::Tuple(y)) => {
            fault::items(x.items.len() + y.items.len())?;
            Value::tuple([&x.items[..], &y.items[..]].concat())
        }
        (BinaryOp::Mul, sequence, n) | (BinaryOp::Mul, n, sequence)
            if n.as_int().is_some() && is_sequence(sequence) =>
        {
            repeated(sequence, n.as_int().unwrap_or(0))
        }
        _ => Err(unsupported(op, a, b)),
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_))
}

/// Two texts as one; if one is markup, the other is escaped.
fn joined(a: &Text, b: &Text) -> Res<Value> {
    fault::text(a.text.len() + b.text.len())?;
    let is_markup = a.is_markup || b.is_markup;
    let part = |text: &Text| match is_markup && !text.is_markup {
        true => Rc::from(escaped(&text.text)),
        false => Rc::clone(&text.text),
    };
    Ok(Value::text([&*part(a), &*part(b)].concat(), is_markup))
}

fn repeated(sequence: &Value, n: i128) -> Res<Value> {
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    match sequence {
        Value::Str(text) => {
            fault::text(text.text.len().saturating_mul(n))?;
            // An empty text may be repeated any number of times.
            let n = if text.text.is_empty() { 0 } else { n };
            Ok(Value::text(text.text.repeat(n), text.is_markup))
        }
        Value::List(list) | Value::Tuple(list) => {
            fault::items(list.items.len().saturating_mul(n))?;
            let n = if list.items.is_empty() { 0 } else { n };
            let items = std::iter::repeat_n(&list.items, n)
                .flatten()
                .cloned()
                .collect();
            match sequence {
                Value::List(_) => Value::list(items),
                _ => Value::tuple(items),
            }
        }
        other => Err(unsupported(BinaryOp::Mul, other, &Value::Int(0))),
    }
}

fn integers(op: BinaryOp, x: i128, y: i128) -> Res<Value> {
    let n = match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div if y == 0 => return Err(by_zero()),
        BinaryOp::Div => return Ok(Value::Float(x as f64 / y as f64)),
        BinaryOp::FloorDiv | BinaryOp::Mod if y == 0 => {
            return Err(TemplateFault::new(
                FaultKind::Arithmetic,
                "integer division or modulo by zero",
            ));
        }
        BinaryOp::FloorDiv => x.checked_div(y).map(|quotient| {
            let is_between = x % y != 0 && (x < 0) != (y < 0);
            quotient - i128::from(is_between)
        }),
        BinaryOp::Mod => x
            .checked_rem(y)
            .map(|rest| match rest != 0 && (rest < 0) != (y < 0) {
                true => rest + y,
                false => rest,
            }),
        BinaryOp::Pow if y < 0 => return floats(op, x as f64, y as f64),
        BinaryOp::Pow => match (x, u32::try_from(y)) {
            (0 | 1, _) => Some(if y == 0 { 1 } else { x }),
            (-1, _) => Some(if y % 2 == 0 { 1 } else { -1 }),
            (_, Ok(y)) => x.checked_pow(y),
            _ => None,
        },
    };
    n.map(Value::Int).ok_or_else(beyond_128_bits)
}

fn floats(op: BinaryOp, x: f64, y: f64) -> Res<Value> {
    let needs_divisor = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod);
    if needs_divisor && y == 0.0 {
        return Err(by_zero());
    }
    let value = match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::FloorDiv => divided(x, y).0,
        BinaryOp::Mod => divided(x, y).1,
        BinaryOp::Pow if x == 0.0 && y < 0.0 => {
            let reason = "0.0 cannot be raised to a negative power";
            return Err(TemplateFault::new(FaultKind::Arithmetic, reason));
        }
        BinaryOp::Pow if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 => {
            return Err(TemplateFault::value_error("the power is a complex number"));
        }
        BinaryOp::Pow => {
            let value = x.powf(y);
            if value.is_infinite() && x.is_finite() && y.is_finite() {
                return Err(TemplateFault::new(
                    FaultKind::Arithmetic,
                    "the power is too large",
                ));
            }
            value
        }
    };
    Ok(Value::Float(value))
}

/// The quotient rounded down, and the remainder, which has the divisor's sign.
fn divided(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    let mut quotient = (x - rest) / y;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(y);
    } else if (y < 0.0) != (rest < 0.0) {
        rest += y;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(x / y), rest);
    }
    let floor = quotient.floor();
    (
        if quotient - floor > 0.5 {
            floor + 1.0
        } else {
            floor
        },
        rest,
    )
}

/// `-value` or `+value`
pub(crate) fn signed(value: &Value, is_negative: bool) -> Res<Value> {
    match value {
        Value::Float(x) => Ok(Value::Float(if is_negative { -x } else { *x })),
        Value::Undefined(_) => Err(value.undefined_fault()),
        other => match (other.as_int(), is_negative) {
            (Some(n), true) => n.checked_neg().map(Value::Int).ok_or_else(beyond_128_bits),
            (Some(n), false) => Ok(Value::Int(n)),
            (None, _) => Err(TemplateFault::type_error(format!(
                "bad operand type for unary {}: '{}'",
                if is_negative { "-" } else { "+" },
                other.type_name()
            ))),
        },
    }
}
