//! Countable resources of each tile: DMA channels, buffer descriptors, locks, places in task queues.
//! Descriptors and locks of memory tiles are in [`joins`](super::joins).

use super::ResourceReport;
use super::place::at;
use super::rule::{Findings, Rule, RuleFinding, group};
use crate::Machine;
use crate::program::{ChannelLink, Flat, Port};
use std::collections::BTreeMap;

/// Refuses programs that exceed a tile's numbers, and reports the largest usage.
pub(super) fn check(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    let before = findings.list.len();
    dma_channels(flat, machine, report, findings);
    if findings.list.len() == before {
        descriptors(flat, machine, report, findings);
    }
    locks(flat, machine, report, findings);
    task_queues(flat, machine, findings);
}

/// Name of a tile in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TileAt {
    Shim(u32),
    Memory(u32),
    Core(u32, u32),
}

impl std::fmt::Display for TileAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TileAt::Shim(col) => write!(f, "shim {col}"),
            TileAt::Memory(col) => write!(f, "memory tile {col}"),
            TileAt::Core(col, row) => write!(f, "core ({col}, {row})"),
        }
    }
}

/// DMA ends by tile: channel ids that leave (MM2S) and that arrive (S2MM).
fn dma_ends(flat: &Flat<'_>) -> BTreeMap<TileAt, [Vec<usize>; 2]> {
    let mut ends: BTreeMap<TileAt, [Vec<usize>; 2]> = BTreeMap::new();
    let tile = |port: &Port| match *port {
        Port::Shim { col } => TileAt::Shim(col),
        Port::Memory { col, .. } => TileAt::Memory(col),
        Port::Core { core } => TileAt::Core(flat.cores[core].col, flat.cores[core].row),
    };
    for (id, channel) in flat.channels.iter().enumerate() {
        if channel.decl.link != ChannelLink::Stream {
            continue;
        }
        ends.entry(tile(&channel.from)).or_default()[0].push(id);
        for port in &channel.to {
            ends.entry(tile(port)).or_default()[1].push(id);
        }
    }
    ends
}

fn dma_channels(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    for (tile, ends) in dma_ends(flat) {
        let (rule, limits) = match tile {
            TileAt::Shim(_) => (Rule::ShimChannels, &machine.shim),
            TileAt::Memory(_) => (Rule::MemoryChannels, &machine.memory),
            TileAt::Core(..) => (Rule::CoreChannels, &machine.core),
        };
        let sides = [("MM2S", limits.mm2s), ("S2MM", limits.s2mm)];
        for (ids, (direction, limit)) in ends.iter().zip(sides) {
            let n = ids.len();
            report.dma_channels = report.dma_channels.max(n as u64);
            if n <= limit as usize {
                continue;
            }
            let names: Vec<String> = ids
                .iter()
                .take(8)
                .map(|&id| flat.channel_name(id))
                .collect();
            let more = if n > 8 { ", …" } else { "" };
            let message = format!(
                "{n} {direction} channels of {limit} ({}{more})",
                names.join(", ")
            );
            let fix = match tile {
                TileAt::Shim(_) => format!(
                    "Gather or split the streams on a memory tile, spread them over other columns, \
                     or use a herd with at most {limit} such streams a column"
                ),
                TileAt::Memory(_) => "Broadcast one stream to several cores, or move a stage to \
                                      another column"
                    .to_string(),
                TileAt::Core(..) => "Join inputs on a memory tile, keep one in L1, or pass it by \
                                     cascade or shared L1"
                    .to_string(),
            };
            let family = format!("{rule} {direction}");
            let finding = RuleFinding::new(rule, message).numbers(n as u64, limit.into());
            findings.add(&family, tile.to_string(), finding.fix(fix));
        }
    }
}

/// Descriptors: one a block of a core end, one a task in flight on a shim channel.
fn descriptors(
    flat: &Flat<'_>,
    machine: &Machine,
    report: &mut ResourceReport,
    findings: &mut Findings,
) {
    for (tile, [sends, takes]) in dma_ends(flat) {
        let depth = |ids: &[usize]| {
            ids.iter()
                .map(|&id| u64::from(flat.channels[id].decl.depth))
                .sum::<u64>()
        };
        match tile {
            TileAt::Core(..) => {
                let n = depth(&sends) + depth(&takes);
                report.core_bds = report.core_bds.max(n);
                too_many_bds(
                    tile,
                    n,
                    machine.core.bds.into(),
                    "Lower the depth of its channels",
                    findings,
                );
            }
            TileAt::Shim(_) => {
                let n = ((sends.len() + takes.len()) as u64) * u64::from(machine.queue_depth);
                let limit = u64::from(machine.shim.bds);
                too_many_bds(
                    tile,
                    n,
                    limit,
                    "Spread the streams over other columns",
                    findings,
                );
            }
            // Theirs depend on how their stages are cut: see `joins`.
            TileAt::Memory(_) => {}
        }
    }
}

fn too_many_bds(tile: TileAt, n: u64, limit: u64, fix: &str, findings: &mut Findings) {
    if n > limit {
        let message = format!("{n} buffer descriptors of {limit}");
        let finding = RuleFinding::new(Rule::Descriptors, message)
            .numbers(n, limit)
            .fix(fix);
        findings.add("descriptors", tile.to_string(), finding);
    }
}

/// Two semaphores (empty, full) a core end and a neighbour channel, as mlir-aie lowers object FIFOs.
fn locks(flat: &Flat<'_>, machine: &Machine, report: &mut ResourceReport, findings: &mut Findings) {
    let mut used: BTreeMap<TileAt, u64> = BTreeMap::new();
    let limit = u64::from(machine.lock_value_max);
    let value = |name: &str, place: String, blocks: u32, findings: &mut Findings| {
        if u64::from(blocks) > limit {
            let message = format!("{blocks} blocks; a lock counts to {limit}");
            let finding = RuleFinding::new(Rule::LockValue, message).numbers(blocks.into(), limit);
            findings.add(
                name,
                place,
                finding.fix(format!("Hold at most {limit} blocks")),
            );
        }
    };
    for channel in &flat.channels {
        let name = &channel.decl.name;
        let cores = std::iter::once(&channel.from).chain(&channel.to);
        for port in cores {
            let Port::Core { core } = *port else { continue };
            let (col, row) = at(flat, core);
            let shares = channel.decl.link == ChannelLink::Neighbour && *port != channel.from;
            if channel.decl.link != ChannelLink::Cascade && !shares {
                *used.entry(TileAt::Core(col, row)).or_default() += 2;
            }
            value(
                name,
                format!("channel {name}"),
                channel.decl.depth,
                findings,
            );
        }
    }
    for (tile, n) in used {
        let limit = machine.core.locks;
        report.locks = report.locks.max(n);
        if n > limit.into() {
            let message = format!("{n} locks of {limit}, two a channel end");
            let finding = RuleFinding::new(Rule::Locks, message).numbers(n, limit.into());
            findings.add("locks", tile.to_string(), finding.fix("Join channels"));
        }
    }
}

/// The copies of a transfer run at once; those on one channel must fit its queue.
fn task_queues(flat: &Flat<'_>, machine: &Machine, findings: &mut Findings) {
    let mut at_once: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let number = |decl| {
        flat.launch
            .transfers
            .iter()
            .position(|t| std::ptr::eq(t, decl))
    };
    for transfer in &flat.transfers {
        let key = (number(transfer.decl).unwrap_or(0), transfer.channel);
        *at_once.entry(key).or_default() += 1;
    }
    let limit = u64::from(machine.queue_depth);
    for ((number, channel), n) in at_once {
        if n > limit {
            let message = format!(
                "{} tasks at once on channel {}, whose queue holds {limit}",
                group(n),
                flat.channel_name(channel)
            );
            let finding = RuleFinding::new(Rule::TaskQueue, message).numbers(n, limit);
            let place = format!("transfer {number}");
            findings.add(
                &place,
                &place,
                finding.fix("Make the dimension a loop: its tasks follow one another"),
            );
        }
    }
}
