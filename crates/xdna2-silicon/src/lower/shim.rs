//! The shims' tasks, in an order that never waits for a later task.
//!
//! Firmware pushes one task after the other, and waits when a channel has four. To let every wait end, tasks are
//! ordered by the share of their channel's work of a grid point that comes before them. By then, everything that a task
//! waits for has begun. Each channel has four descriptors. One is rewritten when the token of its previous task was
//! awaited.

use super::NoWords;
use super::places::Places;
use super::walk::{self, WalkFields};
use millrace_xdna2_machine::program::{Affine, Env, Flat, GridOrder, Program};
use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::{ChannelAt, StreamWriter, TaskPush};
use std::collections::BTreeMap;

/// Tasks of a channel at a time, and number of its descriptors.
const DEPTH: usize = 4;
/// Bursts of 512 bytes, the longest possible.
const BURST: u64 = 3;
/// The value that mlir-aie writes.
const AXCACHE: u64 = 2;

/// A shim's part in a launch, step by step.
#[derive(Clone, Debug)]
pub(crate) enum ShimCommand {
    /// A descriptor is written and pushed.
    Push(ShimTask),
    /// The oldest task of a channel whose token is out is awaited.
    Await(ChannelAt),
}

/// A task of a shim.
#[derive(Clone, Debug)]
pub(crate) struct ShimTask {
    pub(crate) channel: ChannelAt,
    /// The slot of the program that it moves.
    pub(crate) slot: u32,
    pub(crate) walk: WalkFields,
    /// Words of its channel at this point that come before it.
    before: u64,
}

/// Tokens of a channel: tasks pushed so far, and those awaited.
type Queues = BTreeMap<ChannelAt, (usize, usize)>;

/// All tasks and waits of a launch.
pub(crate) fn commands(
    program: &Program,
    flat: &Flat<'_>,
    places: &Places,
) -> Result<Vec<ShimCommand>, NoWords> {
    let mut queues = Queues::new();
    let mut commands = Vec::new();
    for grid in flat.launch.grid_points() {
        let mut all = at_point(program, flat, places, &grid)?;
        let mut totals: BTreeMap<ChannelAt, u64> = BTreeMap::new();
        for task in &all {
            *totals.entry(task.channel).or_default() += words(&task.walk);
        }
        // Cross-multiplied fractions: before / total, exact.
        all.sort_by(|a, b| {
            let of = |task: &ShimTask| u128::from(task.before);
            let total = |task: &ShimTask| u128::from(totals[&task.channel].max(1));
            let order = (of(a) * total(b)).cmp(&(of(b) * total(a)));
            // Tasks that take come before tasks that give.
            order.then(a.channel.direction.cmp(&b.channel.direction))
        });
        for task in all {
            let (pushed, awaited) = queues.entry(task.channel).or_default();
            if *pushed - *awaited == DEPTH {
                commands.push(ShimCommand::Await(task.channel));
                *awaited += 1;
            }
            *pushed += 1;
            commands.push(ShimCommand::Push(task));
        }
        if flat.launch.order == GridOrder::Sequential {
            drain(&mut queues, &mut commands);
        }
    }
    drain(&mut queues, &mut commands);
    Ok(commands)
}

/// Writes tasks and waits; returns the number of tasks.
pub(super) fn write(commands: &[ShimCommand], writer: &mut StreamWriter) -> Result<usize, NoWords> {
    let mut numbers = DescriptorNumbers::default();
    let mut n_tasks = 0;
    for command in commands {
        match command {
            ShimCommand::Push(task) => {
                write_task(task, numbers.next(task.channel), writer)?;
                n_tasks += 1;
            }
            ShimCommand::Await(channel) => writer.await_token(*channel),
        }
    }
    Ok(n_tasks)
}

/// The descriptors of a channel that tasks take in turn.
#[derive(Debug, Default)]
pub(crate) struct DescriptorNumbers(BTreeMap<ChannelAt, usize>);

impl DescriptorNumbers {
    /// The number for a channel's next task.
    pub(crate) fn next(&mut self, at: ChannelAt) -> u8 {
        let pushed = self.0.entry(at).or_default();
        let first = (at.direction as usize * 2 + usize::from(at.number)) * DEPTH;
        let number = first + *pushed % DEPTH;
        *pushed += 1;
        number as u8
    }
}

/// Waits for all tokens that are out.
fn drain(queues: &mut Queues, commands: &mut Vec<ShimCommand>) {
    for (channel, (pushed, awaited)) in queues {
        let n_out = *pushed - *awaited;
        commands.extend(std::iter::repeat_n(ShimCommand::Await(*channel), n_out));
        *awaited = *pushed;
    }
}

fn write_task(task: &ShimTask, number: u8, writer: &mut StreamWriter) -> Result<(), NoWords> {
    let at = task.channel;
    let mut fields = task.walk.fields.clone();
    fields.extend([(F::Valid, 1), (F::Burst, BURST), (F::AxCache, AXCACHE)]);
    writer.descriptor(at.tile, number, &fields)?;
    writer.patch(at.tile, number, task.slot, task.walk.offset_bytes)?;
    let push = TaskPush {
        descriptor: number,
        executions: task.walk.executions,
        token: true,
    };
    writer.push(at, push)?;
    Ok(())
}

/// Words that a task moves in all.
fn words(walk: &WalkFields) -> u64 {
    let length = walk.fields.iter().find(|field| field.0 == F::Length);
    length.map_or(0, |field| field.1) * walk.executions
}

/// The tasks of a grid point, those of a channel in order.
fn at_point(
    program: &Program,
    flat: &Flat<'_>,
    places: &Places,
    grid: &[u32],
) -> Result<Vec<ShimTask>, NoWords> {
    let mut tasks = Vec::new();
    let mut before: BTreeMap<ChannelAt, u64> = BTreeMap::new();
    for (number, transfer) in flat.transfers.iter().enumerate() {
        let name = format!("transfer {number}");
        let own = match transfer.reads {
            true => places.ends.sources[transfer.channel],
            false => places.ends.sinks[transfer.channel].first().copied(),
        };
        let wanted = if transfer.reads {
            Direction::Mm2s
        } else {
            Direction::S2mm
        };
        let own = own.filter(|at| at.tile.kind() == TileKind::Shim && at.direction == wanted);
        let channel =
            own.ok_or_else(|| NoWords::new(&*name, "its channel has no end at a shim"))?;
        let slot = flat.launch.args.get(transfer.decl.arg).copied();
        let slot = slot.filter(|&slot| slot < program.slots.len());
        let slot =
            slot.ok_or_else(|| NoWords::new(&*name, "its argument is none of the launch's"))?;
        let size = program.slots[slot].element.size_bytes();
        let mut fault = None;
        iterate(
            &transfer.decl.loops,
            grid,
            &transfer.index,
            &mut Vec::new(),
            &mut |env| {
                let walk = transfer.decl.pattern.walk(env);
                if walk.is_empty() || fault.is_some() {
                    return;
                }
                match walk::fields(&walk, size, TileKind::Shim) {
                    Ok(walk) => {
                        let at = before.entry(channel).or_default();
                        let here = *at;
                        *at += words(&walk);
                        tasks.push(ShimTask {
                            channel,
                            slot: slot as u32,
                            walk,
                            before: here,
                        });
                    }
                    Err(problem) => fault = Some(problem),
                }
            },
        );
        if let Some(problem) = fault {
            return Err(NoWords::new(name, problem));
        }
    }
    Ok(tasks)
}

/// Calls for every iteration of loops.
fn iterate(
    loops: &[Affine],
    grid: &[u32],
    index: &[u32],
    values: &mut Vec<i64>,
    each: &mut impl FnMut(&Env<'_>),
) {
    let env = Env {
        grid,
        index,
        loops: values,
        ..Env::default()
    };
    let Some(count) = loops.get(values.len()) else {
        each(&env);
        return;
    };
    for value in 0..count.at(&env) {
        values.push(value);
        iterate(loops, grid, index, values, each);
        values.pop();
    }
}
