//! A program at work on the board.

mod cascade;
mod cycles;
mod lanes;
mod tensors;
mod views;

use super::arithmetic::compute;
use super::code::{Code, Instruction as I, LockAmount, LockAt, Term};
use super::memory::{Memories, allocate};
use super::value::{Base, CoreValue, MemoryView};
use crate::syntax::Location;
pub(crate) use cascade::CascadeWait;
use millrace_xdna2_machine::Profile;
use millrace_xdna2_words::board::{CoreProgram, CoreStep, CoreView};
use std::cell::RefCell;
use std::rc::Rc;
use views::{row, sub_view};

/// Most instructions in a turn: others have their turns in between.
const A_TURN: u32 = 4096;
/// Turns in a loop without effect after which a core has shorter ones: some cores of designs that only move data loop
/// for ever.
const LONG_TURNS: u32 = 1024;
const A_SHORT_TURN: u32 = 64;

/// Cause of a core's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreWait {
    /// A lock of the design, and how much of it.
    Lock(usize, LockAmount),
    Cascade(CascadeWait),
}

/// State of a core, for reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreLog {
    /// Cause of its wait.
    pub(crate) waits: Option<CoreWait>,
    /// Position of its program.
    pub(crate) at: Location,
    /// Instructions so far.
    pub(crate) instructions: u64,
}

/// A core at work.
pub(crate) struct CoreRun {
    code: Rc<Code>,
    log: Rc<RefCell<CoreLog>>,
    /// Instructions that all runs of this core may take.
    budget: u64,
    state: State,
    /// Profile with the cycles of kernels; without one no time is reported.
    profile: Option<Rc<Profile>>,
    /// Cycles since the last report.
    cycles: u64,
    /// Consecutive turns without an effect that others see.
    turned: u32,
}

#[derive(Default)]
struct State {
    next: usize,
    slots: Vec<CoreValue>,
    own: Vec<Vec<u8>>,
    /// By end of a FIFO: objects given back so far, and objects in hand.
    ends: Vec<(u64, u64)>,
}

/// How an instruction went.
enum CoreEvent {
    Next,
    To(usize),
    Waits(LockAt, LockAmount),
    WaitsForCascade(CascadeWait),
    End,
}

impl CoreRun {
    pub(crate) fn new(code: Rc<Code>, log: Rc<RefCell<CoreLog>>, budget: u64) -> CoreRun {
        let mut run = CoreRun {
            code,
            log,
            budget,
            state: State::default(),
            profile: None,
            cycles: 0,
            turned: 0,
        };
        run.restart();
        run
    }

    /// Reports the program's cycles to the board, with those of kernels from a profile.
    pub(crate) fn spend_cycles_of(&mut self, profile: Rc<Profile>) {
        self.profile = Some(profile);
    }

    /// Counts an instruction's cycles, and reports them before others can see its effect.
    fn spend(&mut self, instruction: &I, core: &mut CoreView<'_, '_>) {
        let Some(profile) = &self.profile else {
            return;
        };
        self.cycles += self.state.cycles(instruction, profile);
        if instruction.is_seen_by_others() {
            core.spend(std::mem::take(&mut self.cycles));
        }
    }

    fn advance(&mut self, core: &mut CoreView<'_, '_>) -> Result<CoreStep, String> {
        let code = Rc::clone(&self.code);
        let mut done = 0;
        let mut is_loop = true;
        let most = if self.turned < LONG_TURNS {
            A_TURN
        } else {
            A_SHORT_TURN
        };
        loop {
            let Some(instruction) = code.instructions.get(self.state.next) else {
                return Ok(CoreStep::Done);
            };
            self.spend(instruction, core);
            is_loop &= instruction.is_within();
            let step = self.state.step(&code, instruction, core)?;
            // A kernel takes as long as many instructions.
            done += if matches!(instruction, I::Call(..) | I::CallTile(..)) {
                A_TURN
            } else {
                1
            };
            match step {
                CoreEvent::Next => self.state.next += 1,
                CoreEvent::To(next) => self.state.next = next,
                CoreEvent::End => return Ok(CoreStep::Done),
                CoreEvent::WaitsForCascade(wait) => {
                    let mut log = self.log.borrow_mut();
                    log.instructions += u64::from(done);
                    log.waits = Some(CoreWait::Cascade(wait));
                    return Ok(match done {
                        1 => CoreStep::Waits(wait.name().to_owned()),
                        _ => CoreStep::Ran,
                    });
                }
                CoreEvent::Waits(lock, amount) => {
                    let mut log = self.log.borrow_mut();
                    log.instructions += u64::from(done);
                    log.waits = Some(CoreWait::Lock(lock.lock, amount));
                    // Work before the wait counts as a move.
                    return Ok(match done {
                        1 => CoreStep::Waits(format!(
                            "waits for {amount} of its lock {}",
                            lock.number
                        )),
                        _ => CoreStep::Ran,
                    });
                }
            }
            if done >= most
                || matches!(
                    instruction,
                    I::Release(..) | I::ReleaseObjects(..) | I::Call(..) | I::CallTile(..)
                )
            {
                let mut log = self.log.borrow_mut();
                log.instructions += u64::from(done);
                log.waits = None;
                if log.instructions > self.budget {
                    return Err(format!("stopped after {} instructions", self.budget));
                }
                self.turned = if is_loop {
                    self.turned.saturating_add(1)
                } else {
                    0
                };
                return Ok(if self.turned > LONG_TURNS {
                    CoreStep::Turned
                } else {
                    CoreStep::Ran
                });
            }
        }
    }
}

impl CoreProgram for CoreRun {
    fn step(&mut self, core: &mut CoreView<'_, '_>) -> Result<CoreStep, String> {
        let step = self.advance(core);
        let place = self
            .code
            .places
            .get(self.state.next)
            .copied()
            .unwrap_or_default();
        self.log.borrow_mut().at = place;
        // A race keeps its first word, by which the board recognises it.
        step.map_err(|problem| match problem.strip_prefix("race: ") {
            Some(race) => format!("race: {race} ({place})"),
            None => format!("{place}: {problem}"),
        })
    }

    fn restart(&mut self) {
        self.state = State {
            slots: vec![CoreValue::Integer(0); self.code.n_slots],
            ends: vec![(0, 0); self.code.ends.len()],
            ..State::default()
        };
        *self.log.borrow_mut() = CoreLog::default();
    }
}

impl State {
    fn terms(&self, terms: &[Term]) -> Result<Vec<i64>, String> {
        let term = |term: &Term| match term {
            Term::Fixed(value) => Ok(*value),
            Term::Slot(slot) => self.slots[*slot].integer(),
        };
        terms.iter().map(term).collect()
    }

    /// A loop's next index. A loop to the largest number ends there, as in two's complement it would not.
    fn next_index(&self, index: usize, step: usize) -> Result<CoreValue, String> {
        let [index, step] = [index, step].map(|slot| self.slots[slot].integer());
        Ok(CoreValue::Integer(index?.saturating_add(step?)))
    }

    fn step(
        &mut self,
        code: &Code,
        of: &I,
        core: &mut CoreView<'_, '_>,
    ) -> Result<CoreEvent, String> {
        match of {
            I::Constant(to, value) => self.slots[*to] = value.clone(),
            I::Copy(pairs) => {
                let values: Vec<CoreValue> = pairs
                    .iter()
                    .map(|&(from, _)| self.slots[from].clone())
                    .collect();
                for (&(_, to), value) in pairs.iter().zip(values) {
                    self.slots[to] = value;
                }
            }
            I::Compute {
                name,
                predicate,
                types,
                to,
                from,
            } => {
                self.slots[*to] = match (name.as_str(), &from[..]) {
                    ("index.step", &[a, b]) => self.next_index(a, b)?,
                    _ => {
                        let operands: Vec<&CoreValue> =
                            from.iter().map(|&slot| &self.slots[slot]).collect();
                        compute(name, predicate, *types, &operands)?
                    }
                };
            }
            I::Jump(to) => return Ok(CoreEvent::To(*to)),
            I::Unless(value, to) if self.slots[*value].integer()? == 0 => {
                return Ok(CoreEvent::To(*to));
            }
            I::UnlessLess(a, b, to) if self.slots[*a].integer()? >= self.slots[*b].integer()? => {
                return Ok(CoreEvent::To(*to));
            }
            I::Unless(..) | I::UnlessLess(..) => {}
            I::Acquire(lock, amount) => {
                let taken = match *amount {
                    LockAmount::AtLeast(0) => true,
                    LockAmount::AtLeast(amount) => core.acquire(lock.number, amount)?,
                    LockAmount::Equal(amount) => core.acquire_equal(lock.number, amount)?,
                };
                if !taken {
                    return Ok(CoreEvent::Waits(lock.clone(), *amount));
                }
            }
            I::Release(lock, amount) => core.release(lock.number, *amount)?,
            I::AcquireObjects(to, end, n) => {
                return self.acquire_objects(code, (*to, *end, *n), core);
            }
            I::ReleaseObjects(end, n) => self.release_objects(code, (*end, *n), core)?,
            I::PutCascade(from, number) => return self.put_cascade((*from, *number), core),
            I::GetCascade(to, number) => return Ok(self.get_cascade((*to, *number), core)),
            I::End => return Ok(CoreEvent::End),
            other => self.data(other, core)?,
        }
        Ok(CoreEvent::Next)
    }

    fn acquire_objects(
        &mut self,
        code: &Code,
        (to, end, n): (usize, usize, u64),
        core: &mut CoreView<'_, '_>,
    ) -> Result<CoreEvent, String> {
        let at = &code.ends[end];
        let (given, held) = self.ends[end];
        let more = (n.saturating_sub(held) * at.amount) as u8;
        if more > 0 && !core.acquire(at.acquire.number, more)? {
            let more = LockAmount::AtLeast(more);
            return Ok(CoreEvent::Waits(at.acquire.clone(), more));
        }
        self.ends[end].1 = held.max(n);
        let depth = at.objects.len() as u64;
        let objects = (0..n).map(|i| at.objects[((given + i) % depth.max(1)) as usize].clone());
        self.slots[to] = CoreValue::Objects(objects.collect());
        Ok(CoreEvent::Next)
    }

    fn release_objects(
        &mut self,
        code: &Code,
        (end, n): (usize, u64),
        core: &mut CoreView<'_, '_>,
    ) -> Result<(), String> {
        let at = &code.ends[end];
        let (given, held) = &mut self.ends[end];
        if n > *held {
            return Err(format!(
                "{} gives back {n} objects and holds {held}",
                at.name
            ));
        }
        *held -= n;
        *given += n;
        core.release(at.release.number, (n * at.amount) as u8)
    }

    /// Executes instructions on memory and on views of it.
    fn data(&mut self, of: &I, core: &mut CoreView<'_, '_>) -> Result<(), String> {
        match of {
            I::Object(to, from, index) => {
                let object = match &self.slots[*from] {
                    CoreValue::Objects(all) => all.get(*index).cloned(),
                    _ => None,
                };
                let object = object.ok_or_else(|| format!("object {index} is not held"))?;
                self.slots[*to] = CoreValue::View(object);
            }
            I::Allocate(to, shape, number, bytes) => {
                let whole = MemoryView::whole(Base::Own(0), shape, *number);
                let n = usize::try_from(whole.n_elements())
                    .unwrap_or(usize::MAX)
                    .saturating_mul(number.bytes());
                let block = allocate(&mut self.own, n)?;
                if let Some(bytes) = bytes {
                    self.own[block].copy_from_slice(bytes);
                }
                self.slots[*to] = CoreValue::View(MemoryView {
                    base: Base::Own(block),
                    ..whole
                });
            }
            I::View(to, from, terms, is_cast) => {
                let [offsets, sizes, strides] = [
                    self.terms(&terms[0])?,
                    self.terms(&terms[1])?,
                    self.terms(&terms[2])?,
                ];
                let view = sub_view(
                    self.slots[*from].view()?,
                    &offsets,
                    (sizes, &strides),
                    *is_cast,
                )?;
                self.slots[*to] = CoreValue::View(view);
            }
            I::Reshape(to, from, shape) => {
                let view = self.slots[*from].view()?;
                let new = MemoryView::whole(view.base, shape, view.number);
                if !view.is_dense() || new.n_elements() != view.n_elements() {
                    return Err("a view whose elements do not lie in a row is reshaped".to_owned());
                }
                self.slots[*to] = CoreValue::View(MemoryView {
                    offset: view.offset,
                    ..new
                });
            }
            I::Dimension(to, from, index) => {
                let index = usize::try_from(self.slots[*index].integer()?).unwrap_or(usize::MAX);
                let size = self.slots[*from].view()?.sizes.get(index).copied();
                self.slots[*to] = CoreValue::Integer(size.ok_or("no such dimension")?);
            }
            _ if self.vector(of)? || self.tensor(of, core)? => {}
            _ => self.transfer(of, core)?,
        }
        Ok(())
    }

    fn transfer(&mut self, of: &I, core: &mut CoreView<'_, '_>) -> Result<(), String> {
        let indices = match of {
            I::Load(_, _, at)
            | I::Store(_, _, at)
            | I::LoadVector(_, _, at, _)
            | I::StoreVector(_, _, at) => self.terms(at)?,
            _ => Vec::new(),
        };
        let mut memories = Memories {
            core,
            own: &mut self.own,
        };
        match of {
            I::Load(to, from, _) => {
                let view = self.slots[*from].view()?;
                self.slots[*to] = memories.load(view, view.position(&indices)?)?;
            }
            I::Store(value, into, _) => {
                let view = self.slots[*into].view()?;
                memories.store(view, view.position(&indices)?, &self.slots[*value])?;
            }
            I::LoadVector(to, from, _, n) => {
                let row = row(self.slots[*from].view()?, &indices, *n)?;
                self.slots[*to] = CoreValue::Vector(memories.load_all(&row)?);
            }
            I::StoreVector(value, into, _) => {
                let CoreValue::Vector(values) = &self.slots[*value] else {
                    return Err("a vector is needed".to_owned());
                };
                let row = row(self.slots[*into].view()?, &indices, values.len())?;
                memories.store_all(&row, values)?;
            }
            I::CopyView(from, into) => {
                let (from, into) = (self.slots[*from].view()?, self.slots[*into].view()?);
                if from.sizes != into.sizes {
                    return Err("a copy between memrefs of different sizes".to_owned());
                }
                let values = memories.load_all(from)?;
                memories.store_all(into, &values)?;
            }
            I::Call(kernel, from) => {
                let arguments: Vec<&CoreValue> =
                    from.iter().map(|&slot| &self.slots[slot]).collect();
                (kernel.run)(&arguments, &mut memories)
                    .map_err(|problem| format!("kernel {}: {problem}", kernel.summary))?;
            }
            I::CallTile(function, from) => {
                let arguments: Vec<&CoreValue> =
                    from.iter().map(|&slot| &self.slots[slot]).collect();
                function.run(&arguments, &mut memories)?;
            }
            _ => return Err("an instruction that does nothing".to_owned()),
        }
        Ok(())
    }
}
