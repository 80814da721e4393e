//! Ops that follow each other as one program: a block, in which what one op gives and another takes stays in
//! data memory.
//!
//! The pieces are those of single [ops](super::ops), in the same order with the same roundings, so a block gives
//! the bits that its ops give one by one where weights are cut alike. A chain may end anywhere; whoever cuts a
//! model into chains asks for shorter ones where data memory is full.

mod weave;

use super::ops::Op;
use super::{Dims, LowerError, Note, Target, TcpLowerOptions, TcpLowering};
use crate::Machine;
use weave::Weaver;

pub(super) use weave::product_cut;

/// What an op of a chain takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainOperand {
    /// A value by its number: an earlier op's of the chain, or one from outside.
    Value(usize),
    /// Anything else, by a number of the caller's: what has one number is one slot.
    Own(usize),
}

/// An op of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name, with which those of its slots begin.
    pub name: &'static str,
    /// The op.
    pub op: Op,
    /// What the slots of its own program hold, but for the last.
    pub takes: Vec<ChainOperand>,
    /// The value that it gives.
    pub gives: usize,
}

/// Ops to be one program.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'c> {
    /// The program's name.
    pub name: &'c str,
    /// The ops, in order, all of as many rows.
    pub links: &'c [Link],
    /// Values that somebody else takes.
    pub leaves: &'c [usize],
    /// Whether every op's result is given out, for who looks at each.
    pub shows: bool,
}

/// What a slot of a chain's program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOf {
    /// What an op takes from outside.
    Takes(ChainOperand),
    /// A value that an op gives.
    Gives(usize),
}

/// An op in a chain's program.
#[derive(Clone, Debug, Default)]
pub struct LoweredLink {
    /// Slots of what it takes and gives, as far as they are slots.
    pub slots: Vec<usize>,
    /// How many it gives: 0 where its result stays in data memory.
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
    /// What its slots hold.
    pub slots: Vec<SlotOf>,
    /// Its ops.
    pub links: Vec<LoweredLink>,
}

/// Which op of a chain cannot be lowered behind those before it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct ChainError {
    /// The op.
    pub link: usize,
    /// Why not.
    pub error: LowerError,
}

/// Commands of a chain's op begin so, with its number and an underscore behind.
const PREFIX: &str = "op";

/// The op of a chain that a command is of, by the command's name; 0 where a name says nothing.
pub(crate) fn link_of(command: &str) -> usize {
    let digits = command.strip_prefix(PREFIX).and_then(|rest| {
        let end = rest.find('_')?;
        rest[..end].parse().ok()
    });
    digits.unwrap_or(0)
}

impl Chain<'_> {
    /// Its program.
    ///
    /// # Errors
    /// [`ChainError`]: the first op that cannot be there, because data memory is full, its sizes are not taken,
    /// or its axes are not those of the others.
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
