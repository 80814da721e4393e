//! Cores: in-order programs of gets, puts and calls.

use super::{EventKind, TimingEngine};
use crate::program::{Affine, Env, Port};
use crate::timing::cores::{CallCycles, TimingInstruction};
use crate::timing::network::Via;
use crate::timing::{TimingError, Track};

/// Steps a core may take in all: far above any program, well below a hang.
const MAX_STEPS: u64 = 100_000_000;

#[derive(Clone, Copy, Default, PartialEq)]
enum Wait {
    /// Between grid points.
    #[default]
    Idle,
    /// It does not wait.
    No,
    /// It waits for a full block of a channel.
    In(usize),
    /// It waits for an empty block of a channel.
    Out(usize),
    /// It waits for a call's end.
    Call,
}

/// A core's state.
#[derive(Default)]
pub(super) struct CoreState {
    /// Grid points begun.
    begun: usize,
    at: usize,
    /// Loop variables, the outermost first, and their ends.
    loops: Vec<i64>,
    ends: Vec<i64>,
    /// Channel of each borrowed block, by the block's name.
    blocks: Vec<Option<usize>>,
    wait: Wait,
    since: f64,
    /// Cycles of block handling, charged with the next call.
    handling: f64,
    steps: u64,
}

impl CoreState {
    /// The channel it waits for.
    pub(super) fn waits_for(&self) -> Option<usize> {
        match self.wait {
            Wait::In(channel) | Wait::Out(channel) => Some(channel),
            _ => None,
        }
    }
}

impl TimingEngine<'_, '_> {
    /// A call has ended.
    pub(super) fn called(&mut self, core: usize) {
        let since = self.cores[core].since;
        self.run.cores[core].busy_ns += self.now - since;
        let at = self.cores[core].at - 1;
        let flat = &self.net.flat.cores[core];
        let track = Track::Core(flat.col, flat.row);
        let net = self.net;
        self.span(track, since, || match &net.programs[flat.herd][at] {
            TimingInstruction::Call(cost) => cost.name.clone(),
            _ => String::new(),
        });
        self.cores[core].wait = Wait::No;
        self.wake.push(core);
    }

    /// Goes on with a core until it waits.
    pub(super) fn run_core(&mut self, core: usize) -> Result<(), TimingError> {
        if self.cores[core].wait == Wait::Call {
            return Ok(());
        }
        if self.cores[core].wait == Wait::Idle && !self.begin(core) {
            return Ok(());
        }
        let net = self.net;
        let steps = &net.programs[net.flat.cores[core].herd];
        loop {
            self.cores[core].steps += 1;
            if self.cores[core].steps > MAX_STEPS {
                return Err(self.wrong(core, "more than 10^8 steps".into()));
            }
            let Some(step) = steps.get(self.cores[core].at) else {
                if self.end(core) {
                    continue;
                }
                return Ok(());
            };
            let goes_on = match step {
                TimingInstruction::Get {
                    bundle,
                    index,
                    block,
                } => self.get(core, *bundle, index, *block)?,
                TimingInstruction::New {
                    bundle,
                    index,
                    block,
                } => self.new_block(core, *bundle, index, *block)?,
                TimingInstruction::Call(cost) => self.call(core, cost),
                _ => self.control(core, step)?,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Begins the next grid point if it has been released.
    fn begin(&mut self, core: usize) -> bool {
        let released = self.released;
        let state = &mut self.cores[core];
        if state.begun >= released {
            return false;
        }
        state.begun += 1;
        state.at = 0;
        state.wait = Wait::No;
        true
    }

    /// Ends a grid point; whether the next one begins at once.
    fn end(&mut self, core: usize) -> bool {
        self.cores[core].wait = Wait::Idle;
        let point = self.cores[core].begun - 1;
        self.open[point].cores -= 1;
        self.close(point);
        self.begin(core)
    }

    fn value(&self, core: usize, affine: &Affine) -> i64 {
        affine.at(&self.env(core))
    }

    fn env(&self, core: usize) -> Env<'_> {
        let state = &self.cores[core];
        let flat = &self.net.flat.cores[core];
        Env {
            grid: &self.points[state.begun - 1],
            x: flat.x,
            y: flat.y,
            loops: &state.loops,
            ..Env::default()
        }
    }

    /// Steps that take no time.
    fn control(&mut self, core: usize, step: &TimingInstruction) -> Result<bool, TimingError> {
        let at = self.cores[core].at;
        let next = match step {
            TimingInstruction::Loop {
                count,
                after,
                merged,
            } => {
                let count = self.value(core, count) / (*merged).max(1) as i64;
                if count > 0 {
                    self.cores[core].loops.push(0);
                    self.cores[core].ends.push(count);
                    at + 1
                } else {
                    *after
                }
            }
            TimingInstruction::Next { body } => {
                let state = &mut self.cores[core];
                match (state.loops.last_mut(), state.ends.last()) {
                    (Some(value), Some(&end)) if *value + 1 < end => {
                        *value += 1;
                        *body
                    }
                    _ => {
                        state.loops.pop();
                        state.ends.pop();
                        at + 1
                    }
                }
            }
            TimingInstruction::Branch {
                value,
                condition,
                otherwise,
            } => {
                if condition.holds(self.value(core, value)) {
                    at + 1
                } else {
                    *otherwise
                }
            }
            TimingInstruction::Jump(to) => *to,
            TimingInstruction::Free(block) => {
                self.free(core, *block)?;
                at + 1
            }
            TimingInstruction::Put(block) => {
                self.put(core, *block)?;
                at + 1
            }
            TimingInstruction::Get { .. }
            | TimingInstruction::New { .. }
            | TimingInstruction::Call(_) => at + 1,
        };
        self.cores[core].at = next;
        Ok(true)
    }

    fn call(&mut self, core: usize, cost: &CallCycles) -> bool {
        let cycles = cost.cycles(&self.env(core)) + std::mem::take(&mut self.cores[core].handling);
        let ns = cycles / self.net.machine.clock_hz * 1e9;
        self.run.cores[core].calls += cost.merged as f64;
        let state = &mut self.cores[core];
        state.at += 1;
        state.wait = Wait::Call;
        state.since = self.now;
        self.schedule(self.now + ns, EventKind::Called(core));
        false
    }

    fn channel(&self, core: usize, bundle: usize, index: &[Affine]) -> Result<usize, TimingError> {
        // The verifier allows a bundle 32 dimensions. There are too many gets for an allocation each.
        let mut values = [0i64; 32];
        let env = self.env(core);
        for (value, affine) in values.iter_mut().zip(index) {
            *value = affine.at(&env);
        }
        let values = &values[..index.len().min(32)];
        let flat = self.net.flat;
        flat.channel_id(bundle, values).ok_or_else(|| {
            let name = flat.launch.channels.get(bundle).map_or("?", |c| &c.name);
            self.wrong(
                core,
                format!("`{name}` at {values:?}, which does not exist"),
            )
        })
    }

    fn get(
        &mut self,
        core: usize,
        bundle: usize,
        index: &[Affine],
        block: u8,
    ) -> Result<bool, TimingError> {
        let channel = self.channel(core, bundle, index)?;
        let sink = self.sink(core, channel)?;
        if self.channels[channel].sinks[sink].full == 0 {
            self.wait(core, Wait::In(channel));
            return Ok(false);
        }
        self.channels[channel].sinks[sink].full -= 1;
        self.take(core, channel, block);
        Ok(true)
    }

    fn new_block(
        &mut self,
        core: usize,
        bundle: usize,
        index: &[Affine],
        block: u8,
    ) -> Result<bool, TimingError> {
        let channel = self.channel(core, bundle, index)?;
        if !matches!(self.net.wires[channel].from, Port::Core { core: c } if c == core) {
            let name = self.net.flat.channel_name(channel);
            return Err(self.wrong(core, format!("{name}, which does not begin there")));
        }
        if self.channels[channel].held >= self.net.wires[channel].depth {
            self.wait(core, Wait::Out(channel));
            return Ok(false);
        }
        self.channels[channel].held += 1;
        self.take(core, channel, block);
        Ok(true)
    }

    fn wait(&mut self, core: usize, wait: Wait) {
        let now = self.now;
        let state = &mut self.cores[core];
        if state.wait != wait {
            state.wait = wait;
            state.since = now;
        }
    }

    /// Notes a block as borrowed and the time it was waited for.
    fn take(&mut self, core: usize, channel: usize, block: u8) {
        let waited = self.now - self.cores[core].since;
        match self.cores[core].wait {
            Wait::In(_) => self.run.cores[core].in_ns += waited,
            Wait::Out(_) => self.run.cores[core].out_ns += waited,
            _ => {}
        }
        let handling = self.net.profile.core.block_cycles;
        let state = &mut self.cores[core];
        state.wait = Wait::No;
        state.handling += handling;
        state.at += 1;
        let block = usize::from(block);
        if state.blocks.len() <= block {
            state.blocks.resize(block + 1, None);
        }
        state.blocks[block] = Some(channel);
    }

    fn borrowed(&mut self, core: usize, block: u8) -> Result<usize, TimingError> {
        let slot = self.cores[core].blocks.get_mut(usize::from(block));
        slot.and_then(Option::take)
            .ok_or_else(|| self.wrong(core, format!("block b{block}, which it does not hold")))
    }

    fn free(&mut self, core: usize, block: u8) -> Result<(), TimingError> {
        let channel = self.borrowed(core, block)?;
        let sink = self.sink(core, channel)?;
        self.channels[channel].sinks[sink].reserved -= 1;
        let wire = &self.net.wires[channel];
        if let (Via::Shared, Port::Core { core: source }) = (wire.via, wire.from) {
            self.channels[channel].held -= 1;
            self.wake.push(source);
        }
        self.try_send.push(channel);
        Ok(())
    }

    fn put(&mut self, core: usize, block: u8) -> Result<(), TimingError> {
        let channel = self.borrowed(core, block)?;
        self.channels[channel].ready += 1;
        self.try_send.push(channel);
        Ok(())
    }

    /// Index of a core among a channel's sinks.
    fn sink(&self, core: usize, channel: usize) -> Result<usize, TimingError> {
        let here = |port: &Port| matches!(*port, Port::Core { core: c } if c == core);
        self.net.wires[channel]
            .to
            .iter()
            .position(here)
            .ok_or_else(|| {
                let name = self.net.flat.channel_name(channel);
                self.wrong(core, format!("{name}, which does not end there"))
            })
    }

    fn wrong(&self, core: usize, what: String) -> TimingError {
        TimingError::Core {
            launch: self.net.flat.launch.name.clone(),
            core: self.net.flat.core_name(core),
            what,
        }
    }
}
