//! Length of the instruction stream of a launch's configuration, as its lowering to words writes it.
//!
//! The counts are those of the lowering, part by part: each core held, started and stopped, each channel reset, each
//! switch, lock and descriptor written. The lowering itself is in a crate above this one; its tests hold the sum to the
//! words of every mapping. Switches in columns that a stream only passes are not counted: none of the usual herds has
//! any.

use super::TimingError;
use super::network::TimingNetwork;
use crate::program::{ChannelLink, Flat, Port};
use crate::verify::memory_counts;
use crate::{Machine, Profile};
use millrace_xdna2_words::port::{count, masters, slaves};
use millrace_xdna2_words::tile::TileKind;
use std::collections::{BTreeMap, BTreeSet};

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
/// A shim's multiplexers, and the way of its tokens: four words.
const SHIM_BYTES: u64 = 2 * WRITE_BYTES + block_bytes(4);

const fn block_bytes(n_words: u64) -> u64 {
    BLOCK_BYTES + 4 * n_words
}

/// Bytes of a launch's instruction stream outside the tasks of shims.
pub fn configuration_bytes(flat: &Flat<'_>, machine: &Machine) -> u64 {
    let [descriptors, locks] = memory_counts(flat, machine);
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
    bytes + cascades.len() as u64 * WRITE_BYTES + switch_bytes(flat)
}

/// Tasks of shims that the clock issues for a launch, at all grid points together.
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

/// Switches: those of each column from its lowest tile to the highest that a stream begins or ends at.
fn switch_bytes(flat: &Flat<'_>) -> u64 {
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
    let ports = |kind| {
        let words = |n: u8| block_bytes(n.into());
        words(count(masters(kind))) + words(count(slaves(kind)))
    };
    let of_row = |row| match row {
        0 => ports(TileKind::Shim) + SHIM_BYTES,
        1 => ports(TileKind::Memory),
        _ => ports(TileKind::Core),
    };
    let rows = columns.values().flat_map(|&(low, high)| low..=high);
    rows.map(of_row).sum()
}
