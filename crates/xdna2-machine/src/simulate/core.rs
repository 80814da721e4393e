//! A core: runs its herd's program for every grid point.

use super::block::{ByteBlock, Parcel};
use super::code::{CoreStep, HerdCode, Signature};
use super::context::{
    LaunchContext, QUANTUM, Trouble, coordinates, core_site, elements, motion, n_points,
};
use super::counters::Tally;
use super::ends::{Receiver, Sender};
use super::fault::Waiting;
use crate::program::{Affine, Env, Flat};
use std::sync::Arc;

/// A core.
pub(super) struct CoreActor<'p> {
    /// Index in the launch's flat cores.
    pub(super) number: usize,
    code: Arc<HerdCode<'p>>,
    point: u64,
    grid: Vec<u32>,
    next: usize,
    loops: Vec<i64>,
    counts: Vec<i64>,
    pub(super) held: Vec<BlockBinding<'p>>,
    pub(super) locals: Vec<ByteBlock>,
    /// Buffers that a running call writes; empty between calls.
    pub(super) lent: Vec<ByteBlock>,
    /// Operands that each call was last found to accept.
    pub(super) accepted: Vec<Signature>,
    done: bool,
}

/// Meaning of a block name.
#[derive(Default)]
pub(super) enum BlockBinding<'p> {
    #[default]
    Nothing,
    /// A block of the receiver at this position.
    Taken(usize, Parcel<'p>),
    /// A block for the sender at this position.
    New(usize, ByteBlock),
}

/// How a step ended.
enum StepOutcome {
    Next,
    Goto(usize),
    Blocked,
}

impl<'p> CoreActor<'p> {
    pub(super) fn new(number: usize, code: Arc<HerdCode<'p>>, flat: &Flat<'_>) -> CoreActor<'p> {
        let decl = flat.cores[number].decl;
        let mut held = Vec::new();
        held.resize_with(code.n_names, BlockBinding::default);
        CoreActor {
            number,
            point: 0,
            grid: coordinates(flat.launch, 0),
            next: 0,
            loops: Vec::new(),
            counts: Vec::new(),
            held,
            locals: (decl.locals.iter())
                .map(|local| ByteBlock::poisoned(local.size_bytes() as usize))
                .collect(),
            lent: Vec::new(),
            accepted: vec![Signature::new(); code.n_calls],
            code,
            done: n_points(flat.launch) == 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Blocks still held.
    pub(super) fn n_held(&self) -> usize {
        let held = |held: &&BlockBinding| !matches!(held, BlockBinding::Nothing);
        self.held.iter().filter(held).count()
    }

    pub(super) fn env<'a>(&'a self, ctx: &LaunchContext<'_>) -> Env<'a> {
        let core = &ctx.flat.cores[self.number];
        Env {
            grid: &self.grid,
            x: core.x,
            y: core.y,
            loops: &self.loops,
            ..Env::default()
        }
    }

    pub(super) fn trouble(&self, problem: String, ctx: &LaunchContext<'_>) -> Trouble {
        Trouble {
            place: format!("core {}", ctx.flat.core_name(self.number)),
            site: core_site(ctx.flat, self.number),
            point: Some(self.grid.clone()),
            problem,
        }
    }

    /// Runs until it blocks, ends, or has spent the round's units. Returns whether it can go on.
    pub(super) fn step(
        &mut self,
        senders: &mut [Sender<'p>],
        receivers: &mut [Receiver<'p>],
        ctx: &LaunchContext<'_>,
        tally: &mut Tally,
    ) -> Result<bool, Trouble> {
        let code = Arc::clone(&self.code);
        while !self.done {
            if tally.spent > QUANTUM {
                return Ok(true);
            }
            tally.spent += 1;
            let Some(step) = code.steps.get(self.next) else {
                self.point += 1;
                self.done = self.point >= n_points(ctx.flat.launch);
                self.grid = coordinates(ctx.flat.launch, self.point);
                self.next = 0;
                continue;
            };
            match self.run(step, senders, receivers, ctx, tally)? {
                StepOutcome::Next => self.next += 1,
                StepOutcome::Goto(next) => self.next = next,
                StepOutcome::Blocked => return Ok(false),
            }
        }
        Ok(false)
    }

    fn run(
        &mut self,
        step: &CoreStep<'_>,
        senders: &mut [Sender<'p>],
        receivers: &mut [Receiver<'p>],
        ctx: &LaunchContext<'_>,
        tally: &mut Tally,
    ) -> Result<StepOutcome, Trouble> {
        match step {
            CoreStep::Begin { count, end } => {
                let count = count.at(&self.env(ctx));
                if count <= 0 {
                    return Ok(StepOutcome::Goto(*end));
                }
                self.loops.push(0);
                self.counts.push(count);
            }
            CoreStep::End { begin } => {
                if let (Some(value), Some(&count)) = (self.loops.last_mut(), self.counts.last()) {
                    *value += 1;
                    if *value < count {
                        return Ok(StepOutcome::Goto(begin + 1));
                    }
                }
                self.loops.pop();
                self.counts.pop();
            }
            CoreStep::Unless {
                value,
                condition,
                otherwise,
            } => {
                if !condition.holds(value.at(&self.env(ctx))) {
                    return Ok(StepOutcome::Goto(*otherwise));
                }
            }
            CoreStep::Jump(to) => return Ok(StepOutcome::Goto(*to)),
            CoreStep::Get {
                channel,
                index,
                block,
            } => return self.get((*channel, *index), *block, receivers, ctx),
            CoreStep::New {
                channel,
                index,
                block,
            } => return self.begin((*channel, *index), *block, senders, ctx),
            CoreStep::Free(block) => self.free(*block, receivers, ctx)?,
            CoreStep::Put(block) => self.put(*block, senders, ctx)?,
            CoreStep::Call(call) => self.call(call, senders, receivers, ctx, tally)?,
            CoreStep::Fault(problem) => return Err(self.trouble(problem.clone(), ctx)),
        }
        Ok(StepOutcome::Next)
    }

    /// The id of a channel that a step names.
    fn channel(
        &self,
        (bundle, index): (usize, &[Affine]),
        ctx: &LaunchContext<'_>,
    ) -> Result<usize, Trouble> {
        let env = self.env(ctx);
        // This runs at every block, so it does not allocate for the few dimensions that bundles have.
        let (mut few, many): ([i64; 4], Vec<i64>);
        let values = if index.len() <= 4 {
            few = [0; 4];
            let few = &mut few[..index.len()];
            for (value, index) in few.iter_mut().zip(index) {
                *value = index.at(&env);
            }
            few
        } else {
            many = index.iter().map(|index| index.at(&env)).collect();
            &many[..]
        };
        ctx.flat.channel_id(bundle, values).ok_or_else(|| {
            let name = (ctx.flat.launch.channels.get(bundle)).map_or("?", |c| &c.name);
            self.trouble(format!("channel `{name}` has no index {values:?}"), ctx)
        })
    }

    fn check_unused(&self, block: u8, ctx: &LaunchContext<'_>) -> Result<(), Trouble> {
        match self.held[usize::from(block)] {
            BlockBinding::Nothing => Ok(()),
            _ => Err(self.trouble(format!("b{block} still names a block"), ctx)),
        }
    }

    fn get(
        &mut self,
        named: (usize, &[Affine]),
        block: u8,
        receivers: &mut [Receiver<'p>],
        ctx: &LaunchContext<'_>,
    ) -> Result<StepOutcome, Trouble> {
        let channel = self.channel(named, ctx)?;
        self.check_unused(block, ctx)?;
        let Some(at) = receivers.iter().position(|r| r.channel == channel) else {
            let name = ctx.flat.channel_name(channel);
            return Err(self.trouble(format!("channel `{name}` does not end at this core"), ctx));
        };
        let Some(parcel) = receivers[at].inbox.pop_front() else {
            return Ok(StepOutcome::Blocked);
        };
        receivers[at].borrowed += 1;
        self.held[usize::from(block)] = BlockBinding::Taken(at, parcel);
        Ok(StepOutcome::Next)
    }

    fn begin(
        &mut self,
        named: (usize, &[Affine]),
        block: u8,
        senders: &mut [Sender<'p>],
        ctx: &LaunchContext<'_>,
    ) -> Result<StepOutcome, Trouble> {
        let channel = self.channel(named, ctx)?;
        self.check_unused(block, ctx)?;
        let Some(at) = senders.iter().position(|s| s.channel == channel) else {
            let name = ctx.flat.channel_name(channel);
            let problem = format!("channel `{name}` does not begin at this core");
            return Err(self.trouble(problem, ctx));
        };
        if !senders[at].has_room() {
            return Ok(StepOutcome::Blocked);
        }
        let mut buffer = senders[at].buffer();
        buffer.poison();
        senders[at].held += 1;
        self.held[usize::from(block)] = BlockBinding::New(at, buffer);
        Ok(StepOutcome::Next)
    }

    fn free(
        &mut self,
        block: u8,
        receivers: &mut [Receiver<'p>],
        ctx: &LaunchContext<'_>,
    ) -> Result<(), Trouble> {
        match std::mem::take(&mut self.held[usize::from(block)]) {
            BlockBinding::Taken(at, parcel) => {
                receivers[at].borrowed -= 1;
                receivers[at].received += 1;
                receivers[at].freed.push(parcel.block);
                Ok(())
            }
            _ => Err(self.trouble(format!("b{block} names no block that `get` took"), ctx)),
        }
    }

    fn put(
        &mut self,
        block: u8,
        senders: &mut [Sender<'p>],
        ctx: &LaunchContext<'_>,
    ) -> Result<(), Trouble> {
        let BlockBinding::New(at, mut buffer) = std::mem::take(&mut self.held[usize::from(block)])
        else {
            return Err(self.trouble(format!("b{block} names no block that `new` gave"), ctx));
        };
        let channel = &ctx.flat.channels[senders[at].channel];
        if let Some(pattern) = &channel.decl.from_pattern {
            let env = Env {
                index: &channel.index,
                ..Env::default()
            };
            let n = elements(&channel.decl.block).unwrap_or(u64::MAX);
            let size = (channel.decl.element.size_bytes(), n);
            let stream = motion(pattern, &env, ctx.flat, senders[at].channel, size)
                .map_err(|problem| self.trouble(problem, ctx))?;
            if stream.n_blocks() != 1 {
                let name = ctx.flat.channel_name(senders[at].channel);
                let problem = format!(
                    "the sending pattern of `{name}` visits {} blocks, not one",
                    stream.n_blocks()
                );
                return Err(self.trouble(problem, ctx));
            }
            let mut ordered = senders[at].buffer();
            stream.gather(0, buffer.bytes(), 0, ordered.bytes_mut());
            senders[at].spare.push(buffer);
            buffer = ordered;
        }
        senders[at].held -= 1;
        senders[at].send_own(buffer, self.point);
        Ok(())
    }

    /// Cause of its wait.
    pub(super) fn waiting(
        &self,
        senders: &[Sender<'_>],
        receivers: &[Receiver<'_>],
        ctx: &LaunchContext<'_>,
    ) -> Option<Waiting> {
        if self.done {
            return None;
        }
        let who = format!(
            "core {} at {:?}",
            ctx.flat.core_name(self.number),
            self.grid
        );
        let what = match self.code.steps.get(self.next) {
            Some(CoreStep::Get { channel, index, .. }) => {
                let id = self.channel((*channel, *index), ctx).ok()?;
                let receiver = receivers.iter().find(|r| r.channel == id)?;
                format!(
                    "waits for a block of `{}` ({} freed, {} borrowed)",
                    ctx.flat.channel_name(id),
                    receiver.received,
                    receiver.borrowed
                )
            }
            Some(CoreStep::New { channel, index, .. }) => {
                let id = self.channel((*channel, *index), ctx).ok()?;
                let sender = senders.iter().find(|s| s.channel == id)?;
                format!(
                    "waits for an empty block of `{}` ({} sent, {} not taken yet)",
                    ctx.flat.channel_name(id),
                    sender.sent,
                    sender.outbox.len() + sender.beyond
                )
            }
            _ => "waits".to_owned(),
        };
        Some(Waiting {
            who,
            site: core_site(ctx.flat, self.number),
            what,
        })
    }
}
