//! Vectors made of values, and values taken from vectors.

use super::State;
use crate::core::arithmetic::compute;
use crate::core::code::Instruction as I;
use crate::core::value::{CoreValue, Number};

impl State {
    /// Executes instructions that make vectors and take them apart; `false` for any other.
    pub(super) fn vector(&mut self, of: &I) -> Result<bool, String> {
        match of {
            I::Splat(to, from, n) => {
                self.slots[*to] = CoreValue::Vector(vec![self.slots[*from].clone(); *n])
            }
            I::Extract(to, from, position) => {
                let index = self.lane(position)?;
                let value = elements(&self.slots[*from])?.get(index).cloned();
                self.slots[*to] = value.ok_or("no such element of a vector")?;
            }
            I::Insert(to, (value, into), position) => {
                let index = self.lane(position)?;
                let mut all = elements(&self.slots[*into])?.to_vec();
                let value = self.slots[*value].clone();
                *all.get_mut(index).ok_or("no such element of a vector")? = value;
                self.slots[*to] = CoreValue::Vector(all);
            }
            I::Shuffle(to, (first, second), mask) => {
                let (first, second) = (&self.slots[*first], &self.slots[*second]);
                let all = [elements(first)?, elements(second)?].concat();
                let lane = |&at: &usize| all.get(at).cloned();
                let picked: Option<Vec<CoreValue>> = mask.iter().map(lane).collect();
                let picked = picked.ok_or("no such element of two vectors")?;
                self.slots[*to] = CoreValue::Vector(picked);
            }
            I::Bitcast(to, from, numbers) => {
                self.slots[*to] = bitcast(elements(&self.slots[*from])?, *numbers)?
            }
            I::Reduce(to, from, kind, number) => {
                self.slots[*to] = reduce(&self.slots[*from], kind, *number)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn lane(&self, position: &[crate::core::code::Term]) -> Result<usize, String> {
        let [index] = self.terms(position)?[..] else {
            return Err("an element of a vector has one index".to_owned());
        };
        usize::try_from(index).map_err(|_| "no such element of a vector".to_owned())
    }
}

fn elements(of: &CoreValue) -> Result<&[CoreValue], String> {
    match of {
        CoreValue::Vector(all) => Ok(all),
        _ => Err("a vector is needed".to_owned()),
    }
}

/// The same bits as elements of another type.
fn bitcast(of: &[CoreValue], (from, to): (Number, Number)) -> Result<CoreValue, String> {
    let mut bytes = Vec::new();
    for value in of {
        bytes.extend(&from.write(value)?[..from.bytes()]);
    }
    if !bytes.len().is_multiple_of(to.bytes()) {
        return Err("a vector of other bits than its new type".to_owned());
    }
    let values = bytes.chunks_exact(to.bytes()).map(|chunk| to.read(chunk));
    Ok(CoreValue::Vector(values.collect()))
}

fn reduce(of: &CoreValue, kind: &str, number: Number) -> Result<CoreValue, String> {
    let CoreValue::Vector(all) = of else {
        return Err("a vector is needed".to_owned());
    };
    let suffix = if matches!(all.first(), Some(CoreValue::Integer(_))) {
        "i"
    } else {
        "f"
    };
    let name = match kind {
        "add" | "mul" => format!("arith.{kind}{suffix}"),
        "maxsi" | "minsi" | "maxui" | "minui" | "maximumf" | "minimumf" | "maxnumf" | "minnumf" => {
            format!("arith.{kind}")
        }
        "and" | "or" | "xor" => format!("arith.{kind}i"),
        other => return Err(format!("a reduction by `{other}`")),
    };
    let mut values = all.iter();
    let first = values.next().cloned().ok_or("a vector without elements")?;
    values.try_fold(first, |sum, value| {
        compute(&name, "", (number, number), &[&sum, value])
    })
}
