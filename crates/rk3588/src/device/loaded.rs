//! Programs that a device holds: verified, and ready to be bound to addresses.

use super::buffer::{ObjectPart, PartRange};
use crate::command::Command;
use crate::driver::{Bo, Driver, DriverError};
use crate::program::{self, Program};
use crate::rocket::{JobArgs, TaskArgs};
use crate::verify::VerifiedProgram;
use millrace_npu::held::Lease;
use millrace_npu::{LoadedProgram, Slot};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A task's words with the places of addresses.
struct Words {
    words: Vec<u64>,
    /// Index of a word, the slot whose address it holds, and the offset in the slot.
    patches: Vec<(usize, usize, u64)>,
}

/// A job of a loaded program.
pub(super) struct LoadedJob {
    pub(super) worker: usize,
    tasks: Vec<Words>,
    /// Bytes of slot `c` that each task writes.
    pub(super) writes: Vec<Range<u64>>,
}

/// A loaded program.
pub(super) struct BoardProgram {
    pub(super) owner: u64,
    pub(super) name: String,
    pub(super) slots: Vec<Slot>,
    pub(super) jobs: Vec<LoadedJob>,
    /// For each slot the bytes that each worker uses.
    pub(super) parts: [Vec<PartRange>; 3],
    /// Commands by the addresses they were bound to.
    bound: Mutex<HashMap<Vec<u32>, Arc<Commands>>>,
    _lease: Lease,
}

/// Commands in objects of their workers.
pub(super) struct Commands {
    by_worker: BTreeMap<usize, Bo>,
    /// Address and number of words of each task, by job.
    tasks: Vec<Vec<TaskArgs>>,
}

/// A program with the addresses of its buffers.
pub(super) struct ProgramBinding {
    pub(super) commands: Arc<Commands>,
    /// The jobs to submit, each with its worker.
    pub(super) jobs: Vec<(usize, JobArgs)>,
}

/// Sets of commands that one program keeps; a model binds one for each of its layers.
const MAX_BOUND: usize = 128;

impl BoardProgram {
    pub(super) fn new(
        owner: u64,
        program: &Program,
        slots: Vec<Slot>,
        verified: &VerifiedProgram,
        lease: Lease,
    ) -> BoardProgram {
        let mut jobs = Vec::new();
        for (job, tasks) in program.jobs.iter().zip(&verified.jobs) {
            jobs.push(LoadedJob {
                worker: job.worker as usize,
                tasks: job.tasks.iter().map(|task| words(task)).collect(),
                writes: tasks.iter().map(|task| task.c_range()).collect(),
            });
        }
        let grid = &verified.grid;
        let sizes = [grid.a_bytes(), grid.b_bytes(), grid.c_bytes()];
        BoardProgram {
            owner,
            name: program.name.clone(),
            slots,
            jobs,
            parts: parts(program, verified, sizes),
            bound: Mutex::default(),
            _lease: lease,
        }
    }

    /// The commands with the addresses of those parts, and the jobs to submit, by worker.
    pub(super) fn bind(
        &self,
        driver: &Driver,
        parts: &[Arc<Vec<ObjectPart>>; 3],
    ) -> Result<ProgramBinding, DriverError> {
        let addresses = parts.iter().flat_map(|parts| parts.iter());
        let key: Vec<u32> = addresses.map(|part| part.bo.address()).collect();
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let commands = match bound.get(&key) {
            Some(commands) => commands.clone(),
            None => {
                if bound.len() >= MAX_BOUND {
                    bound.clear();
                }
                let commands = Arc::new(self.write(driver, parts)?);
                bound.insert(key, commands.clone());
                commands
            }
        };
        let jobs = self.jobs.iter().zip(&commands.tasks);
        let args = jobs.map(|(job, tasks)| {
            let of = |slot: usize| {
                let mine = parts[slot]
                    .iter()
                    .filter(|part| part.at.worker == job.worker);
                mine.map(|part| part.bo.handle())
            };
            let regcmd = commands.by_worker.get(&job.worker).map(Bo::handle);
            let args = JobArgs {
                tasks: tasks.clone(),
                in_handles: of(program::A).chain(of(program::B)).chain(regcmd).collect(),
                out_handles: of(program::C).collect(),
            };
            (job.worker, args)
        });
        let jobs = args.collect();
        Ok(ProgramBinding { commands, jobs })
    }

    /// Writes the commands into objects.
    fn write(
        &self,
        driver: &Driver,
        parts: &[Arc<Vec<ObjectPart>>; 3],
    ) -> Result<Commands, DriverError> {
        let address = |worker: usize, slot: usize, offset: u64| {
            let mine = parts[slot].iter().find(|part| part.at.worker == worker);
            // Parts hold every byte that the worker's tasks use.
            mine.map_or(0, |part| {
                u64::from(part.bo.address()) + (offset - part.at.range.start)
            })
        };
        let mut content: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut tasks = Vec::new();
        for job in &self.jobs {
            let bytes = content.entry(job.worker).or_default();
            let mut args = Vec::new();
            for task in &job.tasks {
                // Tasks begin at multiples of 64 bytes, as in Mesa.
                bytes.resize(bytes.len().next_multiple_of(64), 0);
                args.push(TaskArgs {
                    regcmd: bytes.len() as u32,
                    regcmd_count: task.words.len() as u32,
                });
                let mut words = task.words.clone();
                for &(at, slot, offset) in &task.patches {
                    let value = address(job.worker, slot, offset);
                    words[at] = words[at] & !(0xffff_ffff << 16) | (value & 0xffff_ffff) << 16;
                }
                bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
            tasks.push(args);
        }
        let mut by_worker = BTreeMap::new();
        for (worker, bytes) in content {
            let bo = Bo::create(driver.node(worker), bytes.len() as u64)?;
            bo.touch(|memory| memory[..bytes.len()].copy_from_slice(&bytes))?;
            by_worker.insert(worker, bo);
        }
        for (job, tasks) in self.jobs.iter().zip(&mut tasks) {
            let base = by_worker.get(&job.worker).map_or(0, Bo::address);
            tasks.iter_mut().for_each(|task| task.regcmd += base);
        }
        Ok(Commands { by_worker, tasks })
    }
}

fn words(commands: &[Command]) -> Words {
    let mut patches = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        if let Command::Write { reg, value } = command
            && let Some(slot) = program::slot_of(*reg)
        {
            patches.push((at, slot, u64::from(*value)));
        }
    }
    Words {
        words: commands.iter().map(|command| command.encode()).collect(),
        patches,
    }
}

/// The bytes of each slot that each worker uses. Unused bytes go to the first.
fn parts(program: &Program, verified: &VerifiedProgram, sizes: [u64; 3]) -> [Vec<PartRange>; 3] {
    let mut used: [BTreeMap<usize, Range<u64>>; 3] = Default::default();
    for (job, tasks) in program.jobs.iter().zip(&verified.jobs) {
        for task in tasks {
            let ranges = [task.a_range(), task.b_range(), task.c_range()];
            for (used, range) in used.iter_mut().zip(ranges) {
                let hull = used.entry(job.worker as usize).or_insert(range.clone());
                *hull = hull.start.min(range.start)..hull.end.max(range.end);
            }
        }
    }
    let mut out: [Vec<PartRange>; 3] = Default::default();
    for ((used, out), size) in used.into_iter().zip(&mut out).zip(sizes) {
        let mut parts: Vec<PartRange> = used
            .into_iter()
            .map(|(worker, range)| PartRange { worker, range })
            .collect();
        cover(&mut parts, size);
        *out = parts;
    }
    out
}

/// Widens parts until they cover the buffer.
fn cover(parts: &mut [PartRange], size: u64) {
    parts.sort_by_key(|part| (part.range.start, part.worker));
    let mut end = 0;
    for part in parts.iter_mut() {
        part.range.start = part.range.start.min(end);
        end = end.max(part.range.end);
    }
    if let Some(last) = parts.iter_mut().max_by_key(|part| part.range.end) {
        last.range.end = last.range.end.max(size);
    }
}

impl LoadedProgram for BoardProgram {
    fn name(&self) -> &str {
        &self.name
    }

    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
