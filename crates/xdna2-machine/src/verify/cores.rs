//! Effects of each core on its channels at a grid point, and whether it holds and releases blocks
//! properly. Control flow does not depend on data, so a core's program has one trace per point.

use super::rule::{Rule, RuleFinding, group};
use crate::program::{Affine, Condition, Env, Flat, FlatCore, Herd, Op, Operand, Port, Var};

/// An action of a core on a channel, packed: the channel's id and the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelEvent(u32);

/// An action on a channel at a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelAction {
    /// Waits for a full block.
    Get,
    /// Gives it back.
    Free,
    /// Waits for an empty block.
    New,
    /// Sends it.
    Put,
}

impl ChannelEvent {
    fn new(kind: ChannelAction, channel: usize) -> ChannelEvent {
        // Expansion bounds channels far below 2^30.
        ChannelEvent((channel as u32) << 2 | kind as u32)
    }

    pub(super) fn channel(self) -> usize {
        (self.0 >> 2) as usize
    }

    pub(super) fn kind(self) -> ChannelAction {
        match self.0 & 3 {
            0 => ChannelAction::Get,
            1 => ChannelAction::Free,
            2 => ChannelAction::New,
            _ => ChannelAction::Put,
        }
    }
}

/// One instruction of a body laid flat.
enum FlatInstruction<'p> {
    /// Begins a loop, or goes past its end.
    Loop {
        count: &'p Affine,
        end: usize,
    },
    /// The end of the loop that began there.
    End {
        begin: usize,
    },
    /// Goes on, or to `otherwise` if the condition does not hold.
    If {
        value: &'p Affine,
        condition: Condition,
        otherwise: usize,
    },
    Jump(usize),
    /// A loop that only calls: visited once, charged for its iterations.
    Calls {
        count: &'p Affine,
        end: usize,
    },
    Op(&'p Op),
}

/// A herd's body, ready to be traced.
pub(super) struct HerdBody<'p> {
    steps: Vec<FlatInstruction<'p>>,
    /// Whether the trace can differ between grid points.
    pub grid_dependent: bool,
}

impl<'p> HerdBody<'p> {
    pub(super) fn new(herd: &'p Herd) -> HerdBody<'p> {
        let mut code = HerdBody {
            steps: Vec::new(),
            grid_dependent: depends_on_grid(&herd.body),
        };
        code.lay(&herd.body);
        code
    }

    fn lay(&mut self, ops: &'p [Op]) {
        for op in ops {
            match op {
                Op::Loop { count, body } => {
                    let begin = self.steps.len();
                    self.steps.push(FlatInstruction::Jump(0));
                    self.lay(body);
                    let end = self.steps.len() + 1;
                    self.steps.push(FlatInstruction::End { begin });
                    self.steps[begin] = if body.iter().all(|op| matches!(op, Op::Call { .. })) {
                        FlatInstruction::Calls { count, end }
                    } else {
                        FlatInstruction::Loop { count, end }
                    };
                }
                Op::If {
                    value,
                    condition,
                    then,
                    otherwise,
                } => {
                    let at = self.steps.len();
                    self.steps.push(FlatInstruction::Jump(0));
                    self.lay(then);
                    let jump = self.steps.len();
                    self.steps.push(FlatInstruction::Jump(0));
                    self.steps[at] = FlatInstruction::If {
                        value,
                        condition: *condition,
                        otherwise: self.steps.len(),
                    };
                    self.lay(otherwise);
                    self.steps[jump] = FlatInstruction::Jump(self.steps.len());
                }
                _ => self.steps.push(FlatInstruction::Op(op)),
            }
        }
    }
}

fn depends_on_grid(ops: &[Op]) -> bool {
    let varies = |a: &Affine| a.terms.iter().any(|(v, _)| matches!(v, Var::Grid(_)));
    ops.iter().any(|op| match op {
        Op::Loop { count, body } => varies(count) || depends_on_grid(body),
        Op::If {
            value,
            then,
            otherwise,
            ..
        } => varies(value) || depends_on_grid(then) || depends_on_grid(otherwise),
        Op::Get { index, .. } | Op::New { index, .. } => index.iter().any(varies),
        Op::Free { .. } | Op::Put { .. } | Op::Call { .. } => false,
    })
}

/// A block a core holds.
#[derive(Clone, Copy)]
struct BlockHold {
    name: u8,
    channel: usize,
    new: bool,
}

/// Runs one core's program at one grid point.
pub(super) struct Tracer<'a, 'p> {
    flat: &'a Flat<'p>,
    core: &'a FlatCore<'p>,
    /// Blocks held, in the order in which they were acquired.
    held: Vec<BlockHold>,
    /// Steps left for the whole launch.
    budget: &'a mut u64,
    /// Calls already examined, by step: the channels of their block operands.
    calls: Vec<(usize, Vec<usize>)>,
    events: Vec<ChannelEvent>,
}

/// Steps of all cores at all examined grid points of a launch.
pub(super) const MAX_STEPS: u64 = 1 << 23;

impl<'a, 'p> Tracer<'a, 'p> {
    /// The events of a core at a grid point.
    pub(super) fn run(
        flat: &'a Flat<'p>,
        core: &'a FlatCore<'p>,
        code: &HerdBody<'p>,
        grid: &[u32],
        budget: &'a mut u64,
    ) -> Result<Vec<ChannelEvent>, RuleFinding> {
        let mut tracer = Tracer {
            flat,
            core,
            held: Vec::new(),
            budget,
            calls: Vec::new(),
            events: Vec::new(),
        };
        tracer.steps(code, grid)?;
        if let Some(&BlockHold { name, .. }) = tracer.held.first() {
            let message = format!("block b{name} is still held when the program ends");
            let fix = format!("Free or put b{name} on every path");
            return Err(RuleFinding::new(Rule::NotReleased, message).fix(fix));
        }
        Ok(tracer.events)
    }

    fn steps(&mut self, code: &HerdBody<'p>, grid: &[u32]) -> Result<(), RuleFinding> {
        // Loop variables, and the counts they run to.
        let (mut loops, mut counts): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        let mut pc = 0;
        while let Some(step) = code.steps.get(pc) {
            let env = Env {
                grid,
                x: self.core.x,
                y: self.core.y,
                loops: &loops,
                ..Env::default()
            };
            self.charge(1)?;
            pc += 1;
            match step {
                FlatInstruction::Jump(to) => pc = *to,
                FlatInstruction::If {
                    value,
                    condition,
                    otherwise,
                } => {
                    if !condition.holds(value.at(&env)) {
                        pc = *otherwise;
                    }
                }
                FlatInstruction::Loop { count, end } | FlatInstruction::Calls { count, end } => {
                    let times = count.at(&env);
                    if times <= 0 {
                        pc = *end;
                        continue;
                    }
                    let once = matches!(step, FlatInstruction::Calls { .. });
                    if once {
                        // A thousand calls weigh as one step: they need no tracing.
                        self.charge(times.unsigned_abs() / 1024)?;
                    }
                    loops.push(0);
                    counts.push(if once { 1 } else { times });
                }
                FlatInstruction::End { begin } => {
                    let (Some(i), Some(count)) = (loops.last_mut(), counts.last()) else {
                        continue;
                    };
                    *i += 1;
                    if *i < *count {
                        pc = begin + 1;
                    } else {
                        loops.pop();
                        counts.pop();
                    }
                }
                FlatInstruction::Op(op) => self.op(op, pc, &env)?,
            }
        }
        Ok(())
    }

    fn charge(&mut self, steps: u64) -> Result<(), RuleFinding> {
        match self.budget.checked_sub(steps) {
            Some(left) => {
                *self.budget = left;
                Ok(())
            }
            None => {
                let message = format!(
                    "the core programs run more than {} steps at the grid points examined",
                    group(MAX_STEPS)
                );
                Err(RuleFinding::new(Rule::TooLarge, message)
                    .fix("Move the work of outer loops to the grid"))
            }
        }
    }

    fn op(&mut self, op: &'p Op, pc: usize, env: &Env<'_>) -> Result<(), RuleFinding> {
        match op {
            Op::Get {
                channel,
                index,
                block,
            } => self.acquire(*channel, index, *block, false, env),
            Op::New {
                channel,
                index,
                block,
            } => self.acquire(*channel, index, *block, true, env),
            Op::Free { block } => self.release(*block, false),
            Op::Put { block } => self.release(*block, true),
            Op::Call {
                kernel, operands, ..
            } => self.call(op, kernel, operands, pc),
            Op::Loop { .. } | Op::If { .. } => Ok(()),
        }
    }

    fn acquire(
        &mut self,
        bundle: usize,
        index: &[Affine],
        block: u8,
        new: bool,
        env: &Env<'_>,
    ) -> Result<(), RuleFinding> {
        let verb = if new { "new" } else { "get" };
        let mut values = [0i64; 32];
        for (value, affine) in values.iter_mut().zip(index) {
            *value = affine.at(env);
        }
        let values = &values[..index.len().min(32)];
        let id = self.flat.channel_id(bundle, values);
        let Some(id) = id.filter(|&id| self.ends_here(id, new)) else {
            let name = &self.flat.launch.channels[bundle].name;
            let way = if new { "begin" } else { "end" };
            let message = format!("{verb} of channel {name}{values:?}, which does not {way} there");
            return Err(RuleFinding::new(Rule::ChannelUse, message).fix("Use the core's own index"));
        };
        if self.holds(block).is_some() {
            let message = format!("{verb} into b{block}, which holds another block");
            let fix = "Release it first, or use another name";
            return Err(RuleFinding::new(Rule::BlockName, message).fix(fix));
        }
        let decl = self.flat.channels[id].decl;
        let held = self.held.iter().filter(|h| h.channel == id).count() as u64;
        if held >= u64::from(decl.depth) {
            let message = format!(
                "{verb} of block {} of channel {}, whose depth is {}: it would wait for ever",
                held + 1,
                decl.name,
                decl.depth
            );
            let fix = format!("Release a block first, or set the depth to {}", held + 1);
            let finding = RuleFinding::new(Rule::OverAcquired, message);
            return Err(finding.numbers(held + 1, decl.depth.into()).fix(fix));
        }
        self.held.push(BlockHold {
            name: block,
            channel: id,
            new,
        });
        let kind = if new {
            ChannelAction::New
        } else {
            ChannelAction::Get
        };
        self.events.push(ChannelEvent::new(kind, id));
        Ok(())
    }

    /// The block of that name and its position among those held.
    fn holds(&self, name: u8) -> Option<(usize, BlockHold)> {
        let at = self.held.iter().position(|h| h.name == name)?;
        Some((at, self.held[at]))
    }

    fn ends_here(&self, id: usize, sends: bool) -> bool {
        let ends = if sends {
            &self.core.outputs
        } else {
            &self.core.inputs
        };
        ends.binary_search(&id).is_ok()
    }

    fn release(&mut self, block: u8, put: bool) -> Result<(), RuleFinding> {
        let verb = if put { "put" } else { "free" };
        let Some((at, held)) = self.holds(block) else {
            let message = format!("{verb} of b{block}, which holds no block");
            let fix = "Get or new it first, and release it once";
            return Err(RuleFinding::new(Rule::NotHeld, message).fix(fix));
        };
        if held.new != put {
            let right = if held.new { "put" } else { "free" };
            let message = format!("{verb} of b{block}, whose block is released by {right}");
            return Err(RuleFinding::new(Rule::BlockName, message).fix(format!("Use {right}")));
        }
        if self.held[..at].iter().any(|h| h.channel == held.channel) {
            let name = &self.flat.channels[held.channel].decl.name;
            let message = format!("{verb} of b{block} before an older block of channel {name}");
            return Err(
                RuleFinding::new(Rule::ReleaseOrder, message).fix("Release the oldest first")
            );
        }
        self.held.remove(at);
        let kind = if put {
            ChannelAction::Put
        } else {
            ChannelAction::Free
        };
        self.events.push(ChannelEvent::new(kind, held.channel));
        Ok(())
    }

    fn call(
        &mut self,
        op: &Op,
        kernel: &str,
        operands: &[Operand],
        pc: usize,
    ) -> Result<(), RuleFinding> {
        let channel_of = |operand: &Operand| match *operand {
            Operand::Local(_) => Some(usize::MAX),
            Operand::Block(b) => {
                let held = self.holds(b);
                held.map(|(_, h)| self.flat.channels[h.channel].bundle)
            }
        };
        let known = self.calls.iter().find(|(at, _)| *at == pc).map(|(_, c)| c);
        let same = known.is_some_and(|channels| {
            channels
                .iter()
                .map(|&c| Some(c))
                .eq(operands.iter().map(channel_of))
        });
        if same {
            return Ok(());
        }
        if let Some(Operand::Block(b)) = operands.iter().find(|o| channel_of(o).is_none()) {
            let message = format!("call of {kernel} with b{b}, which holds no block");
            let fix = format!("Get or new b{b} before, and release it after");
            return Err(RuleFinding::new(Rule::NotHeld, message).fix(fix));
        }
        let channels = operands.iter().filter_map(channel_of).collect();
        super::kernels::check(self.flat, self.core.decl, op, &|b| {
            let held = self.holds(b);
            held.map(|(_, h)| (self.flat.channels[h.channel].decl, h.new))
        })?;
        self.calls.retain(|(at, _)| *at != pc);
        self.calls.push((pc, channels));
        Ok(())
    }
}

/// `core (0, 2)` in array coordinates.
pub(super) fn core_words(core: &FlatCore<'_>) -> String {
    format!("core ({}, {})", core.col, core.row)
}

/// Whether a channel's source is a core.
pub(super) fn from_core(flat: &Flat<'_>, id: usize) -> Option<usize> {
    match flat.channels[id].from {
        Port::Core { core } => Some(core),
        _ => None,
    }
}
