//! A shim DMA channel: the tasks of its transfers, one after the other.

use super::block::{BlockContent, lend};
use super::context::{
    LaunchContext, QUANTUM, Trouble, coordinates, core_site, motion, move_units, n_points,
};
use super::ends::{Receiver, Sender, max_in_flight};
use super::fault::{Site, Waiting};
use super::motion::Motion;
use crate::program::{Affine, Env, Flat, Port};
use std::ops::Range;

/// A shim DMA channel.
#[derive(Debug)]
pub(super) struct Shim<'p> {
    pub(super) channel: usize,
    /// Slots that are not written while the launch runs.
    lent: &'p [Option<&'p [u8]>],
    /// Indices of its transfers, in order.
    transfers: Vec<usize>,
    point: u64,
    grid: Vec<u32>,
    /// Index in `transfers`.
    next: usize,
    loops: Loops,
    task: Option<DescriptorTask>,
    n_tasks: u64,
    done: bool,
}

/// A buffer descriptor at work.
#[derive(Debug)]
struct DescriptorTask {
    motion: Motion,
    slot: usize,
    transfer: usize,
    /// Blocks moved.
    moved: i64,
}

/// The loops around a task. Counts may depend on outer loops.
#[derive(Debug, Default)]
struct Loops {
    values: Vec<i64>,
    counts: Vec<i64>,
    /// Whether the innermost iteration at hand has had its task.
    begun: bool,
}

impl Loops {
    /// Steps towards the next iteration; `Some(true)` at one, `Some(false)` after the last, `None`
    /// in between.
    fn step(&mut self, loops: &[Affine], env: &Env<'_>) -> Option<bool> {
        if self.begun {
            while let (Some(value), Some(&count)) = (self.values.last_mut(), self.counts.last()) {
                *value += 1;
                if *value < count {
                    self.begun = false;
                    return None;
                }
                self.values.pop();
                self.counts.pop();
            }
            return Some(false);
        }
        let Some(count) = loops.get(self.values.len()) else {
            self.begun = true;
            return Some(true);
        };
        let count = count.at(&Env {
            loops: &self.values,
            ..*env
        });
        if count > 0 {
            self.values.push(0);
            self.counts.push(count);
        } else {
            // As after the last iteration of a loop one level out.
            self.begun = true;
        }
        None
    }
}

/// Stages that a core is looked for behind.
const MAX_STAGES: u32 = 4;

/// The first core that a channel's blocks go to, or come from, through stages if need be.
fn served(flat: &Flat<'_>, channel: usize, forwards: bool, max_stages: u32) -> Option<usize> {
    let channel = &flat.channels[channel];
    let ports = match forwards {
        true => &channel.to[..],
        false => std::slice::from_ref(&channel.from),
    };
    ports.iter().find_map(|port| match *port {
        Port::Core { core } => Some(core),
        Port::Memory { stage, .. } if max_stages > 0 => {
            let stage = &flat.stages[stage];
            let ends = if forwards {
                &stage.drains
            } else {
                &stage.fills
            };
            let mut ends = ends.iter();
            ends.find_map(|end| served(flat, end.channel, forwards, max_stages - 1))
        }
        _ => None,
    })
}

impl<'p> Shim<'p> {
    pub(super) fn new(
        channel: usize,
        transfers: Vec<usize>,
        flat: &Flat<'_>,
        lent: &'p [Option<&'p [u8]>],
    ) -> Shim<'p> {
        Shim {
            channel,
            lent,
            transfers,
            point: 0,
            grid: coordinates(flat.launch, 0),
            next: 0,
            loops: Loops::default(),
            task: None,
            n_tasks: 0,
            done: n_points(flat.launch) == 0,
        }
    }

    /// Whether every task has ended.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether every task up to that grid point has ended.
    pub(super) fn is_past(&self, point: u64) -> bool {
        self.done || (self.point > point && self.task.is_none())
    }

    /// Finds the next task that is not empty, if it may begin. `false`: none, or the round's units
    /// are spent.
    fn next_task(&mut self, ctx: &LaunchContext<'_>, spent: &mut u64) -> Result<bool, Trouble> {
        let launch = ctx.flat.launch;
        while !self.done && self.point <= ctx.last_point {
            if *spent > QUANTUM {
                return Ok(false);
            }
            *spent += 1;
            let Some(&number) = self.transfers.get(self.next) else {
                self.next = 0;
                self.point += 1;
                self.done = self.point >= n_points(launch) || self.transfers.is_empty();
                self.grid = coordinates(launch, self.point);
                continue;
            };
            let transfer = &ctx.flat.transfers[number];
            let env = Env {
                grid: &self.grid,
                index: &transfer.index,
                ..Env::default()
            };
            match self.loops.step(&transfer.decl.loops, &env) {
                Some(false) => {
                    self.loops = Loops::default();
                    self.next += 1;
                }
                Some(true) if self.begin(number, ctx)? => return Ok(true),
                None | Some(true) => {}
            }
        }
        Ok(false)
    }

    /// Makes the task of the iteration at hand; `false` if it moves nothing.
    fn begin(&mut self, number: usize, ctx: &LaunchContext<'_>) -> Result<bool, Trouble> {
        let transfer = &ctx.flat.transfers[number];
        let env = Env {
            grid: &self.grid,
            index: &transfer.index,
            loops: &self.loops.values,
            ..Env::default()
        };
        let trouble = |problem| Trouble {
            place: self.name(number, ctx),
            site: self.site(number, ctx),
            point: Some(self.grid.clone()),
            problem,
        };
        let slot = (ctx.flat.launch.args.get(transfer.decl.arg))
            .copied()
            .filter(|&slot| slot < ctx.slots.len())
            .ok_or_else(|| {
                trouble(format!(
                    "argument {} is none of the launch's",
                    transfer.decl.arg
                ))
            })?;
        let element_bytes = ctx.slots[slot].element.size_bytes();
        let buffer = (
            element_bytes,
            ctx.ddr.get(slot).map_or(0, |b| b.len() as u64) / element_bytes,
        );
        let motion = motion(&transfer.decl.pattern, &env, ctx.flat, self.channel, buffer)
            .map_err(trouble)?;
        if motion.n_blocks() == 0 {
            return Ok(false);
        }
        self.n_tasks += 1;
        self.task = Some(DescriptorTask {
            motion,
            slot,
            transfer: number,
            moved: 0,
        });
        Ok(true)
    }

    fn name(&self, transfer: usize, ctx: &LaunchContext<'_>) -> String {
        let index = &ctx.flat.transfers[transfer].index;
        let decls = &ctx.flat.launch.transfers;
        let number = decls
            .iter()
            .position(|decl| std::ptr::eq(decl, ctx.flat.transfers[transfer].decl));
        format!("transfer {}{index:?}", number.unwrap_or(transfer))
    }

    /// The slot that a transfer moves, and the first core that it serves.
    fn site(&self, transfer: usize, ctx: &LaunchContext<'_>) -> Site {
        let flat = ctx.flat;
        let slot = flat.launch.args.get(flat.transfers[transfer].decl.arg);
        let reads = flat.transfers[transfer].reads;
        let core = served(flat, self.channel, reads, MAX_STAGES);
        Site {
            core: core.and_then(|core| core_site(flat, core).core),
            slot: (slot.copied().filter(|&slot| slot < ctx.slots.len()))
                .and_then(|slot| u32::try_from(slot).ok()),
        }
    }

    /// Sends as many blocks as there is room for.
    pub(super) fn read(
        &mut self,
        to: &mut Sender<'p>,
        ctx: &LaunchContext<'_>,
        spent: &mut u64,
    ) -> Result<u64, Trouble> {
        let mut bytes = 0;
        loop {
            if self.task.is_none() && !self.next_task(ctx, spent)? {
                return Ok(bytes);
            }
            let Some(task) = &mut self.task else {
                return Ok(bytes);
            };
            while task.moved < task.motion.n_blocks() {
                if !to.has_room() || *spent > QUANTUM {
                    return Ok(bytes);
                }
                *spent += move_units(to.block_bytes);
                bytes += to.block_bytes as u64;
                let slot = self.lent.get(task.slot).copied().flatten();
                let part = slot.and_then(|slot| lend(slot, task.motion.contiguous(task.moved)?));
                match part {
                    Some(part) => to.send(BlockContent::Lent(part), self.point),
                    None => {
                        let mut block = to.buffer();
                        let from = ctx.ddr[task.slot];
                        task.motion.gather(task.moved, from, 0, block.bytes_mut());
                        to.send_own(block, self.point);
                    }
                }
                task.moved += 1;
            }
            self.task = None;
        }
    }

    /// Before a round's writes: finds a task, and says how much it can take.
    pub(super) fn prepare(
        &mut self,
        from: &mut Receiver<'_>,
        ctx: &LaunchContext<'_>,
        spent: &mut u64,
    ) -> Result<(), Trouble> {
        if self.task.is_none() {
            self.next_task(ctx, spent)?;
        }
        let block_bytes = ctx.flat.channels[self.channel].decl.block_bytes();
        let left = (self.task.as_ref()).map_or(0, |task| task.motion.n_blocks() - task.moved);
        from.demand = (left as usize).min(max_in_flight(block_bytes));
        Ok(())
    }

    /// The slot and its bytes that the blocks in the inbox will be written to.
    pub(super) fn target(&self, from: &Receiver<'_>) -> Option<(usize, Range<usize>)> {
        let task = self.task.as_ref().filter(|_| !from.inbox.is_empty())?;
        Some((task.slot, task.motion.range()))
    }

    /// Writes the blocks in the inbox to `to`, which begins at byte `base` of the slot.
    pub(super) fn write(
        &mut self,
        from: &mut Receiver<'_>,
        to: &mut [u8],
        base: usize,
        spent: &mut u64,
    ) -> u64 {
        let mut bytes = 0;
        while let Some(task) = &mut self.task
            && let Some(parcel) = from.inbox.pop_front()
        {
            task.motion
                .scatter(task.moved, to, base, parcel.block.bytes());
            *spent += move_units(parcel.block.len());
            bytes += parcel.block.len() as u64;
            from.freed.push(parcel.block);
            task.moved += 1;
            if task.moved == task.motion.n_blocks() {
                self.task = None;
            }
        }
        bytes
    }

    /// Cause of its wait, if it has work left.
    pub(super) fn waiting(&self, reads: bool, ctx: &LaunchContext<'_>) -> Option<Waiting> {
        let channel = ctx.flat.channel_name(self.channel);
        if self.done {
            return None;
        }
        let Some(task) = &self.task else {
            return Some(Waiting {
                who: format!("the shim's end of `{channel}`"),
                site: match self.transfers.first() {
                    Some(&transfer) => self.site(transfer, ctx),
                    None => Site::default(),
                },
                what: format!(
                    "waits for all transfers of grid point {:?} to end",
                    coordinates(ctx.flat.launch, self.point.saturating_sub(1))
                ),
            });
        };
        let (moved, total) = (task.moved, task.motion.n_blocks());
        let wait = if reads {
            format!("waits for room in `{channel}`")
        } else {
            format!("waits for a block of `{channel}`")
        };
        Some(Waiting {
            who: format!("{} at {:?}", self.name(task.transfer, ctx), self.grid),
            site: self.site(task.transfer, ctx),
            what: format!("{wait} ({moved} of {total} blocks done)"),
        })
    }
}
