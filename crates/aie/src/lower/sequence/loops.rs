//! Loops and numbers of the sequence, which are known before it runs.

use super::Sequence;
use crate::design;
use crate::lower::tasks::Tasks;
use crate::syntax::{Attribute, Op, Region, SyntaxError};

/// Ops of a sequence, at most, those of loops each time.
const MOST_OPS: usize = 1 << 16;

impl Sequence<'_> {
    /// Reads ops in their order; returns the values of a `scf.yield` at their end.
    pub(super) fn ops(
        &mut self,
        ops: &[Op],
        tasks: &mut Tasks,
    ) -> Result<Vec<String>, SyntaxError> {
        for op in ops {
            self.n_ops += 1;
            if self.n_ops > MOST_OPS {
                return Err(op.error(format!(
                    "more than {MOST_OPS} ops, those of loops each time"
                )));
            }
            match op.name.as_str() {
                "scf.yield" => return Ok(op.operands.clone()),
                "scf.for" => self.repeat(op, tasks)?,
                "scf.if" => self.choose(op, tasks)?,
                _ => {
                    let is_known = design::constant(op, &mut self.constants)? || self.number(op)?;
                    if !is_known && !tasks.op(self, op)? {
                        self.op(op)?;
                    }
                }
            }
        }
        Ok(Vec::new())
    }

    /// The number of a value.
    fn value(&self, op: &Op, operand: usize) -> Result<i64, SyntaxError> {
        let name = op.operand(operand)?.to_owned();
        design::number(self.design, op, &Attribute::Value(name), &self.constants)
    }

    /// Another name of a number or a task.
    fn alias(
        &mut self,
        op: &Op,
        name: &str,
        of: &str,
        tasks: &mut Tasks,
    ) -> Result<(), SyntaxError> {
        if tasks.alias(name, of) {
            return Ok(());
        }
        let value = Attribute::Value(of.to_owned());
        let value = design::number(self.design, op, &value, &self.constants)?;
        self.constants.insert(name.to_owned(), value);
        Ok(())
    }

    fn repeat(&mut self, op: &Op, tasks: &mut Tasks) -> Result<(), SyntaxError> {
        let [first, end, step] = [0, 1, 2].map(|i| self.value(op, i));
        let (first, end, step) = (first?, end?, step?);
        if step < 1 {
            return Err(op.error("a loop's step is 1 or more"));
        }
        let [block] = &op.region(0)?.blocks[..] else {
            return Err(op.error("a loop's body is one block"));
        };
        let names: Vec<&String> = block.arguments.iter().map(|row| &row.0).collect();
        let [variable, carried @ ..] = &names[..] else {
            return Err(op.error("a loop has a variable"));
        };
        let mut values = op.operands.get(3..).unwrap_or_default().to_vec();
        if values.len() != carried.len() || values.len() != op.results.len() {
            return Err(op.error("the loop's values differ in number"));
        }
        let mut at = first;
        while at < end {
            self.constants.insert((*variable).clone(), at);
            self.carry(op, carried.iter().map(|name| name.as_str()), &values, tasks)?;
            let given = self.ops(&block.ops, tasks)?;
            if given.len() != values.len() {
                return Err(op.error("the loop's values differ in number"));
            }
            values = given;
            let Some(next) = at.checked_add(step) else {
                break;
            };
            at = next;
        }
        self.carry(op, op.results.iter().map(String::as_str), &values, tasks)
    }

    /// Assigns values to names, all at once.
    fn carry<'n>(
        &mut self,
        op: &Op,
        names: impl Iterator<Item = &'n str> + Clone,
        values: &[String],
        tasks: &mut Tasks,
    ) -> Result<(), SyntaxError> {
        // A value may have the name of another's source.
        for (i, value) in values.iter().enumerate() {
            self.alias(op, &format!("carried {i}"), value, tasks)?;
        }
        for (i, name) in names.enumerate() {
            self.alias(op, name, &format!("carried {i}"), tasks)?;
        }
        Ok(())
    }

    fn choose(&mut self, op: &Op, tasks: &mut Tasks) -> Result<(), SyntaxError> {
        let taken = match self.value(op, 0)? {
            0 => op.regions.get(1),
            _ => op.regions.first(),
        };
        let blocks = taken.map_or(&[][..], |region: &Region| &region.blocks);
        let mut given = Vec::new();
        for block in blocks {
            given = self.ops(&block.ops, tasks)?;
        }
        if given.len() != op.results.len() {
            return Err(op.error("its values differ in number"));
        }
        self.carry(op, op.results.iter().map(String::as_str), &given, tasks)
    }

    /// Records a number that follows from others; `false` if the op defines none.
    fn number(&mut self, op: &Op) -> Result<bool, SyntaxError> {
        let two = |of: fn(i64, i64) -> Option<i64>| -> Result<i64, SyntaxError> {
            let (a, b) = (self.value(op, 0)?, self.value(op, 1)?);
            of(a, b).ok_or_else(|| op.error(format!("it has no value of {a} and {b}")))
        };
        let value = match op.name.as_str() {
            "arith.addi" => two(i64::checked_add)?,
            "arith.subi" => two(i64::checked_sub)?,
            "arith.muli" => two(i64::checked_mul)?,
            "arith.divsi" | "arith.divui" => two(i64::checked_div)?,
            "arith.floordivsi" => two(|a, b| Some(a.checked_div_euclid(b)?).filter(|_| b > 0))?,
            "arith.ceildivsi" => two(|a, b| {
                let above = a.checked_add(b.checked_sub(1)?)?;
                above.checked_div_euclid(b).filter(|_| b > 0)
            })?,
            "arith.remsi" | "arith.remui" => two(i64::checked_rem)?,
            "arith.maxsi" | "arith.maxui" => two(|a, b| Some(a.max(b)))?,
            "arith.minsi" | "arith.minui" => two(|a, b| Some(a.min(b)))?,
            "arith.andi" => two(|a, b| Some(a & b))?,
            "arith.ori" => two(|a, b| Some(a | b))?,
            "arith.xori" => two(|a, b| Some(a ^ b))?,
            "arith.cmpi" => {
                let (a, b) = (self.value(op, 0)?, self.value(op, 1)?);
                i64::from(compare(op, a, b)?)
            }
            "arith.select" => match self.value(op, 0)? {
                0 => self.value(op, 2)?,
                _ => self.value(op, 1)?,
            },
            "arith.index_cast" | "arith.index_castui" | "arith.extsi" | "arith.extui"
            | "arith.trunci" => self.value(op, 0)?,
            _ => return Ok(false),
        };
        self.constants.insert(op.result()?.to_owned(), value);
        Ok(true)
    }
}

fn compare(op: &Op, a: i64, b: i64) -> Result<bool, SyntaxError> {
    Ok(match op.text("predicate")? {
        "eq" => a == b,
        "ne" => a != b,
        "slt" | "ult" => a < b,
        "sle" | "ule" => a <= b,
        "sgt" | "ugt" => a > b,
        "sge" | "uge" => a >= b,
        other => return Err(op.error(format!("a comparison by `{other}`"))),
    })
}
