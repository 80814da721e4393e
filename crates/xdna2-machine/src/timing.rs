//! Time: a discrete-event simulation of a tile program's actors without their data.
//!
//! Shim tasks, memory-tile DMA ends, channels and cores are those of the functional simulation; a
//! block that moves or a call that runs only takes time. Double buffering, broadcast in lock-step
//! and pipelines through L2 are not formulas here: they follow from bounded buffers. The
//! resources and their rules, with the constants of a [`Profile`]:
//!
//! | resource | rule |
//! |---|---|
//! | DDR | fluid sharing among reads and writes, max-min fair over the active shim channels in proportion to their requests; a stream of bursts of `s` bytes costs `(s + burst overhead) / s`; bursts that all fall on one memory channel share that channel alone |
//! | shim channel | at most the attained port rate; a start-up for each task |
//! | stream | 8 bytes a cycle; a broadcast block moves when every sink has room |
//! | stage | a fill takes a free block, a drain a full one, in order |
//! | core | one instruction stream; calls take [`Cycles::of`](crate::profile::Cycles::of) their work |
//! | instruction stream | the command processor writes the descriptor of each shim task of a sequential launch and pushes it, one after another; points that only move their bytes along are folded into one descriptor |
//! | grid point | points of a sequential launch are issued together, two by two, where the memory tiles have two copies: each when the one before has been read; the last writes are awaited, at the cost of a point |
//! | dispatch | the call, and configuring every launch where a dispatch has more than one herd, by the bytes that its lowering to words writes; for launches that share a loaded configuration, the tasks that earlier work does not hide |
//!
//! The closed forms of [`closed`] agree with it in steady state (tested).

mod ahead;
pub mod closed;
mod cores;
mod ddr;
mod engine;
mod export;
mod instructions;
mod loads;
mod merge;
mod network;
mod points;
mod summary;
#[cfg(test)]
mod tests;

use crate::profile::ErrorScope;
use crate::program::{Flat, FlatError, GridOrder, Herd, Launch, Op, Program};
use crate::{Machine, Profile};
use engine::{SimulationCounts, TimingEngine};
use millrace_npu::Provenance;
use network::TimingNetwork;
use serde::Serialize;
use std::collections::BTreeSet;

pub use ahead::exposed_loads_ns;
pub use instructions::{configuration_bytes, shim_tasks};
pub use loads::{loads_ns, switch_ns};
pub use millrace_plan::predict::Bottleneck;

/// A prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// The program's name.
    pub program: String,
    /// One call from the host to its return.
    pub total_ns: f64,
    /// Part of that: the call itself and loading core programs.
    pub dispatch_ns: f64,
    /// Launch by launch.
    pub launches: Vec<LaunchTiming>,
    /// `modelled(PROFILE, ±ERROR %)`: the profile's median error on held-out rows of kernels; no error
    /// where the profile or the machine was changed.
    pub label: String,
    /// The same, not as text.
    pub provenance: Provenance,
    /// Spans, if requested.
    pub trace: Vec<TraceSpan>,
}

/// One launch of a prediction.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchTiming {
    /// Name.
    pub name: String,
    /// Time from its first task to its last token.
    pub ns: f64,
    /// Grid points.
    pub points: u64,
    /// How many of them were simulated; the others are equal to a simulated one.
    pub points_simulated: u64,
    /// Whether the simulation stopped early and the rest follows from the bytes moved.
    pub extrapolated: bool,
    /// Its bottleneck.
    pub bottleneck: Bottleneck,
    /// Bytes read from DDR.
    pub ddr_read_bytes: f64,
    /// Bytes written to DDR.
    pub ddr_write_bytes: f64,
    /// Kernel objects linked into its cores' programs, summed over the cores.
    pub objects: usize,
    /// Bytes of the instruction stream that configures the array for it.
    pub configuration_bytes: u64,
    /// Every core of the herds.
    pub cores: Vec<CoreCounters>,
    /// Every channel, counted at its source.
    pub ports: Vec<PortCounters>,
}

/// Where a core's time went. For the rest of the launch it was idle: before its first block, after its last, or between
/// grid points.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoreCounters {
    /// Herd.
    pub herd: String,
    /// Column of the array.
    pub col: u32,
    /// Row of the array.
    pub row: u32,
    /// Computing.
    pub busy_ns: f64,
    /// Waiting for a full block.
    pub stall_in_ns: f64,
    /// Waiting for an empty block.
    pub stall_out_ns: f64,
    /// Calls.
    pub calls: u64,
}

/// Traffic of a channel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortCounters {
    /// The channel with its index.
    pub channel: String,
    /// `DDR -> memory tile 3`, `memory tile 0 -> 8 cores`.
    pub route: String,
    /// Bytes sent; a broadcast counts once.
    pub bytes: f64,
    /// Time with a block on its way.
    pub busy_ns: f64,
}

/// A stretch of time on one track of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceSpan {
    /// Launch, by number.
    pub launch: usize,
    /// The core or the channel.
    pub track: Track,
    /// The tile kernel or the channel's name.
    pub name: String,
    /// Since the launch's start.
    pub start_ns: f64,
    /// Since the launch's start.
    pub end_ns: f64,
}

/// The place of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Track {
    /// A core, by column and row of the array.
    Core(u32, u32),
    /// A channel, by its id in the flat launch.
    Channel(usize),
}

/// Why a program cannot be timed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TimingError {
    /// The launch does not elaborate.
    #[error(transparent)]
    Flat(#[from] FlatError),
    /// No such tile kernel.
    #[error("launch `{launch}`: no tile kernel `{kernel}`")]
    NoKernel {
        /// The launch.
        launch: String,
        /// The kernel.
        kernel: String,
    },
    /// The profile has no cycles for a kernel object.
    #[error(
        "launch `{launch}`: profile `{profile}` has no cycles for `{kernel}`; add [kernel.\"{kernel}\".macs_per_cycle] or .cycles_per_element"
    )]
    NoCycles {
        /// The launch.
        launch: String,
        /// The profile.
        profile: String,
        /// The kernel object.
        kernel: String,
    },
    /// A walk that is not a whole number of blocks.
    #[error(
        "launch `{launch}`: {place} moves {elements} elements, which are no whole number of blocks of {block}"
    )]
    Blocks {
        /// The launch.
        launch: String,
        /// The transfer or stage.
        place: String,
        /// Elements of the walk.
        elements: i64,
        /// Elements of a block.
        block: u64,
    },
    /// A core uses a channel that does not exist or does not end there, or a block it does not hold.
    #[error("launch `{launch}`: {core} uses {what}")]
    Core {
        /// The launch.
        launch: String,
        /// The core.
        core: String,
        /// Description of the fault.
        what: String,
    },
    /// A planned program that another target made.
    #[error("program `{0}` is no tile program of this target")]
    Foreign(String),
    /// Nothing moves any more.
    #[error("launch `{launch}` is stuck after {ns:.0} ns: {waiting}")]
    Stuck {
        /// The launch.
        launch: String,
        /// The time.
        ns: f64,
        /// Each waiting party, with the cause of its wait.
        waiting: String,
    },
}

/// How to simulate.
#[derive(Clone, Copy, Debug)]
pub struct TimingOptions {
    /// Most spans to record; 0 for no trace.
    pub trace_spans: usize,
    /// Most events a grid point may take before the rest is extrapolated from its bytes.
    pub max_events: u64,
}

impl Default for TimingOptions {
    fn default() -> TimingOptions {
        TimingOptions {
            trace_spans: 0,
            max_events: 400_000,
        }
    }
}

/// Points of a streamed launch that are simulated; more are extrapolated from the second half.
const STREAMED_POINTS: u64 = 8;

/// Points of a streamed launch that are all simulated where their work differs, as that of causal
/// attention does.
const VARIED_POINTS: u64 = 512;

/// The number of stretches of a larger grid that are extrapolated separately.
const SEGMENTS: u64 = 32;

/// Predicts the time of one dispatch.
///
/// # Errors
/// See [`TimingError`]. For a program that the verifier accepts, only a kernel rate may be missing.
pub fn predict(
    program: &Program,
    machine: &Machine,
    profile: &Profile,
) -> Result<Timing, TimingError> {
    predict_with(program, machine, profile, &TimingOptions::default())
}

/// Predicts with options: a trace, a bound on events.
///
/// # Errors
/// As [`predict`].
pub fn predict_with(
    program: &Program,
    machine: &Machine,
    profile: &Profile,
    options: &TimingOptions,
) -> Result<Timing, TimingError> {
    let mut launches = Vec::with_capacity(program.launches.len());
    let mut trace = Vec::new();
    let mut total_ns = 0.0;
    for (number, launch) in program.launches.iter().enumerate() {
        let flat = Flat::new(launch)?;
        let spans_left = options.trace_spans.saturating_sub(trace.len());
        let options = TimingOptions {
            trace_spans: spans_left,
            ..*options
        };
        let (timing, spans) = predict_launch(&flat, machine, profile, &options)?;
        total_ns += timing.ns;
        launches.push(timing);
        trace.extend(spans.into_iter().map(|span| TraceSpan {
            launch: number,
            ..span
        }));
    }
    let works_ns: Vec<f64> = launches.iter().map(|launch| launch.ns).collect();
    let loads_ns = exposed_loads_ns(&program.launches, &works_ns, (machine, profile))?;
    let dispatch_ns = profile.dispatch.call_ns + loads_ns.iter().sum::<f64>();
    let provenance = profile.provenance(ErrorScope::Kernel, machine);
    Ok(Timing {
        program: program.name.clone(),
        total_ns: total_ns + dispatch_ns,
        dispatch_ns,
        launches,
        label: provenance.to_string(),
        provenance,
        trace,
    })
}

/// Kernel objects that a herd's program calls.
fn objects_of(herd: &Herd) -> BTreeSet<&str> {
    fn collect<'a>(body: &'a [Op], found: &mut BTreeSet<&'a str>) {
        for op in body {
            match op {
                Op::Loop { body, .. } => collect(body, found),
                Op::If {
                    then, otherwise, ..
                } => {
                    collect(then, found);
                    collect(otherwise, found);
                }
                Op::Call { kernel, .. } => {
                    found.insert(kernel.as_str());
                }
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(&herd.body, &mut found);
    found
}

/// Kernel objects that a launch's cores call.
pub fn objects(launch: &Launch) -> BTreeSet<&str> {
    launch.herds.iter().flat_map(objects_of).collect()
}

/// Kernel objects in the programs of a launch's cores, summed over the cores.
fn n_objects(launch: &Launch) -> usize {
    let of_herd = |herd: &Herd| objects_of(herd).len() * (herd.cols * herd.rows) as usize;
    launch.herds.iter().map(of_herd).sum()
}

fn predict_launch(
    flat: &Flat<'_>,
    machine: &Machine,
    profile: &Profile,
    options: &TimingOptions,
) -> Result<(LaunchTiming, Vec<TraceSpan>), TimingError> {
    let network = TimingNetwork::new(flat, machine, profile)?;
    let launch = flat.launch;
    let groups = points::groups(launch);
    let mut total = SimulationCounts::new(flat);
    let mut simulated = 0;
    let mut spans = Vec::new();
    let n_points = launch.n_grid_points().unwrap_or(u64::MAX);
    if launch.order == GridOrder::Sequential {
        let issue_ns = profile.dispatch.issue_ns;
        let folded = points::folded(launch);
        for (number, group) in groups.iter().enumerate() {
            let wanted = options.trace_spans.saturating_sub(spans.len());
            let mut times = group.count;
            if folded && number == 0 {
                let mut run = simulate(&network, &group.points, issue_ns, 0, options)?;
                run.ns += profile.dispatch.point_ns;
                total.add(&run, 1.0);
                times -= 1;
            }
            let issue_ns = if folded { 0.0 } else { issue_ns };
            let mut run = simulate(&network, &group.points, issue_ns, wanted, options)?;
            run.ns += profile.dispatch.point_ns;
            spans.append(&mut run.spans);
            total.add(&run, times as f64);
            simulated += group.points.len() as u64;
        }
    } else {
        let alike = groups.len() <= 1;
        let (run, count) = match alike || n_points <= VARIED_POINTS {
            true => streamed(&network, (0, n_points), alike, options)?,
            false => in_segments(&network, n_points, options)?,
        };
        simulated = count;
        spans.clone_from(&run.spans);
        total = run;
        total.ns += profile.dispatch.point_ns;
    }
    let timing = summary::launch(flat, machine, profile, &network, total, n_points, simulated);
    Ok((timing, spans))
}

fn simulate(
    network: &TimingNetwork<'_>,
    points: &[Vec<u32>],
    issue_ns: f64,
    spans: usize,
    options: &TimingOptions,
) -> Result<SimulationCounts, TimingError> {
    TimingEngine::new(
        network,
        points.to_vec(),
        issue_ns,
        spans,
        options.max_events,
    )?
    .run()
}

/// A streamed launch whose points differ, in stretches of the grid within which they hardly do. That the
/// next stretch begins before the last has ended is left out.
fn in_segments(
    network: &TimingNetwork<'_>,
    n_points: u64,
    options: &TimingOptions,
) -> Result<(SimulationCounts, u64), TimingError> {
    let mut total = SimulationCounts::new(network.flat);
    let mut simulated = 0;
    for segment in 0..SEGMENTS {
        let start = segment * n_points / SEGMENTS;
        let end = (segment + 1) * n_points / SEGMENTS;
        let (run, count) = streamed(network, (start, end - start), true, options)?;
        total.add(&run, 1.0);
        simulated += count;
    }
    Ok((total, simulated))
}

/// Times the first of `n_points` grid points of a streamed launch from `start`, and extrapolates the rest from the
/// intervals of the last of them. If they are not alike, it times all of them.
fn streamed(
    network: &TimingNetwork<'_>,
    (start, n_points): (u64, u64),
    alike: bool,
    options: &TimingOptions,
) -> Result<(SimulationCounts, u64), TimingError> {
    let launch: &Launch = network.flat.launch;
    let first = |n: u64| {
        let points = launch.grid_points().skip(start as usize);
        points.take(n as usize).collect::<Vec<_>>()
    };
    if !alike || n_points <= 2 * STREAMED_POINTS {
        let run = simulate(network, &first(n_points), 0.0, options.trace_spans, options)?;
        return Ok((run, n_points));
    }
    let short = simulate(network, &first(STREAMED_POINTS), 0.0, 0, options)?;
    let wanted = options.trace_spans;
    let mut long = simulate(network, &first(2 * STREAMED_POINTS), 0.0, wanted, options)?;
    let factor = (n_points - 2 * STREAMED_POINTS) as f64 / STREAMED_POINTS as f64;
    let longer = long.clone();
    long.add(&longer, factor);
    long.add(&short, -factor);
    Ok((long, 2 * STREAMED_POINTS))
}
