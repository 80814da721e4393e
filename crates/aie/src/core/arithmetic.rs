//! Ops on numbers; on vectors element by element.

use super::value::{CoreValue, Number};

/// The value of an op of `arith`, `math` or `vector` on numbers. `from` and `to` are the types of operands
/// and result.
pub(crate) fn compute(
    name: &str,
    predicate: &str,
    (from, to): (Number, Number),
    operands: &[&CoreValue],
) -> Result<CoreValue, String> {
    let lanes = operands.iter().filter_map(|value| match value {
        CoreValue::Vector(all) => Some(all.len()),
        _ => None,
    });
    let Some(n) = lanes.max() else {
        return scalar(name, predicate, (from, to), operands);
    };
    let lane = |i: usize| {
        let each = operands.iter().map(|value| match value {
            CoreValue::Vector(all) => all
                .get(i)
                .ok_or_else(|| "vectors differ in size".to_owned()),
            other => Ok(*other),
        });
        let each: Vec<&CoreValue> = each.collect::<Result<_, _>>()?;
        scalar(name, predicate, (from, to), &each)
    };
    (0..n)
        .map(lane)
        .collect::<Result<_, _>>()
        .map(CoreValue::Vector)
}

fn scalar(
    name: &str,
    predicate: &str,
    (from, to): (Number, Number),
    of: &[&CoreValue],
) -> Result<CoreValue, String> {
    let op = name.split_once('.').map_or(name, |(_, op)| op);
    if op == "select" {
        let [condition, then, otherwise] = of else {
            return Err("`select` has three operands".to_owned());
        };
        return Ok(if condition.integer()? != 0 {
            (*then).clone()
        } else {
            (*otherwise).clone()
        });
    }
    match of {
        [a] => unary(op, (from, to), a),
        [a, b] => match (a, b) {
            (CoreValue::Integer(a), CoreValue::Integer(b)) => integers(op, predicate, from, *a, *b),
            _ => floats(op, predicate, from, a.float()?, b.float()?),
        },
        [a, b, c] if op == "fma" => match (a, b, c) {
            (CoreValue::Integer(a), CoreValue::Integer(b), CoreValue::Integer(c)) => Ok(
                CoreValue::Integer(from.wrap(a.wrapping_mul(*b).wrapping_add(*c))),
            ),
            _ => Ok(CoreValue::Float(
                from.round(a.float()? * b.float()? + c.float()?),
            )),
        },
        _ => Err(format!("`{name}` with {} operands", of.len())),
    }
}

fn unary(op: &str, (from, to): (Number, Number), a: &CoreValue) -> Result<CoreValue, String> {
    if let CoreValue::Integer(a) = a {
        return Ok(match op {
            "extsi" | "index_cast" => CoreValue::Integer(to.wrap(from.wrap(*a))),
            "extui" | "index_castui" => CoreValue::Integer(to.wrap(from.unsigned(*a) as i64)),
            "trunci" => CoreValue::Integer(to.wrap(*a)),
            "sitofp" => CoreValue::Float(to.round(*a as f64)),
            "uitofp" => CoreValue::Float(to.round(from.unsigned(*a) as f64)),
            "absi" => CoreValue::Integer(from.wrap(a.wrapping_abs())),
            "bitcast" => to.read(&from.write(&CoreValue::Integer(*a))?[..to.bytes()]),
            _ => return Err(format!("`{op}` of a whole number")),
        });
    }
    let a = a.float()?;
    Ok(match op {
        "negf" => CoreValue::Float(-a),
        "absf" => CoreValue::Float(a.abs()),
        "sqrt" => CoreValue::Float(from.round(a.sqrt())),
        "rsqrt" => CoreValue::Float(from.round(1.0 / a.sqrt())),
        "exp" => CoreValue::Float(from.round(a.exp())),
        "exp2" => CoreValue::Float(from.round(a.exp2())),
        "log" => CoreValue::Float(from.round(a.ln())),
        "sin" => CoreValue::Float(from.round(a.sin())),
        "cos" => CoreValue::Float(from.round(a.cos())),
        "floor" => CoreValue::Float(a.floor()),
        "ceil" => CoreValue::Float(a.ceil()),
        "tanh" => CoreValue::Float(from.round(a.tanh())),
        "extf" | "truncf" => CoreValue::Float(to.round(a)),
        "fptosi" => CoreValue::Integer(to.wrap(a as i64)),
        "fptoui" => CoreValue::Integer(to.wrap(a as u64 as i64)),
        "bitcast" => to.read(&from.write(&CoreValue::Float(a))?[..to.bytes()]),
        _ => return Err(format!("`{op}` of a number with a point")),
    })
}

fn integers(
    op: &str,
    predicate: &str,
    number: Number,
    a: i64,
    b: i64,
) -> Result<CoreValue, String> {
    let (ua, ub) = (number.unsigned(a), number.unsigned(b));
    let shift = || match number {
        Number::Integer(bits) if ub < u64::from(bits) => Ok(ub as u32),
        _ => Err(format!("a shift by {ub}")),
    };
    if matches!(
        op,
        "divsi" | "divui" | "remsi" | "remui" | "ceildivsi" | "floordivsi"
    ) && b == 0
    {
        return Err("a division by 0".to_owned());
    }
    let value = match op {
        "addi" => a.wrapping_add(b),
        "subi" => a.wrapping_sub(b),
        "muli" => a.wrapping_mul(b),
        "divsi" => a.wrapping_div(b),
        "divui" => (ua / ub) as i64,
        "remsi" => a.wrapping_rem(b),
        "remui" => (ua % ub) as i64,
        "floordivsi" => a.wrapping_div(b) - i64::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)),
        "ceildivsi" => a.wrapping_div(b) + i64::from(a.wrapping_rem(b) != 0 && (a < 0) == (b < 0)),
        "andi" => a & b,
        "ori" => a | b,
        "xori" => a ^ b,
        "shli" => a.wrapping_shl(shift()?),
        "shrsi" => a >> shift()?,
        "shrui" => (ua >> shift()?) as i64,
        "maxsi" => a.max(b),
        "minsi" => a.min(b),
        "maxui" => ua.max(ub) as i64,
        "minui" => ua.min(ub) as i64,
        "cmpi" => {
            let holds = match predicate {
                "eq" => a == b,
                "ne" => a != b,
                "slt" => a < b,
                "sle" => a <= b,
                "sgt" => a > b,
                "sge" => a >= b,
                "ult" => ua < ub,
                "ule" => ua <= ub,
                "ugt" => ua > ub,
                "uge" => ua >= ub,
                _ => return Err(format!("`cmpi {predicate}`")),
            };
            return Ok(CoreValue::Integer(holds.into()));
        }
        _ => return Err(format!("`{op}` of whole numbers")),
    };
    Ok(CoreValue::Integer(number.wrap(value)))
}

fn floats(op: &str, predicate: &str, number: Number, a: f64, b: f64) -> Result<CoreValue, String> {
    let nan = a.is_nan() || b.is_nan();
    let value = match op {
        "addf" => a + b,
        "subf" => a - b,
        "mulf" => a * b,
        "divf" => a / b,
        "powf" => a.powf(b),
        "maximumf" if nan => f64::NAN,
        "minimumf" if nan => f64::NAN,
        "maximumf" | "maxnumf" => a.max(b),
        "minimumf" | "minnumf" => a.min(b),
        "cmpf" => {
            let holds = match predicate {
                "oeq" => a == b,
                "one" => !nan && a != b,
                "olt" => a < b,
                "ole" => a <= b,
                "ogt" => a > b,
                "oge" => a >= b,
                "ueq" => nan || a == b,
                "une" => a != b,
                "ult" => nan || a < b,
                "ule" => nan || a <= b,
                "ugt" => nan || a > b,
                "uge" => nan || a >= b,
                "ord" => !nan,
                "uno" => nan,
                _ => return Err(format!("`cmpf {predicate}`")),
            };
            return Ok(CoreValue::Integer(holds.into()));
        }
        _ => return Err(format!("`{op}` of numbers with a point")),
    };
    Ok(CoreValue::Float(number.round(value)))
}
