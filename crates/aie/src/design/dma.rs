//! DMA programs of tiles.

use super::allocation::channel;
use super::descriptor::{Constants, block, by_headers, constant};
use super::{BdChain, Design, Entity, TileMemory};
use crate::syntax::{MemRefType, Op, Region, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::BTreeMap;

/// `aie.mem`, `aie.memtile_dma`, `aie.shim_dma`.
pub(super) fn program(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&[])?;
    let tile = design.tile(op, op.operand(0)?)?;
    let kind = match op.name.as_str() {
        "aie.mem" => TileKind::Core,
        "aie.memtile_dma" => TileKind::Memory,
        _ => TileKind::Shim,
    };
    if tile.kind() != kind {
        return Err(op.error(format!("it is for another kind of tile than {tile}")));
    }
    let region = op.region(0)?;
    let labels: BTreeMap<&str, usize> = region
        .blocks
        .iter()
        .enumerate()
        .map(|(i, block)| (block.label.as_str(), i))
        .collect();
    // A number of one block is valid in later ones.
    let mut constants = Constants::new();
    for op in region.ops() {
        constant(op, &mut constants)?;
    }
    let mut read = BTreeMap::new();
    for start in region.ops() {
        match start.name.as_str() {
            "aie.dma_start" => {
                start.only(&[
                    "channel_dir",
                    "channel_index",
                    "repeat_count",
                    "pad_value",
                    "out_of_order",
                ])?;
                let first = start.successors.first().map(|s| s.label.clone());
                let first = first.ok_or_else(|| start.error("it names no block"))?;
                let chain = Labels {
                    region,
                    labels: &labels,
                    read: &mut read,
                    tile,
                    constants: &constants,
                };
                let first = chain.descriptors(design, start, first)?;
                start_chain(design, start, tile, first)?;
            }
            "aie.dma" => {
                start.only(&[
                    "channel_dir",
                    "channel_index",
                    "repeat_count",
                    "loop",
                    "sym_name",
                    "pad_value",
                    "out_of_order",
                ])?;
                let first = list(design, start, tile)?;
                start_chain(design, start, tile, first)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn start_chain(design: &mut Design, op: &Op, tile: Tile, first: usize) -> Result<(), SyntaxError> {
    let channel = channel(
        op,
        tile,
        op.text("channel_dir")?,
        op.integer("channel_index")?,
    )?;
    let repeats = op.integer_or("repeat_count", 0)?;
    let repeats = u64::try_from(repeats).ok().filter(|&n| n <= 255);
    let repeats = repeats.ok_or_else(|| op.error("a repeat count is 0 to 255"))?;
    let executions = match op.flag("out_of_order") {
        false => repeats + 1,
        true => out_of_order(design, op, (channel, first), repeats + 1)?,
    };
    design.chains.push(BdChain {
        channel,
        first,
        executions,
        pad_value: pad_value(op, tile)?,
        at: op.at,
    });
    Ok(())
}

/// Lets headers of packets name the descriptors of a chain; returns the number of packets in so many rounds.
fn out_of_order(
    design: &mut Design,
    op: &Op,
    (channel, first): (ChannelAt, usize),
    rounds: u64,
) -> Result<u64, SyntaxError> {
    if channel.direction != Direction::S2mm {
        return Err(op.error("`out_of_order` is for S2MM"));
    }
    let chain = crate::lower::chain_descriptors(design, first);
    let mut all = design.descriptors.iter_mut().enumerate();
    by_headers(
        op,
        all.by_ref()
            .filter(|row| chain.contains(&row.0))
            .map(|row| row.1),
        rounds,
    )
}

/// The word that padding sends.
fn pad_value(op: &Op, tile: Tile) -> Result<Option<u32>, SyntaxError> {
    if op.get("pad_value").is_none() {
        return Ok(None);
    }
    let value = op.integer("pad_value")?;
    match tile.kind() == TileKind::Memory || value == 0 {
        true => Ok(Some(value as u32).filter(|_| tile.kind() == TileKind::Memory)),
        false => Err(op.error("only memory tiles pad")),
    }
}

/// Meaning of a name in a tile's DMA program.
fn memory_of(
    design: &Design,
    op: &Op,
    name: &str,
) -> Result<(TileMemory, MemRefType), SyntaxError> {
    match design.names.get(name) {
        Some(Entity::Buffer(buffer)) => Ok((
            TileMemory::Buffer(*buffer),
            design.buffers[*buffer].of.clone(),
        )),
        _ => Err(op.error(format!("%{name} is no buffer"))),
    }
}

/// Blocks by label, and those that were read already.
struct Labels<'r> {
    region: &'r Region,
    labels: &'r BTreeMap<&'r str, usize>,
    /// Descriptors by block.
    read: &'r mut BTreeMap<usize, usize>,
    tile: Tile,
    constants: &'r Constants,
}

impl Labels<'_> {
    /// The descriptors from a block on; returns the first.
    fn descriptors(
        self,
        design: &mut Design,
        op: &Op,
        first: String,
    ) -> Result<usize, SyntaxError> {
        let find = |label: &str| {
            let found = self.labels.get(label).copied();
            found.ok_or_else(|| op.error(format!("there is no block ^{label}")))
        };
        let start = find(&first)?;
        let mut at = start;
        let mut before: Option<usize> = None;
        loop {
            let known = self.read.get(&at).copied();
            let number = known.unwrap_or(design.descriptors.len());
            if let Some(before) = before {
                design.descriptors[before].next = Some(number);
            }
            if known.is_some() {
                break;
            }
            let (descriptor, next) = block(
                design,
                &self.region.blocks[at],
                (self.tile, self.constants),
                &|op, name| memory_of(design, op, name),
            )?;
            design.descriptors.push(descriptor);
            self.read.insert(at, number);
            let Some(next) = next else {
                break;
            };
            at = find(&next)?;
            let ops = &self.region.blocks[at].ops;
            if let Some(start) = ops.iter().find(|op| op.name == "aie.dma_start") {
                let problem = format!("a chain of descriptors leads to ^{next}, where it begins");
                return Err(start.error(problem));
            }
            // A chain ends at a block that has no descriptor.
            if !ops.iter().any(|op| op.name == "aie.dma_bd") {
                break;
            }
            before = Some(number);
        }
        Ok(self.read[&start])
    }
}

/// `aie.dma(…) [{…}, {…}]`: the regions one after the other, for ever unless `loop` says no.
fn list(design: &mut Design, op: &Op, tile: Tile) -> Result<usize, SyntaxError> {
    let first = design.descriptors.len();
    let ends = matches!(op.get("loop"), Some(crate::syntax::Attribute::Bool(false)));
    for (i, region) in op.regions.iter().enumerate() {
        let [one] = &region.blocks[..] else {
            return Err(op.error("a region of several blocks"));
        };
        let (mut descriptor, _) = block(design, one, (tile, &Constants::new()), &|op, name| {
            memory_of(design, op, name)
        })?;
        descriptor.next = match i + 1 == op.regions.len() {
            false => Some(first + i + 1),
            true if ends => None,
            true => Some(first),
        };
        design.descriptors.push(descriptor);
    }
    match op.regions.is_empty() {
        true => Err(op.error("it has no descriptors")),
        false => Ok(first),
    }
}
