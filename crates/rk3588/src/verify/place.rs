//! Effects of tasks on each other and on the slots.

use super::{Rk3588Violation, Rule, TaskViolation, VerifiedProgram};
use crate::machine::Machine;
use crate::matmul::{Task, weight_banks};
use crate::profile::Profile;
use crate::program::Program;
use crate::timing::TaskCost;
use std::ops::Range;

impl Task {
    /// The bytes of A that it reads, from its address.
    pub(crate) fn a_range(&self) -> Range<u64> {
        let start = u64::from(self.a);
        start..start + u64::from(self.m) * self.kind.row_bytes(self.k)
    }

    /// The bytes of B that it reads.
    pub(crate) fn b_range(&self) -> Range<u64> {
        let start = u64::from(self.b);
        start..start + u64::from(self.n) * self.kind.row_bytes(self.k)
    }

    /// The bytes of C that it writes.
    pub fn c_range(&self) -> Range<u64> {
        let start = u64::from(self.c);
        let elements = u64::from(self.m) * u64::from(self.n);
        start..start + elements * u64::from(self.kind.output_bytes())
    }
}

/// Whether a task's reuse bits agree with the tiles that the task before it left.
pub(crate) fn reuse(before: Option<&Task>, task: &Task, machine: &Machine) -> Vec<TaskViolation> {
    let mut found = Vec::new();
    let same = before.filter(|before| before.banks == task.banks && before.k == task.k);
    let data = same.is_some_and(|b| b.a == task.a && b.m == task.m && b.kind == task.kind);
    if task.data_reuse && !data {
        found.push(TaskViolation {
            rule: Rule::StaleReuse,
            detail:
                "DATA_REUSE is set, but the task before read another A or had another division."
                    .into(),
        });
    }
    let needed = weight_banks(task.n, task.k, task.kind, machine);
    let weight = same.is_some_and(|b| b.b == task.b && b.n == task.n && b.kind == task.kind);
    if task.weight_reuse && !(weight && needed <= task.banks.weight) {
        let detail = match weight {
            true => format!(
                "WEIGHT_REUSE is set, but all kernels take {needed} banks and have {}.",
                task.banks.weight
            ),
            false => {
                "WEIGHT_REUSE is set, but the task before read another B or had another division."
                    .into()
            }
        };
        found.push(TaskViolation {
            rule: Rule::StaleReuse,
            detail,
        });
    }
    found
}

/// Slots, overlaps, jobs.
pub(super) fn program(
    program: &Program,
    verified: &VerifiedProgram,
    machine: &Machine,
) -> Vec<Rk3588Violation> {
    let mut found = jobs(program, verified, machine);
    found.extend(outside(verified));
    if found.is_empty() {
        found.extend(output(program, verified));
    }
    found
}

fn refusal(rule: Rule, place: Option<(usize, usize)>, detail: String) -> Rk3588Violation {
    Rk3588Violation {
        rule,
        place,
        detail,
    }
}

fn jobs(program: &Program, verified: &VerifiedProgram, machine: &Machine) -> Vec<Rk3588Violation> {
    let mut found = Vec::new();
    let slow = Profile::rocket_200();
    let rate = slow.core_bytes_per_ns();
    for (at, (job, tasks)) in program.jobs.iter().zip(&verified.jobs).enumerate() {
        if tasks.is_empty() {
            let detail = format!("Job {at} has no task.");
            found.push(refusal(Rule::Workers, None, detail));
        }
        if job.worker >= program.tiling.workers {
            let (worker, workers) = (job.worker, program.tiling.workers);
            let detail = format!("Job {at} is for worker {worker} of {workers}.");
            found.push(refusal(Rule::Workers, None, detail));
        }
        let costs = tasks.iter().map(|t| TaskCost::of(t, machine, &slow));
        let ns: f64 = costs.map(|cost| cost.ns(rate)).sum();
        if ns > machine.job_timeout_ns as f64 {
            let detail = format!("Job {at} takes {:.0} ms (modelled).", ns / 1e6);
            found.push(refusal(Rule::TooLong, None, detail));
        }
    }
    found
}

fn outside(verified: &VerifiedProgram) -> Vec<Rk3588Violation> {
    let grid = &verified.grid;
    let mut found = Vec::new();
    for (job, tasks) in verified.jobs.iter().enumerate() {
        for (at, task) in tasks.iter().enumerate() {
            let ranges = [
                ("a", task.a_range(), grid.a_bytes()),
                ("b", task.b_range(), grid.b_bytes()),
                ("c", task.c_range(), grid.c_bytes()),
            ];
            for (slot, range, bytes) in ranges {
                if range.end > bytes {
                    let detail = format!(
                        "It reaches bytes {} .. {} of `{slot}`, which has {bytes}.",
                        range.start, range.end
                    );
                    found.push(refusal(Rule::OutsideSlot, Some((job, at)), detail));
                }
            }
        }
    }
    found
}

/// Each byte of the output is written once, and workers write apart.
fn output(program: &Program, verified: &VerifiedProgram) -> Vec<Rk3588Violation> {
    let mut written: Vec<(Range<u64>, u32, (usize, usize))> = Vec::new();
    for (job, tasks) in verified.jobs.iter().enumerate() {
        let worker = program.jobs[job].worker;
        let tasks = tasks.iter().enumerate();
        written.extend(tasks.map(|(at, task)| (task.c_range(), worker, (job, at))));
    }
    written.sort_by_key(|(range, ..)| range.start);
    let mut found = Vec::new();
    let (mut end, mut last, mut seen) = (0, None, Vec::new());
    for (range, worker, place) in &written {
        if range.start < end {
            let detail = format!("Byte {} of `c` was written before.", range.start);
            found.push(refusal(Rule::Overlap, Some(*place), detail));
        } else if range.start > end {
            let detail = format!("Nobody writes bytes {end} .. {} of `c`.", range.start);
            found.push(refusal(Rule::Uncovered, None, detail));
        }
        if last != Some(*worker) {
            if seen.contains(worker) {
                let detail = format!("Worker {worker} writes on both sides of another's bytes.");
                found.push(refusal(Rule::Interleaved, Some(*place), detail));
            }
            seen.push(*worker);
            last = Some(*worker);
        }
        end = end.max(range.end);
    }
    if end < verified.grid.c_bytes() {
        let bytes = verified.grid.c_bytes();
        let detail = format!("Nobody writes bytes {end} .. {bytes} of `c`.");
        found.push(refusal(Rule::Uncovered, None, detail));
    }
    found
}
