//! Loops, conditions, blocks and calls.

use super::code::Instruction as I;
use super::compile::CoreCompiler;
use super::value::CoreValue;
use crate::syntax::{Attribute, Op, Region, Successor, SyntaxError};
use std::collections::BTreeMap;

impl CoreCompiler<'_> {
    /// Compiles a control-flow op; `false` for any other.
    pub(super) fn control(&mut self, op: &Op, to: &[usize]) -> Result<bool, SyntaxError> {
        match op.name.as_str() {
            "scf.for" | "affine.for" => self.for_loop(op)?,
            "scf.if" => self.condition(op)?,
            "scf.while" => self.while_loop(op)?,
            "scf.index_switch" => self.index_switch(op)?,
            "func.call" | "call" => self.call(op)?,
            "scf.yield" | "affine.yield" | "func.return" | "return" => {
                let from = self.operands(op)?;
                self.give(op, &from, to)?;
            }
            "aie.end" => self.push(I::End)?,
            "cf.br" | "cf.cond_br" | "scf.condition" => {
                return Err(op.error("it does not stand here"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Values of a terminator go where they belong.
    fn give(&mut self, op: &Op, from: &[usize], to: &[usize]) -> Result<(), SyntaxError> {
        // Unused results need no names.
        if to.is_empty() {
            return Ok(());
        }
        if from.len() != to.len() {
            return Err(op.error(format!(
                "{} values where {} are needed",
                from.len(),
                to.len()
            )));
        }
        match from.is_empty() {
            true => Ok(()),
            false => self.push(I::Copy(
                from.iter().copied().zip(to.iter().copied()).collect(),
            )),
        }
    }

    fn bind_all(&mut self, names: &[String]) -> Vec<usize> {
        names.iter().map(|name| self.bind(name)).collect()
    }

    /// Sets the target of a jump that was written before.
    pub(super) fn aim(&mut self, jump: usize, at: usize) {
        match &mut self.code.instructions[jump] {
            I::Jump(to) | I::Unless(_, to) | I::UnlessLess(_, _, to) => *to = at,
            _ => {}
        }
    }

    fn for_loop(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let operands = self.bounds(op)?;
        let [first, end, step, carried @ ..] = &operands[..] else {
            return Err(op.error("a loop has bounds and a step"));
        };
        let region = op.region(0)?;
        let [block] = &region.blocks[..] else {
            return Err(op.error("a loop's body is one block"));
        };
        let names: Vec<String> = block.arguments.iter().map(|row| row.0.clone()).collect();
        if names.len() != carried.len() + 1 {
            return Err(op.error("the loop's values differ in number"));
        }
        let places = self.bind_all(&names);
        let start: Vec<usize> = [*first]
            .into_iter()
            .chain(carried.iter().copied())
            .collect();
        self.give(op, &start, &places)?;
        let test = self.here();
        self.push(I::UnlessLess(places[0], *end, 0))?;
        self.region(region, &places[1..])?;
        let number = super::value::Number::Integer(64);
        self.compute_into(places[0], "index.step", number, vec![places[0], *step])?;
        self.push(I::Jump(test))?;
        let behind = self.here();
        self.aim(test, behind);
        let results = self.bind_all(&op.results);
        self.give(op, &places[1..], &results)
    }

    /// First, end and step of a loop, and its carried values.
    fn bounds(&mut self, op: &Op) -> Result<Vec<usize>, SyntaxError> {
        let mut all = Vec::new();
        if op.name == "affine.for" {
            for name in ["lower", "upper"] {
                let Attribute::Affine(of) = op.need(name)? else {
                    return Err(op.error(format!("`{name}` is no whole number")));
                };
                all.push(self.affine(op, of)?);
            }
            let step = self.slot();
            self.push(I::Constant(step, CoreValue::Integer(op.integer("step")?)))?;
            all.push(step);
        }
        all.extend(self.operands(op)?);
        Ok(all)
    }

    fn condition(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let value = self.operand(op, 0)?;
        let results: Vec<usize> = op.results.iter().map(|_| self.slot()).collect();
        let test = self.here();
        self.push(I::Unless(value, 0))?;
        self.region(op.region(0)?, &results)?;
        let over = self.here();
        self.push(I::Jump(0))?;
        let otherwise = self.here();
        self.aim(test, otherwise);
        match op.regions.get(1) {
            Some(region) => self.region(region, &results)?,
            None if results.is_empty() => {}
            None => return Err(op.error("it gives values, and has no `else`")),
        }
        let behind = self.here();
        self.aim(over, behind);
        for (name, slot) in op.results.iter().zip(results) {
            self.names().insert(name.clone(), slot);
        }
        Ok(())
    }

    /// One region a case; the last one is for all other values.
    fn index_switch(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let value = self.operand(op, 0)?;
        let cases = match op.need("cases")? {
            Attribute::Array(all) => all.iter().map(Attribute::integer).collect(),
            _ => None,
        };
        let cases: Vec<i64> = cases.ok_or_else(|| op.error("its cases are no whole numbers"))?;
        let Some((otherwise, regions)) = op
            .regions
            .split_last()
            .filter(|(_, regions)| regions.len() == cases.len())
        else {
            return Err(op.error("it has a region for each case, and one for all others"));
        };
        let results: Vec<usize> = op.results.iter().map(|_| self.slot()).collect();
        let number = super::value::Number::Integer(64);
        let mut exits = Vec::new();
        for (&case, region) in cases.iter().zip(regions) {
            let (other, test) = (self.slot(), self.slot());
            self.push(I::Constant(other, CoreValue::Integer(case)))?;
            self.push(I::Compute {
                name: "arith.cmpi".to_owned(),
                predicate: "eq".to_owned(),
                types: (number, number),
                to: test,
                from: vec![value, other],
            })?;
            let jump = self.here();
            self.push(I::Unless(test, 0))?;
            self.region(region, &results)?;
            exits.push(self.here());
            self.push(I::Jump(0))?;
            let next = self.here();
            self.aim(jump, next);
        }
        self.region(otherwise, &results)?;
        let behind = self.here();
        exits.into_iter().for_each(|exit| self.aim(exit, behind));
        for (name, slot) in op.results.iter().zip(results) {
            self.names().insert(name.clone(), slot);
        }
        Ok(())
    }

    fn while_loop(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let start = self.operands(op)?;
        let [before, after] = [op.region(0)?, op.region(1)?];
        let [([first], [second])] = [(&before.blocks[..], &after.blocks[..])] else {
            return Err(op.error("each part of the loop is one block"));
        };
        let names = |block: &crate::syntax::OpBlock| {
            block
                .arguments
                .iter()
                .map(|row| row.0.clone())
                .collect::<Vec<_>>()
        };
        let places = self.bind_all(&names(first));
        self.give(op, &start, &places)?;
        let test = self.here();
        let Some((last, ops)) = first
            .ops
            .split_last()
            .filter(|(last, _)| last.name == "scf.condition")
        else {
            return Err(op.error("its first part ends with `scf.condition`"));
        };
        for op in ops {
            self.op(op, &[])?;
        }
        let values = self.operands(last)?;
        let (condition, passed) = values
            .split_first()
            .ok_or_else(|| last.error("it has no condition"))?;
        let inner = self.bind_all(&names(second));
        let results: Vec<usize> = op.results.iter().map(|_| self.slot()).collect();
        self.give(last, passed, &results)?;
        let leave = self.here();
        self.push(I::Unless(*condition, 0))?;
        self.give(last, passed, &inner)?;
        self.region(after, &places)?;
        self.push(I::Jump(test))?;
        let behind = self.here();
        self.aim(leave, behind);
        for (name, slot) in op.results.iter().zip(results) {
            self.names().insert(name.clone(), slot);
        }
        Ok(())
    }

    /// A function of the file is written out; one without a body is a kernel.
    fn call(&mut self, op: &Op) -> Result<(), SyntaxError> {
        const MOST_CALLS: usize = 16;
        let name = op.text("callee")?.to_owned();
        let function = self.function(&name).cloned();
        let Some(function) = function.filter(|function| !function.regions.is_empty()) else {
            return self.kernel(op, &name);
        };
        if self.calls.contains(&name) || self.calls.len() >= MOST_CALLS {
            return Err(op.error(format!(
                "@{name} calls itself, or too many within one another"
            )));
        }
        let from = self.operands(op)?;
        let region = function.region(0)?;
        let arguments: Vec<String> = region.blocks.first().map_or(Vec::new(), |block| {
            block.arguments.iter().map(|row| row.0.clone()).collect()
        });
        let outer = std::mem::take(self.names());
        let places = self.bind_all(&arguments);
        self.give(op, &from, &places)?;
        let results: Vec<usize> = op.results.iter().map(|_| self.slot()).collect();
        self.calls.push(name);
        self.region(region, &results)?;
        self.calls.pop();
        *self.names() = outer;
        for (name, slot) in op.results.iter().zip(results) {
            self.names().insert(name.clone(), slot);
        }
        Ok(())
    }

    /// The slots of each block's arguments, by its label.
    fn block_arguments<'o>(&mut self, region: &'o Region) -> BTreeMap<&'o str, Vec<usize>> {
        let mut arguments = BTreeMap::new();
        for (i, block) in region.blocks.iter().enumerate() {
            let names: Vec<String> = block.arguments.iter().map(|row| row.0.clone()).collect();
            // The first block's have been given values already.
            let places = match i {
                0 => names
                    .iter()
                    .map(|name| self.names().get(name).copied().unwrap_or(0))
                    .collect(),
                _ => self.bind_all(&names),
            };
            arguments.insert(block.label.as_str(), places);
        }
        arguments
    }

    /// A region of several blocks.
    pub(super) fn blocks(&mut self, region: &Region, to: &[usize]) -> Result<(), SyntaxError> {
        let arguments = self.block_arguments(region);
        let mut starts = BTreeMap::new();
        let mut jumps: Vec<(usize, &Op, &str)> = Vec::new();
        let mut exits = Vec::new();
        for block in &region.blocks {
            starts.insert(block.label.as_str(), self.here());
            for op in &block.ops {
                match op.name.as_str() {
                    "cf.br" => {
                        let [successor] = &op.successors[..] else {
                            return Err(op.error("it names one block"));
                        };
                        self.jump(op, successor, &arguments, &mut jumps)?;
                    }
                    "cf.cond_br" => {
                        let [then, otherwise] = &op.successors[..] else {
                            return Err(op.error("it names two blocks"));
                        };
                        let value = self.operand(op, 0)?;
                        let test = self.here();
                        self.push(I::Unless(value, 0))?;
                        self.jump(op, then, &arguments, &mut jumps)?;
                        let here = self.here();
                        self.aim(test, here);
                        self.jump(op, otherwise, &arguments, &mut jumps)?;
                    }
                    _ => {
                        self.op(op, to)?;
                        if matches!(
                            op.name.as_str(),
                            "func.return" | "return" | "scf.yield" | "affine.yield"
                        ) {
                            exits.push(self.here());
                            self.push(I::Jump(0))?;
                        }
                    }
                }
            }
        }
        for (jump, op, label) in jumps {
            let at = *starts
                .get(label)
                .ok_or_else(|| op.error(format!("there is no block ^{label}")))?;
            self.aim(jump, at);
        }
        let behind = self.here();
        exits.into_iter().for_each(|exit| self.aim(exit, behind));
        Ok(())
    }

    fn jump<'o>(
        &mut self,
        op: &'o Op,
        successor: &'o Successor,
        arguments: &BTreeMap<&str, Vec<usize>>,
        jumps: &mut Vec<(usize, &'o Op, &'o str)>,
    ) -> Result<(), SyntaxError> {
        let values = successor
            .operands
            .iter()
            .map(|name| self.use_name(op, name));
        let from: Vec<usize> = values.collect::<Result<_, _>>()?;
        let to = arguments.get(successor.label.as_str());
        let to = to.ok_or_else(|| op.error(format!("there is no block ^{}", successor.label)))?;
        self.give(op, &from, to)?;
        jumps.push((self.here(), op, &successor.label));
        self.push(I::Jump(0))
    }
}
