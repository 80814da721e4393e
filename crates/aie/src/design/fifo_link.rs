//! Links between object FIFOs: one pool that both ends use.

use super::fifo::{FifoOp, Lowering, Pool};
use crate::syntax::{Attribute, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::TileKind;
use std::collections::BTreeMap;

/// Pools of links by the FIFOs that they join.
#[derive(Default)]
pub(super) struct Links {
    pools: Vec<Pool>,
    /// By the FIFO that fills it: pool and parts.
    inputs: BTreeMap<String, (usize, Vec<usize>)>,
    /// By the FIFO that empties it.
    outputs: BTreeMap<String, (usize, Vec<usize>)>,
}

impl Links {
    pub(super) fn touches(&self, fifo: &str) -> bool {
        self.inputs.contains_key(fifo) || self.outputs.contains_key(fifo)
    }

    pub(super) fn touches_output(&self, fifo: &str) -> bool {
        self.outputs.contains_key(fifo)
    }

    pub(super) fn output(&self, fifo: &str) -> Option<(&Pool, &[usize])> {
        let (pool, parts) = self.outputs.get(fifo)?;
        Some((&self.pools[*pool], parts))
    }

    pub(super) fn input(&self, fifo: &str, consumer: Tile) -> Option<(&Pool, &[usize])> {
        let (pool, parts) = self.inputs.get(fifo)?;
        let pool = &self.pools[*pool];
        (pool.tile == consumer).then_some((pool, parts.as_slice()))
    }
}

/// Makes the pools of all links.
pub(super) fn pools<'o>(
    lowering: &mut Lowering<'_>,
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

/// Where parts begin, by the attribute or one behind the other; their lengths are those of the FIFOs.
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
    lowering: &mut Lowering<'_>,
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
    let side = |fifo: &FifoOp<'_>| 1 + fifo.consumers.iter().position(|&c| c == tile).unwrap_or(0);
    let number = links.pools.len();
    let all = |n: usize| (0..n).collect::<Vec<_>>();
    let (pool, of_inputs, of_outputs) = match (inputs, outputs) {
        ([input], [output]) if input.bytes() >= output.bytes() => {
            let pool = lowering.pool(
                input,
                side(input),
                lowering.side(input, side(input)),
                &[(0, input.bytes())],
            )?;
            (pool, vec![vec![0]], vec![vec![0]])
        }
        ([_], [output]) => {
            let pool =
                lowering.pool(output, 0, lowering.side(output, 0), &[(0, output.bytes())])?;
            (pool, vec![vec![0]], vec![vec![0]])
        }
        ([input], many) => {
            let parts = parts(op, "dst_offsets", many, input)?;
            let pool = lowering.pool(
                input,
                side(input),
                lowering.side(input, side(input)),
                &parts,
            )?;
            (
                pool,
                vec![all(parts.len())],
                all(parts.len()).into_iter().map(|i| vec![i]).collect(),
            )
        }
        (many, [output]) => {
            let parts = parts(op, "src_offsets", many, output)?;
            let pool = lowering.pool(output, 0, lowering.side(output, 0), &parts)?;
            (
                pool,
                all(parts.len()).into_iter().map(|i| vec![i]).collect(),
                vec![all(parts.len())],
            )
        }
        _ => return Err(op.error("it joins and distributes at once")),
    };
    links.pools.push(pool);
    for (fifo, parts) in inputs.iter().zip(of_inputs) {
        links.inputs.insert(fifo.name.to_owned(), (number, parts));
    }
    for (fifo, parts) in outputs.iter().zip(of_outputs) {
        links.outputs.insert(fifo.name.to_owned(), (number, parts));
    }
    Ok(())
}
