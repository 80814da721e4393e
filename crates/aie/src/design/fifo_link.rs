//! Links between object FIFOs: one pool that both ends use.

use super::fifo::{FifoLowering, FifoOp, FifoPool};
use crate::syntax::{Attribute, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::TileKind;
use std::collections::BTreeMap;

/// Pools of links by the FIFOs that they join.
#[derive(Default)]
pub(super) struct Links {
    pools: Vec<FifoPool>,
    /// By the FIFO that fills the pool: pool and parts.
    inputs: BTreeMap<String, (usize, Vec<usize>)>,
    /// By the FIFO that empties the pool.
    outputs: BTreeMap<String, (usize, Vec<usize>)>,
}

impl Links {
    pub(super) fn touches(&self, fifo: &str) -> bool {
        self.inputs.contains_key(fifo) || self.outputs.contains_key(fifo)
    }

    pub(super) fn touches_output(&self, fifo: &str) -> bool {
        self.outputs.contains_key(fifo)
    }

    pub(super) fn output(&self, fifo: &str) -> Option<(&FifoPool, &[usize])> {
        let (pool, parts) = self.outputs.get(fifo)?;
        Some((&self.pools[*pool], parts))
    }

    pub(super) fn input(&self, fifo: &str, consumer: Tile) -> Option<(&FifoPool, &[usize])> {
        let (pool, parts) = self.inputs.get(fifo)?;
        let pool = &self.pools[*pool];
        (pool.tile == consumer).then_some((pool, parts.as_slice()))
    }
}

/// Makes the pools of all links.
pub(super) fn pools<'o>(
    lowering: &mut FifoLowering<'_>,
    fifos: &[FifoOp<'_>],
    ops: impl Iterator<Item = &'o Op>,
) -> Result<Links, SyntaxError> {
    let mut links = Links::default();
    for op in ops {
        op.only(&["fifoIns", "fifoOuts", "src_offsets", "dst_offsets"])?;
        let find = |attribute: &str| -> Result<Vec<&FifoOp<'_>>, SyntaxError> {
            let Attribute::Array(names) = op.need(attribute)? else {
                return Err(op.error("expected a list of names"));
            };
            let one = |name: &Attribute| match name {
                Attribute::Symbol(name) => fifos.iter().find(|fifo| fifo.name == name),
                _ => None,
            };
            let found: Option<Vec<_>> = names.iter().map(one).collect();
            found
                .filter(|all| !all.is_empty())
                .ok_or_else(|| op.error("it names no object FIFO"))
        };
        link(
            lowering,
            op,
            &find("fifoIns")?,
            &find("fifoOuts")?,
            &mut links,
        )?;
    }
    Ok(links)
}

/// Offsets of parts, from the attribute or one after the other; their lengths are those of the FIFOs.
fn parts(
    op: &Op,
    attribute: &str,
    fifos: &[&FifoOp<'_>],
    whole: &FifoOp<'_>,
) -> Result<Vec<(u64, u64)>, SyntaxError> {
    let given = op
        .get(attribute)
        .and_then(Attribute::integers)
        .unwrap_or_default();
    if !given.is_empty() && given.len() != fifos.len() {
        return Err(op.error(format!("`{attribute}` has not one offset a FIFO")));
    }
    let mut parts = Vec::new();
    let mut end = 0;
    for (i, fifo) in fifos.iter().enumerate() {
        let offset = match given.get(i) {
            Some(&elements) => u64::try_from(elements)
                .ok()
                .and_then(|elements| elements.checked_mul(whole.of.element_bytes()))
                .ok_or_else(|| op.error("an offset out of range"))?,
            None => end,
        };
        end = offset.saturating_add(fifo.bytes());
        if end > whole.bytes() {
            let problem = format!(
                "@{} ends at byte {end} of the {} of @{}",
                fifo.name,
                whole.bytes(),
                whole.name
            );
            return Err(op.error(problem));
        }
        parts.push((offset, fifo.bytes()));
    }
    Ok(parts)
}

fn link(
    lowering: &mut FifoLowering<'_>,
    op: &Op,
    inputs: &[&FifoOp<'_>],
    outputs: &[&FifoOp<'_>],
    links: &mut Links,
) -> Result<(), SyntaxError> {
    let tile = outputs[0].producer;
    let meets = inputs.iter().all(|fifo| fifo.consumers.contains(&tile))
        && outputs.iter().all(|fifo| fifo.producer == tile);
    if !meets || tile.kind() == TileKind::Shim {
        return Err(op.error("its FIFOs do not meet in a memory tile or core"));
    }
    if let Some(fifo) = inputs
        .iter()
        .find(|fifo| links.inputs.contains_key(fifo.name))
    {
        return Err(op.error(format!("@{} is linked already", fifo.name)));
    }
    if let Some(fifo) = outputs
        .iter()
        .find(|fifo| links.outputs.contains_key(fifo.name))
    {
        return Err(op.error(format!("@{} is linked already", fifo.name)));
    }
    let number = links.pools.len();
    let (pool, of_inputs, of_outputs) = shared(lowering, op, inputs, outputs)?;
    links.pools.push(pool);
    for (fifo, parts) in inputs.iter().zip(of_inputs) {
        links.inputs.insert(fifo.name.to_owned(), (number, parts));
    }
    for (fifo, parts) in outputs.iter().zip(of_outputs) {
        links.outputs.insert(fifo.name.to_owned(), (number, parts));
    }
    Ok(())
}

/// Parts by FIFO.
type PartsOf = Vec<Vec<usize>>;

/// The pool of a link, with the parts that each input fills and each output empties.
fn shared(
    lowering: &mut FifoLowering<'_>,
    op: &Op,
    inputs: &[&FifoOp<'_>],
    outputs: &[&FifoOp<'_>],
) -> Result<(FifoPool, PartsOf, PartsOf), SyntaxError> {
    let tile = outputs[0].producer;
    // The pool is that of the side with the larger objects; padding has no place in it.
    let (owner, parts) = match (inputs, outputs) {
        ([input], [output]) if input.bytes() < output.bytes_in_memory() => {
            (output, vec![(0, output.bytes())])
        }
        ([input], [_]) => (input, vec![(0, input.bytes())]),
        ([input], many) => (input, parts(op, "dst_offsets", many, input)?),
        (many, [output]) => (output, parts(op, "src_offsets", many, output)?),
        _ => return Err(op.error("it joins and distributes at once")),
    };
    let consumer = owner
        .consumers
        .iter()
        .position(|&consumer| consumer == tile);
    let side = match owner.producer == tile {
        true => 0,
        false => 1 + consumer.unwrap_or(0),
    };
    let repeat = outputs[0].repeat;
    if outputs.iter().any(|fifo| fifo.repeat != repeat) {
        return Err(op.error("its outputs have different `repeat_count`"));
    }
    let size = lowering.side(owner, side);
    let pool = lowering.pool(owner, side, size, (&parts, repeat))?;
    let of = |fifos: &[&FifoOp<'_>]| match fifos.len() {
        1 => vec![(0..parts.len()).collect()],
        n => (0..n).map(|i| vec![i]).collect(),
    };
    Ok((pool, of(inputs), of(outputs)))
}
