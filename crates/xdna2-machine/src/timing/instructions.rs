//! Length of the instruction stream of a launch's configuration, as its lowering to words writes it.
//!
//! The counts are those of the lowering, part by part: each core held, started and stopped, each channel reset, each
//! switch, lock and descriptor written. The lowering itself is in a crate above this one. Both take DMA channels and
//! ways from [`streams`](crate::streams), and tests compare the sum with the words of every mapping.

use super::TimingError;
use super::network::TimingNetwork;
use crate::program::{ChannelLink, Flat, Port};
use crate::streams::{MemoryEnd, StreamEnds, StreamError};
use crate::verify::{StageCost, stage_costs};
use crate::{Machine, Profile};
use millrace_xdna2_words::port::{count, masters, slaves};
use millrace_xdna2_words::tile::{Tile, TileKind};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The stream's header, a write of a register, the head of a block of writes, and a wait for a register.
const HEADER_BYTES: u64 = 16;
const WRITE_BYTES: u64 = 24;
const BLOCK_BYTES: u64 = 16;
const POLL_BYTES: u64 = 28;
/// A core is held, let go in two steps, awaited and held again.
const CORE_BYTES: u64 = 4 * WRITE_BYTES + POLL_BYTES;
/// A channel of a core or memory tile is reset, opened and given its task, and reset at the end.
const CHANNEL_BYTES: u64 = 4 * WRITE_BYTES;
/// Words of a descriptor.
const CORE_DESCRIPTOR_WORDS: u64 = 6;
const MEMORY_DESCRIPTOR_WORDS: u64 = 8;
/// A shim's multiplexers.
const MUX_BYTES: u64 = 2 * WRITE_BYTES;
/// The way of a shim's tokens.
const TOKEN_BYTES: u64 = block_bytes(4);

const fn block_bytes(n_words: u64) -> u64 {
    BLOCK_BYTES + 4 * n_words
}

/// Bytes of a launch's instruction stream outside the tasks of shims.
pub fn configuration_bytes(flat: &Flat<'_>, machine: &Machine) -> u64 {
    let costs = stage_costs(flat, machine);
    let of_stages = || costs.iter().flatten();
    let ends = of_stages().flat_map(|cost| cost.fills.iter().chain(&cost.drains));
    let descriptors: u64 = ends.sum();
    let locks: u64 = of_stages().map(|cost| cost.locks).sum();
    let mut bytes = HEADER_BYTES
        + flat.cores.len() as u64 * CORE_BYTES
        + descriptors * block_bytes(MEMORY_DESCRIPTOR_WORDS)
        + locks * WRITE_BYTES;
    let mut cascades = BTreeSet::new();
    for channel in &flat.channels {
        let ends = || std::iter::once(&channel.from).chain(&channel.to);
        match channel.decl.link {
            ChannelLink::Stream => {
                let depth = channel.decl.depth.into();
                bytes += ends().map(|end| end_bytes(end, depth)).sum::<u64>();
            }
            // A pair of locks between neighbours.
            ChannelLink::Neighbour => bytes += 2 * WRITE_BYTES,
            ChannelLink::Cascade => cascades.extend(ends().filter_map(|end| match end {
                Port::Core { core } => Some(*core),
                _ => None,
            })),
        }
    }
    bytes + cascades.len() as u64 * WRITE_BYTES + switch_bytes(flat, &costs)
}

/// Tasks of shims at all grid points of a launch together, each point's by themselves, as the lowering writes them.
///
/// # Errors
/// As [`predict`](super::predict).
pub fn shim_tasks(
    flat: &Flat<'_>,
    machine: &Machine,
    profile: &Profile,
) -> Result<u64, TimingError> {
    let network = TimingNetwork::new(flat, machine, profile)?;
    let mut n_tasks = 0;
    for point in flat.launch.grid_points() {
        n_tasks += network.tasks(&point)?.len() as u64;
    }
    Ok(n_tasks)
}

/// A stream's end: its channel, and of a core its descriptors and locks.
fn end_bytes(end: &Port, depth: u64) -> u64 {
    match end {
        Port::Shim { .. } => WRITE_BYTES,
        Port::Memory { .. } => CHANNEL_BYTES,
        Port::Core { .. } => {
            CHANNEL_BYTES + depth * block_bytes(CORE_DESCRIPTOR_WORDS) + 2 * WRITE_BYTES
        }
    }
}

/// Switches that the streams of a launch join, with the ways of tokens.
///
/// A launch whose streams have no ways has no words. Then every column counts from its lowest tile to the highest that
/// a stream begins or ends at.
fn switch_bytes(flat: &Flat<'_>, costs: &[Option<StageCost>]) -> u64 {
    let is_shim = |kind: &TileKind| *kind == TileKind::Shim;
    let (kinds, n_shims) = match stream_ends(flat, costs).and_then(|ends| joined(&ends, flat)) {
        Ok(joined) => joined,
        Err(_) => {
            let kinds = reached(flat);
            let n_shims = kinds.iter().filter(|kind| is_shim(kind)).count();
            (kinds, n_shims)
        }
    };
    let of_kind = |kind: TileKind| {
        let words = |n: u8| block_bytes(n.into());
        let ports = words(count(masters(kind))) + words(count(slaves(kind)));
        if is_shim(&kind) {
            ports + MUX_BYTES
        } else {
            ports
        }
    };
    n_shims as u64 * TOKEN_BYTES + kinds.into_iter().map(of_kind).sum::<u64>()
}

/// DMA channels of all streams, from the descriptors that each end of a stage takes.
fn stream_ends(flat: &Flat<'_>, costs: &[Option<StageCost>]) -> Result<StreamEnds, StreamError> {
    let mut memory: BTreeMap<u32, Vec<MemoryEnd>> = BTreeMap::new();
    for (id, (stage, cost)) in flat.stages.iter().zip(costs).enumerate() {
        let refused = || StreamError {
            place: flat.stage_name(id),
            problem: "no descriptors express its blocks".to_owned(),
        };
        let cost = cost.as_ref().ok_or_else(refused)?;
        let sides = [
            (&stage.fills, &cost.fills, true),
            (&stage.drains, &cost.drains, false),
        ];
        for (ends, descriptors, is_fill) in sides {
            let of_end = ends.iter().zip(descriptors).map(|(end, &n)| MemoryEnd {
                channel: end.channel,
                is_fill,
                n_descriptors: usize::try_from(n).unwrap_or(usize::MAX),
            });
            memory.entry(stage.col).or_default().extend(of_end);
        }
    }
    StreamEnds::new(flat, &memory)
}

/// The channels of streams, each with its sinks.
type StreamsKey = Vec<(ChannelAt, Vec<ChannelAt>)>;

/// Streams whose ways are kept, at most.
const MOST_KNOWN: usize = 1024;

/// Tiles whose switches streams join, and the number of shims with a channel of theirs. A search over profiles times
/// one launch thousands of times, and routing takes longer than counting. So the tiles of known streams are kept.
fn joined(ends: &StreamEnds, flat: &Flat<'_>) -> Result<(Vec<TileKind>, usize), StreamError> {
    static KNOWN: Mutex<BTreeMap<StreamsKey, Vec<TileKind>>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let tiles = ends.channels().into_iter().map(|at| at.tile);
    let shims: BTreeSet<Tile> = tiles.filter(|tile| tile.kind() == TileKind::Shim).collect();
    let streams = ends.streams(flat)?.into_iter();
    let key: StreamsKey = streams.map(|stream| (stream.from, stream.to)).collect();
    if let Some(kinds) = known().get(&key) {
        return Ok((kinds.clone(), shims.len()));
    }
    let ways = ends.ways(flat)?;
    let tiles: BTreeSet<Tile> = ways.iter().flatten().map(|join| join.tile).collect();
    let kinds: Vec<TileKind> = tiles.into_iter().map(Tile::kind).collect();
    let mut known = known();
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert(key, kinds.clone());
    Ok((kinds, shims.len()))
}

/// Each column from its lowest tile to the highest that a stream begins or ends at.
fn reached(flat: &Flat<'_>) -> Vec<TileKind> {
    let mut columns: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let streams = flat.channels.iter();
    for channel in streams.filter(|channel| channel.decl.link == ChannelLink::Stream) {
        for end in std::iter::once(&channel.from).chain(&channel.to) {
            let (col, row) = match *end {
                Port::Shim { col } => (col, 0),
                Port::Memory { col, .. } => (col, 1),
                Port::Core { core } => (flat.cores[core].col, flat.cores[core].row + 2),
            };
            let (low, high) = columns.entry(col).or_insert((row, row));
            (*low, *high) = ((*low).min(row), (*high).max(row));
        }
    }
    let kind = |row| match row {
        0 => TileKind::Shim,
        1 => TileKind::Memory,
        _ => TileKind::Core,
    };
    let rows = columns.values().flat_map(|&(low, high)| low..=high);
    rows.map(kind).collect()
}
