//! The verifier: a device refuses programs that fail these checks, before anything runs.
//!
//! [`task`] reads a task's commands back into a product and checks it; the virtual board uses the same function on the
//! commands that it fetches. [`program`] checks all tasks, their use of the slots, and their effect on each other. An
//! accepted program runs without a fault, a hang or a stale tile.

mod place;
mod rule;
mod task;

pub(crate) use place::reuse;
pub use rule::{Effect, Rk3588Violation, Rule};
pub use task::{TaskViolation, task};

use crate::machine::Machine;
use crate::matmul::Task;
use crate::program::Program;
use crate::tiling::Grid;

/// Most refusals that are listed; more would add nothing.
const MAX_REFUSALS: usize = 20;

/// A program that was accepted, read back.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedProgram {
    /// Its tiles.
    pub grid: Grid,
    /// The tasks of each job.
    pub jobs: Vec<Vec<Task>>,
}

/// Checks a program.
///
/// # Errors
/// Every refusal, at most 20.
pub fn program(
    program: &Program,
    machine: &Machine,
) -> Result<VerifiedProgram, Vec<Rk3588Violation>> {
    let mut refusals = Vec::new();
    let grid = match program.grid(machine) {
        Ok(grid) => grid,
        Err(error) => {
            return Err(vec![Rk3588Violation {
                rule: Rule::Head,
                place: None,
                detail: error.to_string(),
            }]);
        }
    };
    let mut jobs = Vec::new();
    for job in 0..program.jobs.len() {
        jobs.push(job_tasks(program, job, machine, &mut refusals));
        if refusals.len() >= MAX_REFUSALS {
            refusals.truncate(MAX_REFUSALS);
            return Err(refusals);
        }
    }
    if refusals.is_empty() {
        let verified = VerifiedProgram { grid, jobs };
        refusals = place::program(program, &verified, machine);
        if refusals.is_empty() {
            return Ok(verified);
        }
    }
    refusals.truncate(MAX_REFUSALS);
    Err(refusals)
}

/// The tasks of a job that can be read, up to the limit of refusals.
fn job_tasks(
    program: &Program,
    job: usize,
    machine: &Machine,
    refusals: &mut Vec<Rk3588Violation>,
) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    // The CBUF's state after an unreadable task is no fault of the next task.
    let mut unreadable = false;
    for (at, commands) in program.jobs[job].tasks.iter().enumerate() {
        let found = task(commands, machine);
        let mut broken = match &found {
            Ok(task) if !unreadable => reuse(tasks.last(), task, machine),
            Ok(_) => Vec::new(),
            Err(broken) => broken.clone(),
        };
        unreadable = found.is_err();
        if let Ok(task) = found {
            if task.kind != program.shape.kind {
                broken.push(TaskViolation {
                    rule: Rule::Precision,
                    detail: format!(
                        "The task computes {}, the program {}.",
                        task.kind, program.shape.kind
                    ),
                });
            }
            tasks.push(task);
        }
        refusals.extend(broken.into_iter().map(|broken| Rk3588Violation {
            rule: broken.rule,
            place: Some((job, at)),
            detail: broken.detail,
        }));
        if refusals.len() >= MAX_REFUSALS {
            break;
        }
    }
    tasks
}
