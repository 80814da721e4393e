//! The ops of a chain, one after the other: their commands, and the values that stay in data memory.

mod products;
mod rowwise;

use super::{Chain, ChainOperand, LoweredChain, LoweredLink, PREFIX, SlotOf};
use crate::Element;
use crate::axes::Mapping;
use crate::lower::builder::{Builder, Lane, ax, list};
use crate::lower::linear::{Factor, ResidentTokens};
use crate::lower::ops::{Op, OpKernel, OpKind};
use crate::lower::rows::{ActivationRows, Width};
use crate::lower::{Dims, LowerError, Target, TcpLowerOptions};
use crate::program::View;
use millrace_npu::Role as Slot;
use std::collections::HashMap;

pub(in crate::lower) use products::product_cut;

type ChainSplit = Vec<(&'static str, u64)>;

pub(super) struct Weaver<'t> {
    b: Builder<'t>,
    chain: &'t Chain<'t>,
    dims: &'t [Dims],
    /// Values in data memory.
    at: HashMap<usize, ActivationRows>,
    /// The same as 8-bit factors, where products took them in that form.
    factors: HashMap<usize, Factor>,
    /// The factor that tensor registers hold: its value, its element, and its number of slices.
    held: Option<((usize, Element, u64), ResidentTokens)>,
    /// Number of later uses of a value in the chain.
    uses: HashMap<usize, usize>,
    slots: Vec<SlotOf>,
    /// Tensors of operands from outside, and of results that are given out.
    taken: HashMap<ChainOperand, usize>,
    given: HashMap<usize, usize>,
    links: Vec<LoweredLink>,
}

impl<'t> Weaver<'t> {
    pub(super) fn new(
        target: Target<'t>,
        chain: &'t Chain<'t>,
        dims: &'t [Dims],
    ) -> Result<Weaver<'t>, LowerError> {
        let mut uses = HashMap::new();
        for operand in chain.links.iter().flat_map(|link| &link.takes) {
            if let ChainOperand::Value(value) = operand {
                *uses.entry(*value).or_default() += 1;
            }
        }
        Ok(Weaver {
            b: Builder::bare(target, chain.name)?,
            chain,
            dims,
            at: HashMap::new(),
            factors: HashMap::new(),
            held: None,
            uses,
            slots: Vec::new(),
            taken: HashMap::new(),
            given: HashMap::new(),
            links: vec![LoweredLink::default(); chain.links.len()],
        })
    }

    /// Slots are the tensors in HBM, in the order in which they were made.
    pub(super) fn finish(mut self) -> LoweredChain {
        let slot = |wanted: SlotOf| self.slots.iter().position(|slot| *slot == wanted);
        for (link, lowered) in self.chain.links.iter().zip(&mut self.links) {
            let operands = link.takes.iter().filter_map(|operand| match operand {
                ChainOperand::Value(value) => {
                    slot(SlotOf::Gives(*value)).or_else(|| slot(SlotOf::Takes(*operand)))
                }
                ChainOperand::Own(_) => slot(SlotOf::Takes(*operand)),
            });
            lowered.slots = operands.collect();
            if let Some(result) = slot(SlotOf::Gives(link.gives)) {
                lowered.slots.push(result);
                lowered.n_results = 1;
            }
        }
        LoweredChain {
            lowered: self.b.lowered(),
            slots: self.slots,
            links: self.links,
        }
    }

    /// Lowers an op, and those behind it that are computed with it; gives their number.
    pub(super) fn link(&mut self, i: usize) -> Result<usize, LowerError> {
        self.enter(i)?;
        let kind = self.op(i).kind;
        if self.is_gated(i) {
            self.gated(i)?;
            for link in i..i + 3 {
                self.leave(link);
            }
            return Ok(3);
        }
        let cut = match kind {
            OpKind::Embed => self.embed(i)?,
            OpKind::Norm | OpKind::LastNorm => self.norm(i)?,
            OpKind::Product(role) => self.product(i, role)?,
            OpKind::RotateQueries => self.rotate(i, &["h_kv", "G"])?,
            OpKind::RotateKeys => self.rotate(i, &["h_kv"])?,
            OpKind::Attend => self.attend(i)?,
            OpKind::Gate => self.gate(i)?,
            OpKind::Add => self.add(i)?,
        };
        self.links[i].cut = cut;
        self.links[i].notes.append(&mut self.b.notes);
        self.leave(i);
        Ok(1)
    }

    fn op(&self, i: usize) -> &'t Op {
        &self.chain.links[i].op
    }

    /// Sets the builder up for an op: sizes, axes, and the prefix of its commands.
    fn enter(&mut self, i: usize) -> Result<(), LowerError> {
        let op = self.op(i);
        self.b.prefix = format!("{PREFIX}{i}_{}_", self.chain.links[i].name);
        self.b.target = Target {
            dims: &self.dims[i],
            options: TcpLowerOptions {
                weights: op.weights,
                ..self.b.target.options
            },
            call: op.call(),
            ..self.b.target
        };
        let axes = OpKernel::of(op.kind).axes.iter().zip(&op.sizes);
        for (axis, size) in axes {
            self.b.axis(axis, *size)?;
        }
        self.b.axis("s_q", op.size("s_q"))
    }

    /// Frees values that no later op takes.
    fn leave(&mut self, i: usize) {
        for operand in &self.chain.links[i].takes {
            let ChainOperand::Value(value) = operand else {
                continue;
            };
            let left = self.uses.entry(*value).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                if let Some(rows) = self.at.remove(value) {
                    self.b.retire(rows.tensor);
                }
                if let Some(factor) = self.factors.remove(value) {
                    self.b.retire(factor.rows.tensor);
                    factor.of_tokens.into_iter().for_each(|t| self.b.retire(t));
                }
            }
        }
    }

    fn is_taken(&self, value: usize) -> bool {
        self.uses.get(&value).is_some_and(|left| *left > 0)
    }

    fn is_given_out(&self, value: usize) -> bool {
        self.chain.shows || self.chain.leaves.contains(&value) || !self.is_taken(value)
    }

    /// The value that an op takes as its operand of that number.
    fn taken_value(&self, i: usize, number: usize) -> Result<usize, LowerError> {
        match self.chain.links[i].takes.get(number) {
            Some(ChainOperand::Value(value)) => Ok(*value),
            _ => Err(LowerError::Unsupported(format!(
                "`{}` has no value as operand {number}",
                self.chain.links[i].name
            ))),
        }
    }

    /// A value at rest: in the place where an op of the chain left it, or loaded from HBM, where rows are of that form.
    fn value(
        &mut self,
        value: usize,
        width: &Width,
        form: Mapping,
    ) -> Result<ActivationRows, LowerError> {
        if let Some(rows) = self.at.get(&value) {
            if rows.width.axes == width.axes {
                return Ok(rows.clone());
            }
            return Err(LowerError::Unsupported(
                "the value lies in data memory over other axes".to_owned(),
            ));
        }
        // The same name whether results are shown or not.
        let known = self
            .taken
            .keys()
            .filter(|of| matches!(of, ChainOperand::Value(_)));
        let name = format!("x{}", 1 + known.count());
        let layout = list([ax("B"), ax("s_q"), form]);
        let operand = ChainOperand::Value(value);
        let from = self.taken(operand, &name, (Element::Bf16, Slot::Input), layout)?;
        let rows = self.b.rows("x", Element::Bf16, width)?;
        self.b.load_rows(from, &rows);
        self.at.insert(value, rows.clone());
        Ok(rows)
    }

    /// The tensor in HBM of an operand from outside.
    fn taken(
        &mut self,
        operand: ChainOperand,
        name: &str,
        (element, role): (Element, Slot),
        layout: Mapping,
    ) -> Result<usize, LowerError> {
        if let Some(tensor) = self.taken.get(&operand) {
            return Ok(*tensor);
        }
        let tensor = self.b.hbm(name, element, role, layout)?;
        self.slots.push(SlotOf::Takes(operand));
        self.taken.insert(operand, tensor);
        Ok(tensor)
    }

    /// The same for an operand that is not a value, by its number.
    fn own(
        &mut self,
        (i, number): (usize, usize),
        name: &str,
        kind: (Element, Slot),
        layout: Mapping,
    ) -> Result<usize, LowerError> {
        let link = &self.chain.links[i];
        let operand = link.takes.get(number).copied().ok_or_else(|| {
            LowerError::Unsupported(format!("`{}` has no operand {number}", link.name))
        })?;
        self.taken(operand, &format!("{}_{name}", link.name), kind, layout)
    }

    /// The tensor in HBM of an op's result.
    fn result(&mut self, i: usize, element: Element, form: Mapping) -> Result<usize, LowerError> {
        let link = &self.chain.links[i];
        let layout = list([ax("B"), ax("s_q"), form]);
        let name = format!("{}_y", link.name);
        let tensor = self.b.hbm(&name, element, Slot::Output, layout)?;
        self.slots.push(SlotOf::Gives(link.gives));
        self.given.insert(link.gives, tensor);
        Ok(tensor)
    }

    /// An op's result at rest: kept for ops behind it, and given out where it is needed outside.
    fn give(&mut self, i: usize, rows: ActivationRows) -> Result<(), LowerError> {
        let value = self.chain.links[i].gives;
        if self.is_given_out(value) {
            let y = self.result(i, rows.element, rows.width.mapping.clone())?;
            let (from, to) = (View::of(rows.tensor), View::of(y));
            self.b.copy("store", Lane::Others, from, to);
        }
        match self.is_taken(value) {
            true => _ = self.at.insert(value, rows),
            false => self.b.retire(rows.tensor),
        }
        Ok(())
    }
}
