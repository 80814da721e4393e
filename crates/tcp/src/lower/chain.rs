//! Consecutive ops as one program: a block, in which values that pass from op to op stay in data memory.
//!
//! The pieces are those of single [ops](super::ops), in the same order with the same roundings. So a block gives the
//! same bits as its ops one by one, where weights are cut alike. A chain may end anywhere; the code that cuts a model
//! into chains asks for shorter ones where data memory is full.

mod weave;

use super::ops::Op;
use super::{Dims, LowerError, Note, Target, TcpLowerOptions, TcpLowering};
use crate::Machine;
use weave::Weaver;

pub(super) use weave::product_cut;

/// Operand of an op of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainOperand {
    /// A value by its number: an earlier op's of the chain, or one from outside.
    Value(usize),
    /// Anything else, by a number of the caller's: equal numbers are one slot.
    Own(usize),
}

/// An op of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name, with which those of its slots begin.
    pub name: &'static str,
    /// The op.
    pub op: Op,
    /// Content of the slots of its own program, without the last.
    pub takes: Vec<ChainOperand>,
    /// The value that it gives.
    pub gives: usize,
}

/// Ops that become one program.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'c> {
    /// The program's name.
    pub name: &'c str,
    /// The ops, in order, all of as many rows.
    pub links: &'c [Link],
    /// Values that are needed outside the chain.
    pub leaves: &'c [usize],
    /// Whether every op's result is given out, for checks of each.
    pub shows: bool,
}

/// Content of a slot of a chain's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOf {
    /// An operand from outside.
    Takes(ChainOperand),
    /// A value that an op gives.
    Gives(usize),
}

/// An op in a chain's program.
#[derive(Clone, Debug, Default)]
pub struct LoweredLink {
    /// Slots of its operands and results, as far as they are slots.
    pub slots: Vec<usize>,
    /// Number of its results: 0 where its result stays in data memory.
    pub n_results: usize,
    /// How it is cut, in words and numbers.
    pub cut: Vec<(&'static str, u64)>,
    /// Lines of an explanation.
    pub notes: Vec<Note>,
}

/// A lowered chain.
#[derive(Clone, Debug)]
pub struct LoweredChain {
    /// The program.
    pub lowered: TcpLowering,
    /// Content of its slots.
    pub slots: Vec<SlotOf>,
    /// Its ops.
    pub links: Vec<LoweredLink>,
}

/// The op of a chain that cannot be lowered behind those before it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct ChainError {
    /// The op.
    pub link: usize,
    /// Why not.
    pub error: LowerError,
}

/// Prefix of the commands of a chain's op, before its number and an underscore.
const PREFIX: &str = "op";

/// The op of a chain that a command belongs to, by the command's name; 0 where the name does not say.
pub(crate) fn link_of(command: &str) -> usize {
    let digits = command.strip_prefix(PREFIX).and_then(|rest| {
        let end = rest.find('_')?;
        rest[..end].parse().ok()
    });
    digits.unwrap_or(0)
}

impl Chain<'_> {
    /// Lowers the chain to its program.
    ///
    /// # Errors
    /// [`ChainError`]: the first op that does not fit: data memory is full, its sizes are not taken, or its axes differ
    /// from those of the others.
    pub fn lower(
        &self,
        machine: &Machine,
        options: TcpLowerOptions,
    ) -> Result<LoweredChain, ChainError> {
        let at = |link: usize| move |error: LowerError| ChainError { link, error };
        let mut dims: Vec<Dims> = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            dims.push(link.op.dims().map_err(at(number))?);
        }
        let Some((first, first_dims)) = self.links.first().zip(dims.first()) else {
            let error = LowerError::Unsupported("a block of no ops".to_owned());
            return Err(ChainError { link: 0, error });
        };
        let target = Target {
            machine,
            dims: first_dims,
            options,
            call: first.op.call(),
        };
        let mut weaver = Weaver::new(target, self, &dims).map_err(at(0))?;
        let mut next = 0;
        while next < self.links.len() {
            let failed = at(next);
            next += weaver.link(next).map_err(failed)?;
        }
        Ok(weaver.finish())
    }
}
