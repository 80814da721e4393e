//! Functional simulation: bytes move from DDR to L2 to L1 and back by the program's own access
//! patterns, through its bounded channels, and tile kernels compute on what arrives. A wrong stride
//! gives a wrong result, a missing block a deadlock.
//!
//! A launch is a network of actors: each shim DMA channel with its queue of tasks, each stage, each
//! core. They meet only in channels, where blocks arrive in order and a party waits when there is
//! none, or no room. Actors run in *rounds*: each that can go on does so until it blocks, on any
//! thread; then blocks and room cross the channels, writes reach DDR, and the next round begins. So
//! the result does not depend on the number of threads. When nobody can go on, either all is
//! done or the program is deadlocked, and [`Fault::Deadlock`] says who waits for what.
//!
//! # What is modelled
//! - Buffers: a channel holds `depth` blocks at each core end (in common for [`Link::Neighbour`]),
//!   a stage `copies` blocks; a DMA engine holds none, so it moves a block only when the other side
//!   has a place for it. A broadcast block moves when every sink has.
//! - A stage's block belongs to the grid point of the first channel block that reaches it; its
//!   patterns are evaluated there.
//! - [`Order::Sequential`]: the shim tasks of a grid point begin when all of the one before have
//!   ended.
//! - Fresh L1 and L2 memory is poison (not-a-number as bf16 and f32), in every block that `new`
//!   gives and every stage block that its fills do not wholly write.
//!
//! Time is the business of the timing model. What a program may ask for is bounded by
//! [`Options`], so a hostile one ends with an error.
//!
//! [`Link::Neighbour`]: crate::program::Link::Neighbour
//! [`Order::Sequential`]: crate::program::Order::Sequential

mod block;
mod call;
mod code;
mod context;
mod core;
mod counters;
mod ends;
mod fault;
mod limits;
mod motion;
mod network;
mod shim;
mod stage;

pub use counters::{Counters, LaunchCounters};
pub use fault::{Fault, Site, Waiting};

use crate::program::{Flat, Order, Program};
use context::{Context, Trouble};
use millrace_kernels::Cpu;
use network::{Actor, Kind, Network, own};
use std::sync::{Mutex, PoisonError};

/// How to run.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Threads and instruction set of the host; they do not change the result.
    pub cpu: &'a Cpu,
    /// Most units of work a launch may take, about 20 ns each: a step of a core, 64 bytes moved,
    /// 256 multiply-accumulates.
    pub max_units: u64,
    /// Units of all launches together after which the run is stopped, for failures on purpose.
    pub stop_after: Option<u64>,
    /// Most bytes of L1 and L2 a launch may need.
    pub max_bytes: u64,
}

impl<'a> Options<'a> {
    /// Limits that no program for a real array reaches.
    pub fn new(cpu: &'a Cpu) -> Options<'a> {
        Options {
            cpu,
            max_units: 1 << 36,
            stop_after: None,
            max_bytes: 2 << 30,
        }
    }
}

/// Runs every launch on the buffers, one for each slot, in the slots' sizes.
///
/// # Errors
/// A [`Fault`] says what went wrong and where. Slots that the program writes are undefined then.
pub fn run(
    program: &Program,
    buffers: &mut [Vec<u8>],
    options: &Options<'_>,
) -> Result<Counters, Fault> {
    check_buffers(program, buffers)?;
    let mut counters = Counters::default();
    let mut options = *options;
    for flat in program.flatten()? {
        let launch = run_launch(program, &flat, buffers, &options)?;
        options.stop_after = options.stop_after.map(|n| n.saturating_sub(launch.n_units));
        counters.launches.push(launch);
    }
    Ok(counters)
}

fn check_buffers(program: &Program, buffers: &[Vec<u8>]) -> Result<(), Fault> {
    if program.slots.len() != buffers.len() {
        return Err(Fault::Buffers(format!(
            "program `{}` has {} slots, {} buffers were given",
            program.name,
            program.slots.len(),
            buffers.len()
        )));
    }
    for (slot, buffer) in program.slots.iter().zip(buffers) {
        if slot.size_bytes() != Some(buffer.len() as u64) {
            return Err(Fault::Buffers(format!(
                "slot `{}` of shape {:?} of {} was given {} bytes",
                slot.name,
                slot.shape,
                slot.element,
                buffer.len()
            )));
        }
    }
    Ok(())
}

fn see<'a>(
    program: &'a Program,
    flat: &'a Flat<'a>,
    ddr: &'a [Vec<u8>],
    options: &Options<'a>,
    last_point: u64,
) -> Context<'a> {
    Context {
        flat,
        slots: &program.slots,
        ddr,
        cpu: options.cpu,
        last_point,
    }
}

fn run_launch(
    program: &Program,
    flat: &Flat<'_>,
    buffers: &mut [Vec<u8>],
    options: &Options<'_>,
) -> Result<LaunchCounters, Fault> {
    let launch = &flat.launch.name;
    let needed = limits::memory_bytes(flat);
    if needed > u128::from(options.max_bytes) {
        return Err(Fault::Cannot {
            launch: launch.clone(),
            place: "its memory".to_owned(),
            site: Site::default(),
            point: None,
            problem: format!(
                "{needed} bytes of L1 and L2 are needed, {} allowed",
                options.max_bytes
            ),
        });
    }
    if limits::is_empty(flat) {
        return Ok(LaunchCounters::default());
    }
    let sequential = flat.launch.order == Order::Sequential;
    let mut last_point = if sequential { 0 } else { u64::MAX };
    let cannot = |trouble: Trouble| Fault::Cannot {
        launch: launch.clone(),
        place: trouble.place,
        site: trouble.site,
        point: trouble.point,
        problem: trouble.problem,
    };
    let mut network = Network::new(flat).map_err(cannot)?;
    let mut n_rounds = 0;
    let (mut ran, mut touched) = (Vec::new(), Vec::new());
    loop {
        ran.clear();
        // Shims first and stages last, by their numbers: what takes long begins first, so the
        // threads end together.
        for (i, actor) in network.actors.iter_mut().enumerate().rev() {
            if own(actor).is_runnable {
                ran.push(i);
            }
        }
        if ran.is_empty() {
            if sequential && network.is_past(last_point) && last_point < u64::MAX - 1 {
                last_point += 1;
                network.wake_shims();
                if last_point < context::n_points(flat.launch) {
                    continue;
                }
            }
            break;
        }
        n_rounds += 1;
        one_round(
            &network,
            &ran,
            &see(program, flat, buffers, options, last_point),
        );
        for &i in &ran {
            if let Some(trouble) = own(&mut network.actors[i]).trouble.take() {
                return Err(cannot(trouble));
            }
        }
        network.exchange(&ran, &mut touched);
        write_back(&mut network, buffers, options.cpu);
        let max_units = options
            .stop_after
            .map_or(options.max_units, |n| n.min(options.max_units));
        if network.totals().1 > max_units {
            return Err(Fault::Budget {
                launch: launch.clone(),
                max_units,
                running: network.running(&see(program, flat, buffers, options, last_point)),
            });
        }
    }
    network.verdict(&see(program, flat, buffers, options, last_point))?;
    let (mut counters, n_units) = network.totals();
    (counters.n_rounds, counters.n_units) = (n_rounds, n_units);
    Ok(counters)
}

/// Runs the actors that can go on, on all threads.
fn one_round(network: &Network<'_>, ran: &[usize], ctx: &Context<'_>) {
    ctx.cpu.pool().run(ran.len(), &|i| {
        let mut actor = network.actors[ran[i]]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        actor.step(ctx);
    });
}

/// A shim with blocks to write, and where its bytes of the slot begin.
struct Write<'a, 'p> {
    actor: &'a mut Actor<'p>,
    to: &'a mut [u8],
    base: usize,
}

/// Writes what has arrived at the shims to DDR: in parallel where the targets do not overlap, else
/// in order.
fn write_back(network: &mut Network<'_>, buffers: &mut [Vec<u8>], cpu: &Cpu) {
    let mut writers: Vec<(usize, std::ops::Range<usize>, &mut Actor<'_>)> = network
        .actors
        .iter_mut()
        .map(own)
        .filter_map(|actor| {
            let Kind::Writer(shim) = &actor.kind else {
                return None;
            };
            let (slot, range) = shim.target(actor.receivers.first()?)?;
            Some((slot, range, actor))
        })
        .collect();
    if writers.is_empty() {
        return;
    }
    writers.sort_by_key(|(slot, range, _)| (*slot, range.start));
    let disjoint = writers
        .windows(2)
        .all(|w| w[0].0 != w[1].0 || w[0].1.end <= w[1].1.start);
    if !disjoint {
        for (slot, _, actor) in writers {
            write(Write {
                actor,
                to: &mut buffers[slot],
                base: 0,
            });
        }
        return;
    }
    let mut jobs = Vec::with_capacity(writers.len());
    let mut writers = writers.into_iter().peekable();
    for (number, buffer) in buffers.iter_mut().enumerate() {
        let (mut rest, mut base) = (&mut buffer[..], 0);
        while let Some((_, range, actor)) = writers.next_if(|(slot, _, _)| *slot == number) {
            let (to, after) = rest.split_at_mut(range.end - base);
            jobs.push(Mutex::new(Some(Write {
                actor,
                to: &mut to[range.start - base..],
                base: range.start,
            })));
            (rest, base) = (after, range.end);
        }
    }
    cpu.pool().run(jobs.len(), &|i| {
        let job = jobs[i]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(job) = job {
            write(job);
        }
    });
}

fn write(job: Write<'_, '_>) {
    let actor = job.actor;
    if let (Kind::Writer(shim), [from]) = (&mut actor.kind, &mut actor.receivers[..]) {
        let spent = &mut actor.tally.spent;
        let bytes = shim.write(from, job.to, job.base, spent);
        actor.tally.counters.ddr_written_bytes += bytes;
        actor.is_runnable = true;
    }
}
