//! A job on its way to a core. Its course is known before it starts, since it does not depend on data.

use super::memory::{Bo, Fence, Space};
use super::{Inner, TaskAt, compute};
use crate::command;
use crate::matmul::Task;
use crate::rocket::{JobArgs, TaskArgs};
use crate::timing::TaskCost;
use crate::verify::{self, Effect};
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// A task with the memory it works on.
pub(super) struct TaskStep {
    task: Task,
    a: Arc<Bo>,
    b: Arc<Bo>,
    c: Arc<Bo>,
    ends: Ends,
    /// A word of the output and bits to flip.
    wrong: Option<(u64, u32)>,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    /// It leaves wrong numbers.
    Garbage,
    /// It leaves its output unchanged.
    Unwritten,
}

/// A job that is ready.
pub(super) struct BoardJob {
    pub(super) steps: Vec<TaskStep>,
    pub(super) costs: Vec<TaskCost>,
    /// Whether it hangs after those steps.
    pub(super) hangs: bool,
    /// Its faults, as the log reports them.
    pub(super) problems: Vec<String>,
    pub(super) out: Vec<Arc<Bo>>,
}

/// Why the kernel takes no such job. SUBMIT does not say.
pub(super) struct JobRejection(pub(super) String);

/// Looks a job up in the address space and determines its course.
pub(super) fn prepare(
    board: &Inner,
    space: &Space,
    job: &JobArgs,
) -> Result<BoardJob, JobRejection> {
    let objects = |handles: &[u32]| -> Result<Vec<Arc<Bo>>, JobRejection> {
        let object = |handle: &u32| {
            let found = space.get(*handle).cloned();
            found.ok_or_else(|| JobRejection(format!("no buffer object has handle {handle}")))
        };
        handles.iter().map(object).collect()
    };
    let out = objects(&job.out_handles)?;
    let read = objects(&job.in_handles)?;
    if job.tasks.is_empty() || job.tasks.iter().any(|task| task.regcmd_count == 0) {
        return Err(JobRejection("a job needs tasks, a task commands".into()));
    }
    let mut work = BoardJob {
        steps: Vec::new(),
        costs: Vec::new(),
        hangs: false,
        problems: Vec::new(),
        out,
    };
    if let Some(bo) = work.out.iter().chain(&read).find(|bo| bo.host_holds()) {
        let problem = format!("the object at {:#x} is used before FINI_BO", bo.iova);
        work.problems.push(problem);
        work.hangs = true;
        return Ok(work);
    }
    let mut before: Option<Task> = None;
    for (at, args) in job.tasks.iter().enumerate() {
        match work.add_task(board, space, (at, args), before.as_ref()) {
            Ok(task) => before = Some(task),
            Err(stop) => {
                let (Stop::Hang(problem) | Stop::Skip(problem)) = &stop;
                work.problems.push(format!("task {at}: {problem}"));
                if let Stop::Hang(_) = stop {
                    work.hangs = true;
                    break;
                }
                before = None;
            }
        }
    }
    Ok(work)
}

/// Why a task does nothing useful.
enum Stop {
    Hang(String),
    /// It ends; its output is not that of any product.
    Skip(String),
}

impl Stop {
    fn of(broken: &[verify::TaskViolation]) -> Stop {
        let lines = broken.iter().map(|b| {
            let (code, states) = (b.rule.code(), b.rule.states());
            format!("{code}: {states} {}", b.detail)
        });
        let text = lines.collect::<Vec<_>>().join("; ");
        let hangs = broken.iter().any(|b| b.rule.effect() == Effect::Hang);
        match hangs {
            true => Stop::Hang(text),
            false => Stop::Skip(text),
        }
    }
}

/// Fetches a task's commands from memory and decodes them.
fn fetch(space: &Space, args: &TaskArgs) -> Result<Vec<command::Command>, Stop> {
    let start = u64::from(args.regcmd);
    if !start.is_multiple_of(16) {
        let problem = format!("commands at {start:#x}; they must be at a multiple of 16");
        return Err(Stop::Hang(problem));
    }
    let range = start..start + u64::from(args.regcmd_count) * 8;
    let bo = space.find(&range).ok_or_else(|| {
        let problem = format!("IOMMU fault fetching commands at {start:#x}");
        Stop::Hang(problem)
    })?;
    let bytes = bo.read(range);
    let words: Vec<u64> = (bytes.as_chunks::<8>().0.iter())
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    command::decode(&words).map_err(|error| Stop::Hang(error.to_string()))
}

impl BoardJob {
    /// Reads a task back from its commands and adds it, with its faults in relation to the task before.
    fn add_task(
        &mut self,
        board: &Inner,
        space: &Space,
        (at, args): (usize, &TaskArgs),
        before: Option<&Task>,
    ) -> Result<Task, Stop> {
        let machine = &board.options.machine;
        let commands = fetch(space, args)?;
        let task = verify::task(&commands, machine).map_err(|broken| Stop::of(&broken))?;
        let broken = verify::reuse(before, &task, machine);
        let problems = broken.iter().map(|b| format!("task {at}: {}", b.detail));
        self.problems.extend(problems);
        let ends = match broken.is_empty() {
            true => Ends::Well,
            false => Ends::Garbage,
        };
        self.steps.push(TaskStep::new(space, task, ends)?);
        self.costs
            .push(TaskCost::of(&task, machine, &board.options.profile));
        Ok(task)
    }

    /// Lets the board's plan of faults act on the job of that number.
    pub(super) fn inject(&mut self, number: u64, faults: &super::Faults) {
        for (at, step) in self.steps.iter_mut().enumerate() {
            let here = TaskAt {
                job: number,
                task: at,
            };
            if faults.dropped.contains(&here) {
                step.ends = Ends::Unwritten;
            }
            let wrong = faults.wrong.iter().find(|(place, ..)| *place == here);
            step.wrong = wrong.map(|&(_, word, bits)| (word, bits));
        }
        let delays = faults.delayed.iter().filter(|(job, _)| *job == number);
        let delay: u64 = delays.map(|(_, ns)| ns).sum();
        if let Some(first) = self.costs.first_mut() {
            first.fixed_ns += delay as f64;
        }
        if faults.hung.contains(&number) {
            self.steps.clear();
            self.costs.clear();
            self.hangs = true;
        }
    }

    /// Leaves out the tasks beyond the kernel's timeout, timed alone on the device.
    pub(super) fn cut(&mut self, timeout_ns: f64, bytes_per_ns: f64) {
        let mut ns = 0.0;
        let ends = self.costs.iter().position(|cost| {
            ns += cost.ns(bytes_per_ns);
            ns >= timeout_ns
        });
        if let Some(at) = ends {
            self.steps.truncate(at);
        }
    }
}

/// Computes a job's tasks in order, then signals.
pub(super) fn run(steps: &[TaskStep], fence: &Fence) {
    let _end = End(fence);
    steps.iter().for_each(TaskStep::run);
}

/// Signals the end of a job in any case: nobody waits for ever.
struct End<'f>(&'f Fence);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set_computed();
    }
}

impl TaskStep {
    /// A task with its memory.
    fn new(space: &Space, task: Task, ends: Ends) -> Result<TaskStep, Stop> {
        let object = |range: Range<u64>| {
            let found = space.find(&range).cloned();
            found.ok_or_else(|| {
                Stop::Hang(format!(
                    "IOMMU fault: bytes {:#x} .. {:#x} are in no buffer object",
                    range.start, range.end
                ))
            })
        };
        Ok(TaskStep {
            a: object(task.a_range())?,
            b: object(task.b_range())?,
            c: object(task.c_range())?,
            task,
            ends,
            wrong: None,
        })
    }

    fn run(&self) {
        if self.ends == Ends::Unwritten {
            return;
        }
        // Copied, so that one object may hold both operands and the result.
        let a = self.a.read(self.task.a_range());
        let mut c = {
            let memory = self.b.memory.read().unwrap_or_else(PoisonError::into_inner);
            let b = &memory[self.b.within(self.task.b_range())];
            compute::product(&self.task, &a, b)
        };
        if self.ends == Ends::Garbage {
            c.iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        if let Some((word, bits)) = self.wrong {
            let at = (word as usize % (c.len() / 4)) * 4;
            for (byte, flip) in c[at..at + 4].iter_mut().zip(bits.to_le_bytes()) {
                *byte ^= flip;
            }
        }
        let mut memory = self
            .c
            .memory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        memory[self.c.within(self.task.c_range())].copy_from_slice(&c);
    }
}
