//! Functional simulation: bytes move from DDR to L2 to L1 and back by the program's own access
//! patterns, through its bounded channels, and tile kernels compute on the blocks that arrive. A wrong stride
//! gives a wrong result, a missing block a deadlock.
//!
//! A launch is a network of actors: each shim DMA channel with its queue of tasks, each stage, each
//! core. They meet only in channels, where blocks arrive in order and a party waits if there is no block, or no room.
//! Actors run in *rounds*: each that can go on does so until it blocks, on any thread. Then blocks and room cross the
//! channels, writes reach DDR, and the next round begins. So the result does not depend on the number of threads. When
//! no actor can go on, either all is done or the program is deadlocked. [`SimulationFault::Deadlock`] names each
//! waiting party and the cause of its wait.
//!
//! # Model
//! - Buffers: a channel holds `depth` blocks at each core end (in common for [`ChannelLink::Neighbour`]),
//!   a stage `copies` blocks; a DMA engine holds none, so it moves a block only when the other side
//!   has a place for it. A broadcast block moves when every sink has.
//! - A stage's block belongs to the grid point of the first channel block that reaches it; its
//!   patterns are evaluated there.
//! - [`GridOrder::Sequential`]: the shim tasks of a grid point begin when all of the one before have
//!   ended.
//! - Fresh L1 and L2 memory is poison (not-a-number as bf16 and f32), in every block that `new`
//!   gives and every stage block that its fills do not wholly write.
//!
//! Time is the business of the timing model. [`SimulateOptions`] bounds the requests of a program, so a hostile one
//! ends with an error.
//!
//! [`ChannelLink::Neighbour`]: crate::program::ChannelLink::Neighbour
//! [`GridOrder::Sequential`]: crate::program::GridOrder::Sequential

mod actor;
mod block;
mod call;
pub mod code;
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
mod wire;

pub use counters::{LaunchCounters, RunCounters};
pub use fault::{SimulationFault, Site, Waiting};

use crate::program::{Flat, GridOrder, Program};
use actor::{Actor, ActorKind};
use context::{LaunchContext, Trouble};
use millrace_kernels::Cpu;
use network::{ActorNetwork, own};
use std::sync::{Mutex, PoisonError};

/// How to run.
#[derive(Clone, Copy)]
pub struct SimulateOptions<'a> {
    /// Threads and instruction set of the host; they do not change the result.
    pub cpu: &'a Cpu,
    /// Most units of work a launch may take, about 20 ns each: a step of a core, 64 bytes moved,
    /// 256 multiply-accumulates.
    pub max_units: u64,
    /// Units of all launches together after which the run is stopped, for failures on purpose.
    pub stop_after: Option<u64>,
    /// Most bytes of L1 and L2 a launch may need.
    pub max_bytes: u64,
    /// Callback after each launch, to corrupt content on purpose.
    pub after_launch: Option<AfterLaunch<'a>>,
}

/// Gets the slots that a launch wrote, ascending, and the bytes of all.
pub type AfterLaunch<'a> = &'a (dyn Fn(&[usize], &mut [Vec<u8>]) + Sync);

impl<'a> SimulateOptions<'a> {
    /// Most units that the launch at hand may take.
    fn max_units(&self) -> u64 {
        self.stop_after
            .map_or(self.max_units, |n| n.min(self.max_units))
    }

    /// Limits that no program for a real array reaches.
    pub fn new(cpu: &'a Cpu) -> SimulateOptions<'a> {
        SimulateOptions {
            cpu,
            max_units: 1 << 36,
            stop_after: None,
            max_bytes: 2 << 30,
            after_launch: None,
        }
    }
}

/// Runs every launch on the buffers, one for each slot, in the slots' sizes.
///
/// # Errors
/// A [`SimulationFault`] describes the fault and its place. Slots that the program writes are undefined then.
pub fn run(
    program: &Program,
    buffers: &mut [Vec<u8>],
    options: &SimulateOptions<'_>,
) -> Result<RunCounters, SimulationFault> {
    check_buffers(program, buffers)?;
    let mut counters = RunCounters::default();
    let mut options = *options;
    for flat in program.flatten()? {
        let launch = run_launch(program, &flat, buffers, &options)?;
        options.stop_after = options.stop_after.map(|n| n.saturating_sub(launch.n_units));
        if let Some(after_launch) = options.after_launch {
            let is_written = written_slots(&flat, buffers.len());
            let slots = (0..buffers.len()).filter(|slot| is_written[*slot]);
            after_launch(&slots.collect::<Vec<usize>>(), buffers);
        }
        counters.launches.push(launch);
    }
    Ok(counters)
}

fn check_buffers(program: &Program, buffers: &[Vec<u8>]) -> Result<(), SimulationFault> {
    if program.slots.len() != buffers.len() {
        return Err(SimulationFault::Buffers(format!(
            "program `{}` has {} slots, {} buffers were given",
            program.name,
            program.slots.len(),
            buffers.len()
        )));
    }
    for (slot, buffer) in program.slots.iter().zip(buffers) {
        if slot.size_bytes() != Some(buffer.len() as u64) {
            return Err(SimulationFault::Buffers(format!(
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
    ddr: &'a [&'a [u8]],
    options: &SimulateOptions<'a>,
    last_point: u64,
) -> LaunchContext<'a> {
    LaunchContext {
        flat,
        slots: &program.slots,
        ddr,
        cpu: options.cpu,
        last_point,
        max_units: options.max_units(),
    }
}

/// The slots of a launch: those that it writes, and those that stay unchanged and can be lent.
struct SlotMemory<'a> {
    lent: Vec<Option<&'a [u8]>>,
    written: Vec<Option<&'a mut [u8]>>,
}

impl<'a> SlotMemory<'a> {
    fn new(flat: &Flat<'_>, buffers: &'a mut [Vec<u8>]) -> SlotMemory<'a> {
        let is_written = written_slots(flat, buffers.len());
        let (mut lent, mut written) = (Vec::new(), Vec::new());
        for (buffer, is_written) in buffers.iter_mut().zip(is_written) {
            if is_written {
                lent.push(None);
                written.push(Some(&mut buffer[..]));
            } else {
                lent.push(Some(&buffer[..]));
                written.push(None);
            }
        }
        SlotMemory { lent, written }
    }
}

/// By slot, whether the launch writes it.
pub fn written_slots(flat: &Flat<'_>, n_slots: usize) -> Vec<bool> {
    let mut is_written = vec![false; n_slots];
    for transfer in flat.transfers.iter().filter(|transfer| !transfer.reads) {
        let slot = flat.launch.args.get(transfer.decl.arg);
        if let Some(is_written) = slot.and_then(|&slot| is_written.get_mut(slot)) {
            *is_written = true;
        }
    }
    is_written
}

/// The bytes of every slot at this moment.
fn now<'s>(lent: &[Option<&'s [u8]>], written: &'s [Option<&mut [u8]>]) -> Vec<&'s [u8]> {
    let slots = lent.iter().zip(written);
    slots
        .map(|(lent, written)| (*lent).or(written.as_deref()).unwrap_or_default())
        .collect()
}

fn run_launch(
    program: &Program,
    flat: &Flat<'_>,
    buffers: &mut [Vec<u8>],
    options: &SimulateOptions<'_>,
) -> Result<LaunchCounters, SimulationFault> {
    let launch = &flat.launch.name;
    let needed = limits::memory_bytes(flat);
    if needed > u128::from(options.max_bytes) {
        return Err(SimulationFault::Cannot {
            launch: launch.clone(),
            place: "its memory".to_owned(),
            site: Box::default(),
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
    let sequential = flat.launch.order == GridOrder::Sequential;
    let mut last_point = if sequential { 0 } else { u64::MAX };
    let cannot = |trouble: Trouble| SimulationFault::Cannot {
        launch: launch.clone(),
        place: trouble.place,
        site: Box::new(trouble.site),
        point: trouble.point,
        problem: trouble.problem,
    };
    let SlotMemory { lent, mut written } = SlotMemory::new(flat, buffers);
    let mut network = ActorNetwork::new(flat, &lent).map_err(cannot)?;
    let mut n_rounds = 0;
    let mut ran = Vec::new();
    loop {
        ran.clear();
        let clusters = network.clusters.iter_mut().enumerate();
        ran.extend(clusters.filter_map(|(i, cluster)| own(cluster).is_runnable().then_some(i)));
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
        let slots = now(&lent, &written);
        let ctx = see(program, flat, &slots, options, last_point);
        one_round(&network, &ran, &ctx);
        for &i in &ran {
            if let Some(trouble) = own(&mut network.clusters[i]).trouble.take() {
                return Err(cannot(trouble));
            }
        }
        network.exchange(&ran);
        write_back(&mut network, &mut written, options.cpu);
        let max_units = options.max_units();
        if network.spent() > max_units {
            let slots = now(&lent, &written);
            return Err(SimulationFault::Budget {
                launch: launch.clone(),
                max_units,
                running: network.running(&see(program, flat, &slots, options, last_point)),
            });
        }
    }
    let slots = now(&lent, &written);
    network.verdict(&see(program, flat, &slots, options, last_point))?;
    Ok(LaunchCounters {
        n_rounds,
        ..network.totals()
    })
}

/// Runs the clusters that can go on, on all threads.
fn one_round(network: &ActorNetwork<'_>, ran: &[usize], ctx: &LaunchContext<'_>) {
    ctx.cpu.pool().run(ran.len(), &|i| {
        let mut cluster = network.clusters[ran[i]]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cluster.step(ctx);
    });
}

/// A shim with blocks to write, and where its bytes of the slot begin.
struct Write<'a, 'p> {
    actor: &'a mut Actor<'p>,
    to: &'a mut [u8],
    base: usize,
}

/// Bytes that are not worth handing to other threads.
const FEW_BYTES: usize = 64 << 10;

/// Writes the blocks that arrived at the shims to DDR. It works in parallel if the targets do not overlap and there is
/// much, else in order.
fn write_back(network: &mut ActorNetwork<'_>, slots: &mut [Option<&mut [u8]>], cpu: &Cpu) {
    let mut writers: Vec<(usize, std::ops::Range<usize>, &mut Actor<'_>)> = Vec::new();
    let mut n_bytes = 0;
    for actor in network.clusters.iter_mut().flat_map(|c| &mut own(c).actors) {
        if let ActorKind::Writer(shim) = &actor.kind
            && let Some(from) = actor.receivers.first()
            && let Some((slot, range)) = shim.target(from)
        {
            n_bytes += from.inbox.iter().map(|p| p.block.len()).sum::<usize>();
            writers.push((slot, range, actor));
        }
    }
    writers.sort_by_key(|(slot, range, _)| (*slot, range.start));
    let disjoint = writers
        .windows(2)
        .all(|w| w[0].0 != w[1].0 || w[0].1.end <= w[1].1.start);
    if !disjoint || n_bytes <= FEW_BYTES {
        for (slot, _, actor) in writers {
            if let Some(to) = slots.get_mut(slot).and_then(Option::as_deref_mut) {
                write(Write { actor, to, base: 0 });
            }
        }
        return;
    }
    let mut jobs = Vec::with_capacity(writers.len());
    let mut writers = writers.into_iter().peekable();
    for (number, buffer) in slots.iter_mut().enumerate() {
        let (mut rest, mut base) = (buffer.as_deref_mut().unwrap_or_default(), 0);
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
    if let (ActorKind::Writer(shim), [from]) = (&mut actor.kind, &mut actor.receivers[..]) {
        let spent = &mut actor.tally.spent;
        let bytes = shim.write(from, job.to, job.base, spent);
        actor.tally.counters.ddr_written_bytes += bytes;
        actor.is_runnable = true;
    }
}
