//! A launch as the simulation sees it: wires, stages, tasks and compiled core programs.

use super::TimingError;
use super::cores::{self, TimingInstruction};
use super::ddr::StreamKind;
use super::merge::{self, BlockMerge};
use crate::program::{
    ChannelLink, Env, Flat, FlatTransfer, GridOrder, Indices, Pattern, PatternWalk, Port, Var,
};
use crate::{Machine, Profile};

/// Weight of a byte that a streamed launch writes, relative to one that is read: memory controllers serve reads first
/// and hold writes back. Chosen, not measured: the megatile rows need it (`docs/timing-model.md`).
const WRITTEN_BEHIND: f64 = 1.0 / 16.0;

/// How a channel's blocks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// Reads DDR.
    Read,
    /// Writes DDR.
    Write,
    /// Between tiles, in the wire's own time.
    Tiles,
    /// Not at all: both ends see the same L1.
    Shared,
}

/// A channel.
pub(super) struct TimingChannel {
    /// Bytes of a block (of several, where blocks are merged).
    pub(super) bytes: f64,
    /// Time of a block between tiles.
    pub(super) ns: f64,
    pub(super) via: Via,
    pub(super) from: Port,
    pub(super) to: Vec<Port>,
    /// Blocks at a core end.
    pub(super) depth: u32,
}

/// Tasks of one shim channel and one grid point, in order.
#[derive(Clone, Debug)]
pub(super) struct ChannelTasks {
    pub(super) channel: usize,
    /// Blocks of the channel.
    pub(super) blocks: u64,
    pub(super) stream: StreamKind,
}

/// A launch ready to be simulated.
pub(super) struct TimingNetwork<'p> {
    pub(super) flat: &'p Flat<'p>,
    pub(super) machine: &'p Machine,
    pub(super) profile: &'p Profile,
    pub(super) wires: Vec<TimingChannel>,
    /// Compiled programs by herd.
    pub(super) programs: Vec<Vec<TimingInstruction>>,
    pub(super) merge: BlockMerge,
}

impl<'p> TimingNetwork<'p> {
    pub(super) fn new(
        flat: &'p Flat<'p>,
        machine: &'p Machine,
        profile: &'p Profile,
    ) -> Result<TimingNetwork<'p>, TimingError> {
        let merge = merge::find(flat);
        let wires = (0..flat.channels.len())
            .map(|id| wire(flat, machine, &merge, id))
            .collect();
        let programs = (flat.launch.herds.iter().enumerate())
            .map(|(herd, decl)| cores::compile(&decl.body, flat.launch, profile, merge.loops[herd]))
            .collect::<Result<_, _>>()?;
        Ok(TimingNetwork {
            flat,
            machine,
            profile,
            wires,
            programs,
            merge,
        })
    }

    /// The shim tasks of a grid point.
    pub(super) fn tasks(&self, grid: &[u32]) -> Result<Vec<ChannelTasks>, TimingError> {
        let mut tasks = Vec::new();
        for transfer in &self.flat.transfers {
            let counts: Vec<u32> = (transfer.decl.loops.iter())
                .map(|count| {
                    let env = Env {
                        grid,
                        index: &transfer.index,
                        ..Env::default()
                    };
                    count.at(&env).clamp(0, i64::from(u32::MAX)) as u32
                })
                .collect();
            for loops in Indices::new(&counts) {
                let loops: Vec<i64> = loops.into_iter().map(i64::from).collect();
                tasks.push(self.task(transfer, grid, &loops)?);
            }
        }
        tasks.retain(|task| task.blocks > 0);
        Ok(tasks)
    }

    fn task(
        &self,
        transfer: &FlatTransfer<'_>,
        grid: &[u32],
        loops: &[i64],
    ) -> Result<ChannelTasks, TimingError> {
        let env = Env {
            grid,
            index: &transfer.index,
            loops,
            ..Env::default()
        };
        let walk = transfer.decl.pattern.walk(&env);
        let channel = transfer.channel;
        let place = || format!("the transfer of {}", self.flat.channel_name(channel));
        let decl = self.flat.channels[channel].decl;
        let blocks = self.blocks(walk.n_elements(), decl.block_elements(), place)?;
        let col = match (self.wires[channel].from, self.wires[channel].to.first()) {
            (Port::Shim { col }, _) | (_, Some(&Port::Shim { col })) => col,
            _ => 0,
        };
        let element = decl.element.size_bytes() as i64;
        let spread = spread(transfer, element, self.profile);
        let (burst, memory_channel) = bursts(&walk, element, spread, self.profile);
        Ok(ChannelTasks {
            channel,
            blocks: blocks / self.merge.channels[channel],
            stream: StreamKind {
                writes: !transfer.reads,
                col,
                cost: 1.0 / self.profile.burst_efficiency(burst),
                memory_channel,
                weight: self.wires[channel].bytes.max(1.0) * self.weight(transfer.reads),
            },
        })
    }

    /// Weight of a byte: no one waits for the writes of a streamed launch, so reads go first.
    fn weight(&self, reads: bool) -> f64 {
        match (reads, self.flat.launch.order) {
            (false, GridOrder::Streamed) => WRITTEN_BEHIND,
            _ => 1.0,
        }
    }

    /// Blocks of its channel that a stage end takes for one block of the stage.
    pub(super) fn stage_blocks(
        &self,
        stage: usize,
        fills: bool,
        end: usize,
        grid: &[u32],
    ) -> Result<u64, TimingError> {
        let stage = &self.flat.stages[stage];
        let end = if fills {
            &stage.fills[end]
        } else {
            &stage.drains[end]
        };
        let env = Env {
            grid,
            index: &stage.index,
            each: end.each,
            ..Env::default()
        };
        let decl = self.flat.channels[end.channel].decl;
        let place = || format!("stage `{}`", stage.decl.name);
        let n = n_elements(&end.decl.pattern, &env);
        let blocks = self.blocks(n, decl.block_elements(), place)?;
        Ok(blocks * u64::from(end.decl.repeat.max(1)))
    }

    fn blocks(
        &self,
        elements: i64,
        block: u64,
        place: impl Fn() -> String,
    ) -> Result<u64, TimingError> {
        let n = u64::try_from(elements).unwrap_or(0);
        if block > 0 && n.is_multiple_of(block) {
            return Ok(n / block);
        }
        Err(TimingError::Blocks {
            launch: self.flat.launch.name.clone(),
            place: place(),
            elements,
            block,
        })
    }
}

fn n_elements(pattern: &Pattern, env: &Env<'_>) -> i64 {
    let size = |(size, _): &(crate::program::Affine, i64)| size.at(env).max(0);
    pattern.dims.iter().map(size).fold(1, i64::saturating_mul)
}

fn wire(flat: &Flat<'_>, machine: &Machine, merge: &BlockMerge, id: usize) -> TimingChannel {
    let channel = &flat.channels[id];
    let bytes = (channel.decl.block_bytes() * merge.channels[id]) as f64;
    let shim = |port: &Port| matches!(port, Port::Shim { .. });
    let via = match channel.decl.link {
        ChannelLink::Neighbour => Via::Shared,
        _ if shim(&channel.from) => Via::Read,
        _ if channel.to.iter().any(shim) => Via::Write,
        _ => Via::Tiles,
    };
    let bytes_per_cycle = match channel.decl.link {
        ChannelLink::Cascade => machine.cascade_bytes_per_cycle,
        _ => machine.stream_bytes_per_cycle,
    };
    TimingChannel {
        bytes,
        ns: bytes / f64::from(bytes_per_cycle.max(1)) / machine.clock_hz * 1e9,
        via,
        from: channel.from,
        to: channel.to.clone(),
        depth: channel.decl.depth.max(1),
    }
}

/// Bytes of a walk's bursts, and the memory channel that all of them fall on, if it is one.
///
/// Addresses are interleaved over the memory channels in pieces of `interleave_bytes`. A burst of at
/// most one piece uses one channel. So do all bursts of a walk whose rows are a whole number of rounds apart, unless
/// the other copies of the transfer read the rest of each round (`spread`).
fn bursts(
    walk: &PatternWalk,
    element_bytes: i64,
    spread: bool,
    profile: &Profile,
) -> (f64, Option<u32>) {
    let burst = (walk.burst_elements() * element_bytes).max(1);
    let (piece, round) = pieces(profile);
    let rows = walk.canonical();
    let row_stride = (rows.dims.iter().rev())
        .find(|&&(size, stride)| size > 1 && stride != 1)
        .map(|d| d.1 * element_bytes);
    let start = walk.offset.saturating_mul(element_bytes);
    let one_piece = start.rem_euclid(piece) + burst <= piece;
    let confined = match row_stride {
        Some(stride) => one_piece && !spread && stride.rem_euclid(round) == 0,
        None => false,
    };
    let memory_channel = confined.then(|| (start.rem_euclid(round) / piece) as u32);
    (burst as f64, memory_channel)
}

/// Bytes of an interleaved piece and of a round of them over all memory channels.
fn pieces(profile: &Profile) -> (i64, i64) {
    let piece = i64::from(profile.ddr.interleave_bytes.max(1));
    (piece, piece * i64::from(profile.ddr.channels.max(1)))
}

/// Whether the copies of a transfer, which run side by side, begin at different places of a round.
fn spread(transfer: &FlatTransfer<'_>, element_bytes: i64, profile: &Profile) -> bool {
    let (_, round) = pieces(profile);
    let offset = &transfer.decl.pattern.offset;
    (offset.terms.iter())
        .filter(|(var, _)| matches!(var, Var::Index(_)))
        .any(|(_, factor)| factor.wrapping_mul(element_bytes).rem_euclid(round) != 0)
}
