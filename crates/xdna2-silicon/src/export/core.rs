//! A core's program as ops of arith, scf, memref and func, between locks.

use super::descriptor::memref;
use super::emit::ProgramLines;
use super::shell::KernelFunction;
use super::{DesignText, KERNELS_FILE, tile_name};
use crate::core::{CoreImage, EndLink};
use crate::lower::NoWords;
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Condition, FlatCore, Op, Operand, Var};
use millrace_xdna2_machine::tile::{self, KernelInstance};
use std::collections::BTreeMap;

/// Functions by symbol.
pub(super) type Functions = BTreeMap<String, KernelFunction>;

/// A buffer in the program's hands.
#[derive(Clone)]
pub(super) struct BufferInHand {
    pub(super) name: String,
    pub(super) element: Element,
    pub(super) n_elements: u64,
    /// The end that it was taken from; a local buffer has none.
    end: Option<usize>,
}

/// A core's program while it is printed.
pub(super) struct CoreText<'a> {
    design: &'a DesignText<'a>,
    core: &'a FlatCore<'a>,
    image: &'a CoreImage,
    functions: &'a mut Functions,
    pub(super) lines: ProgramLines,
    grid: Vec<String>,
    loops: Vec<String>,
    blocks: BTreeMap<u8, BufferInHand>,
    /// Ends of several buffers, each with a counter in the memory of the name `turn`.
    turns: Vec<usize>,
    turn: String,
}

impl<'a> CoreText<'a> {
    pub(super) fn new(
        design: &'a DesignText<'a>,
        number: usize,
        functions: &'a mut Functions,
    ) -> CoreText<'a> {
        let image = &design.places.cores[number];
        let turns = image.ends.iter().enumerate();
        let turns = turns.filter(|(_, end)| end.addresses.len() > 1);
        CoreText {
            design,
            core: &design.flat.cores[number],
            image,
            functions,
            lines: ProgramLines::default(),
            grid: Vec::new(),
            loops: Vec::new(),
            turns: turns.map(|row| row.0).collect(),
            turn: String::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// The whole op.
    pub(super) fn text(mut self, stack_bytes: u64) -> Result<String, NoWords> {
        let design = self.design;
        if !self.turns.is_empty() {
            let of = self.turns_type();
            self.turn = self.lines.memory(&of);
            let zero = self.lines.constant(0, "i32");
            for turn in 0..self.turns.len() {
                let at = self.lines.constant(turn as i64, "index");
                self.lines
                    .line(&format!("memref.store {zero}, {}[{at}] : {of}", self.turn));
            }
        }
        for &size in &design.flat.launch.grid {
            let count = self.lines.constant(i64::from(size), "index");
            let variable = self.lines.begin_loop(&count, 1);
            self.grid.push(variable);
        }
        self.ops(&self.core.decl.body)?;
        for _ in &design.flat.launch.grid {
            self.lines.close("}");
        }
        self.lines.line("aie.end");
        let tile = tile_name(self.image.tile);
        let body = self.lines.finish();
        Ok(format!(
            "    {tile}_core = aie.core({tile}) {{\n{body}    }} \
             {{link_with = \"{KERNELS_FILE}\", stack_size = {stack_bytes} : i32}}\n"
        ))
    }

    fn turns_type(&self) -> String {
        format!("memref<{}xi32>", self.turns.len())
    }

    fn fail<T>(&self, problem: impl Into<String>) -> Result<T, NoWords> {
        let core = self.core;
        let place = format!("herd `{}`, core ({}, {})", core.decl.name, core.x, core.y);
        Err(NoWords::new(place, problem))
    }

    /// A variable that is fixed for the core.
    fn coordinate(&self, var: Var) -> i64 {
        match var {
            Var::X => self.core.x.into(),
            Var::Y => self.core.y.into(),
            _ => 0,
        }
    }

    /// An expression as an index, which has 32 bits on a core.
    fn affine(&mut self, affine: &Affine) -> Result<String, NoWords> {
        let mut constant = affine.constant;
        let mut sum: Option<String> = None;
        for &(var, factor) in &affine.terms {
            let variable = match var {
                Var::X | Var::Y => {
                    constant += factor * self.coordinate(var);
                    continue;
                }
                Var::Grid(d) => self.grid.get(usize::from(d)).cloned(),
                Var::Loop(d) => self.loops.get(usize::from(d)).cloned(),
                Var::Index(_) | Var::Each => None,
            };
            if i32::try_from(factor).is_err() {
                return self.fail(format!("the factor {factor} has more than 32 bits"));
            }
            let Some(variable) = variable else {
                return self.fail(format!("{var:?} is no variable of a core's program"));
            };
            let factor = self.lines.constant(factor, "index");
            let term = self
                .lines
                .value(&format!("arith.muli {variable}, {factor} : index"));
            sum = Some(match sum {
                Some(sum) => self
                    .lines
                    .value(&format!("arith.addi {sum}, {term} : index")),
                None => term,
            });
        }
        if i32::try_from(constant).is_err() {
            return self.fail(format!("the number {constant} has more than 32 bits"));
        }
        Ok(match sum {
            None => self.lines.constant(constant, "index"),
            Some(sum) if constant == 0 => sum,
            Some(sum) => {
                let constant = self.lines.constant(constant, "index");
                self.lines
                    .value(&format!("arith.addi {sum}, {constant} : index"))
            }
        })
    }

    /// Ops of a scope: blocks that are taken in it are known in it.
    fn scope(&mut self, ops: &[Op]) -> Result<(), NoWords> {
        let outside = self.blocks.clone();
        self.ops(ops)?;
        self.blocks = outside;
        Ok(())
    }

    fn ops(&mut self, ops: &[Op]) -> Result<(), NoWords> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), NoWords> {
        match op {
            Op::Loop { count, body } => {
                let count = self.affine(count)?;
                let variable = self.lines.begin_loop(&count, 1);
                self.loops.push(variable);
                self.scope(body)?;
                self.loops.pop();
                self.lines.close("}");
            }
            Op::If {
                value,
                condition,
                then,
                otherwise,
            } => self.branch(value, *condition, then, otherwise)?,
            Op::Get {
                channel,
                index,
                block,
            } => self.take((*channel, index), true, *block)?,
            Op::New {
                channel,
                index,
                block,
            } => self.take((*channel, index), false, *block)?,
            Op::Free { block } | Op::Put { block } => self.give(*block)?,
            Op::Call {
                kernel,
                dims,
                operands,
                scalars,
                constants,
            } => {
                let Some(kernel) = tile::find(kernel) else {
                    return self.fail(format!("there is no tile kernel `{kernel}`"));
                };
                let instance = KernelInstance {
                    kernel,
                    dims: dims.clone(),
                    constants: constants.clone(),
                };
                self.call(instance, operands, scalars)?;
            }
        }
        Ok(())
    }

    fn branch(
        &mut self,
        value: &Affine,
        condition: Condition,
        then: &[Op],
        otherwise: &[Op],
    ) -> Result<(), NoWords> {
        if value.terms.iter().all(|row| is_of_core(row.0)) {
            // The branch of another core of the herd may name channels that this core lacks.
            let holds = condition.holds(value.eval(|var| self.coordinate(var)));
            return self.scope(if holds { then } else { otherwise });
        }
        let value = self.affine(value)?;
        let zero = self.lines.constant(0, "index");
        let predicate = match condition {
            Condition::Zero => "eq",
            Condition::NotZero => "ne",
            Condition::Negative => "slt",
            Condition::NotNegative => "sge",
        };
        let test = self
            .lines
            .value(&format!("arith.cmpi {predicate}, {value}, {zero} : index"));
        self.lines.open(&format!("scf.if {test} {{"));
        self.scope(then)?;
        if !otherwise.is_empty() {
            self.lines.otherwise();
            self.scope(otherwise)?;
        }
        self.lines.close("}");
        Ok(())
    }

    /// The end of a channel that an op means.
    fn end(&self, (channel, index): (usize, &[Affine]), is_input: bool) -> Result<usize, NoWords> {
        let mut values = Vec::new();
        for index in index {
            if let Some(&(var, _)) = index.terms.iter().find(|row| !is_of_core(row.0)) {
                let name = &self.design.flat.launch.channels[channel].name;
                return self.fail(format!(
                    "the index of channel `{name}` varies with {var:?}; a design names one buffer"
                ));
            }
            values.push(index.eval(|var| self.coordinate(var)));
        }
        let id = self.design.flat.channel_id(channel, &values);
        let mut ends = self.image.ends.iter();
        match ends.position(|end| Some(end.channel) == id && end.is_input == is_input) {
            Some(end) => Ok(end),
            None => self.fail(format!("channel {channel} {values:?} has no end here")),
        }
    }

    /// Takes the next buffer of an end.
    fn take(&mut self, of: (usize, &[Affine]), is_input: bool, block: u8) -> Result<(), NoWords> {
        let number = self.end(of, is_input)?;
        let image = self.image;
        let end = &image.ends[number];
        if let EndLink::Locks { empty, full } = end.link {
            let lock = DesignText::lock_of_core(image.tile, if is_input { full } else { empty })?;
            self.lines
                .line(&format!("aie.use_lock({lock}, AcquireGreaterEqual, 1)"));
        }
        let mut names = Vec::new();
        for &address in &end.addresses {
            names.push(
                self.design
                    .buffer_of_core(image.tile, address)?
                    .0
                    .to_owned(),
            );
        }
        let n_elements = end.n_words as u64 * 4 / end.element.size_bytes();
        let of = memref(end.element, n_elements)?;
        let name = match &names[..] {
            [only] => only.clone(),
            names => self.next_in_turn(number, names, &of)?,
        };
        let held = BufferInHand {
            name,
            element: end.element,
            n_elements,
            end: Some(number),
        };
        if is_input && end.link == EndLink::Cascade {
            self.cascade(&held, end, true)?;
        }
        self.blocks.insert(block, held);
        Ok(())
    }

    /// The buffer whose turn it is.
    fn next_in_turn(&mut self, end: usize, names: &[String], of: &str) -> Result<String, NoWords> {
        let Some(turn) = self.turns.iter().position(|&row| row == end) else {
            return self.fail("an end of several buffers without a counter");
        };
        let (at, turns) = (self.lines.constant(turn as i64, "index"), self.turns_type());
        let now = self
            .lines
            .value(&format!("memref.load {}[{at}] : {turns}", self.turn));
        let index = self
            .lines
            .value(&format!("arith.index_cast {now} : i32 to index"));
        let buffer = self
            .lines
            .value(&format!("scf.index_switch {index} -> {of}"));
        for (number, name) in names.iter().enumerate().skip(1) {
            self.lines
                .line(&format!("case {number} {{ scf.yield {name} : {of} }}"));
        }
        self.lines
            .line(&format!("default {{ scf.yield {} : {of} }}", names[0]));
        let (one, n) = (
            self.lines.constant(1, "i32"),
            self.lines.constant(names.len() as i64, "i32"),
        );
        let next = self.lines.value(&format!("arith.addi {now}, {one} : i32"));
        let next = self.lines.value(&format!("arith.remui {next}, {n} : i32"));
        self.lines.line(&format!(
            "memref.store {next}, {}[{at}] : {turns}",
            self.turn
        ));
        Ok(buffer)
    }

    /// Gives a buffer back, or on.
    fn give(&mut self, block: u8) -> Result<(), NoWords> {
        let held = self.block(block)?;
        let Some(number) = held.end else {
            return self.fail(format!("b{block} is of no channel"));
        };
        let image = self.image;
        let end = &image.ends[number];
        match end.link {
            EndLink::Locks { empty, full } => {
                let lock = if end.is_input { empty } else { full };
                let lock = DesignText::lock_of_core(image.tile, lock)?;
                self.lines
                    .line(&format!("aie.use_lock({lock}, Release, 1)"));
            }
            EndLink::Cascade if !end.is_input => self.cascade(&held, end, false)?,
            EndLink::Cascade => {}
        }
        self.blocks.remove(&block);
        Ok(())
    }

    fn block(&self, block: u8) -> Result<BufferInHand, NoWords> {
        match self.blocks.get(&block) {
            Some(held) => Ok(held.clone()),
            None => self.fail(format!(
                "b{block} is used outside of the scope that took it"
            )),
        }
    }

    fn operand(&self, operand: Operand) -> Result<BufferInHand, NoWords> {
        match operand {
            Operand::Block(block) => self.block(block),
            Operand::Local(local) => {
                let (address, _) = self.image.locals[local];
                let (name, buffer) = self.design.buffer_of_core(self.image.tile, address)?;
                Ok(BufferInHand {
                    name: name.to_owned(),
                    element: buffer.element,
                    n_elements: buffer.n_elements,
                    end: None,
                })
            }
        }
    }

    fn call(
        &mut self,
        instance: KernelInstance,
        operands: &[Operand],
        scalars: &[Affine],
    ) -> Result<(), NoWords> {
        let mut values = Vec::new();
        let mut types = Vec::new();
        for &operand in operands {
            let held = self.operand(operand)?;
            types.push((held.element, held.n_elements));
            values.push(held.name);
        }
        for scalar in scalars {
            let index = self.affine(scalar)?;
            values.push(
                self.lines
                    .value(&format!("arith.index_cast {index} : index to i32")),
            );
        }
        let symbol = instance.symbol();
        let function = KernelFunction {
            instance,
            operands: types,
            n_scalars: scalars.len(),
        };
        let types = function.types()?;
        let known = self.functions.entry(symbol.clone()).or_insert(function);
        if known.types()? != types {
            return self.fail(format!("`{symbol}` is called with buffers of two kinds"));
        }
        let values = values.join(", ");
        self.lines
            .line(&format!("func.call @{symbol}({values}) : ({types}) -> ()"));
        Ok(())
    }
}

/// Whether a variable is fixed for a core.
fn is_of_core(var: Var) -> bool {
    matches!(var, Var::X | Var::Y)
}
