//! Jobs on cores in time, with memory shared.
//!
//! A worker (an open descriptor) is one entity of the kernel's scheduler. While a job of it is
//! unfinished its next ones go to the same core, in order (Linux drm_sched: `drm_sched_entity_select_rq`
//! keeps the queue of a busy entity). Otherwise the core with the least waiting is taken.

use super::TaskCost;
use crate::machine::Machine;
use crate::profile::Profile;
use std::collections::{HashMap, VecDeque};

/// Number of a job in a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// When a job ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// The core.
    pub core: usize,
    /// When it began, in nanoseconds.
    pub start_ns: f64,
    /// When it ended.
    pub end_ns: f64,
    /// Whether the kernel reset it.
    pub timed_out: bool,
}

#[derive(Debug)]
struct ScheduleJob {
    id: JobId,
    worker: u64,
    ready_ns: f64,
    tasks: VecDeque<TaskCost>,
    /// Whether it never ends by itself.
    hangs: bool,
}

#[derive(Debug)]
struct Running {
    job: ScheduleJob,
    start_ns: f64,
    /// The rest of the current task.
    left: TaskCost,
}

#[derive(Debug, Default)]
struct Core {
    queue: VecDeque<ScheduleJob>,
    running: Option<Running>,
}

/// The cores of one device and their jobs.
#[derive(Debug)]
pub struct Schedule {
    cores: Vec<Core>,
    now_ns: f64,
    core_bytes_per_ns: f64,
    ddr_bytes_per_ns: f64,
    timeout_ns: f64,
    next: u64,
    ended: HashMap<JobId, Ran>,
}

/// Remainders of nanoseconds and bytes below this count as zero: they are sums of many parts.
const EPSILON: f64 = 1e-3;

impl Schedule {
    /// An idle device at time zero.
    pub fn new(machine: &Machine, profile: &Profile) -> Schedule {
        Schedule {
            cores: (0..machine.n_cores).map(|_| Core::default()).collect(),
            now_ns: 0.0,
            core_bytes_per_ns: profile.core_bytes_per_ns(),
            ddr_bytes_per_ns: profile.ddr_bytes_per_s / 1e9,
            timeout_ns: machine.job_timeout_ns as f64,
            next: 0,
            ended: HashMap::new(),
        }
    }

    /// A job of a worker that may begin at a time. A job that hangs is reset after the timeout.
    pub fn submit(&mut self, worker: u64, ready_ns: f64, tasks: &[TaskCost], hangs: bool) -> JobId {
        let id = JobId(self.next);
        self.next += 1;
        let busy = (self.cores.iter()).position(|core| {
            let mut jobs = core.running.iter().map(|r| &r.job).chain(&core.queue);
            jobs.any(|job| job.worker == worker)
        });
        let waiting = |core: &Core| core.queue.len() + usize::from(core.running.is_some());
        let least = (0..self.cores.len()).min_by_key(|&core| waiting(&self.cores[core]));
        let core = busy.or(least).unwrap_or(0);
        self.cores[core].queue.push_back(ScheduleJob {
            id,
            worker,
            ready_ns,
            tasks: tasks.iter().copied().collect(),
            hangs,
        });
        id
    }

    /// Runs until the job has ended and gives the time of that. `None` for a job that was not submitted here or was
    /// asked for before.
    pub fn finish(&mut self, id: JobId) -> Option<Ran> {
        let ran = self.run_until(id, f64::INFINITY);
        self.ended.remove(&id);
        ran
    }

    /// Runs until the job has ended, at most to a time. `None` where it has not by then.
    pub fn run_until(&mut self, id: JobId, limit_ns: f64) -> Option<Ran> {
        while !self.ended.contains_key(&id) && self.now_ns < limit_ns && self.step(limit_ns) {}
        self.ended.get(&id).copied()
    }

    /// Runs all events up to a time.
    pub fn advance(&mut self, until_ns: f64) {
        while self.now_ns < until_ns && self.step(until_ns) {}
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Starts every job that can start, then moves to the next event, at most to `limit_ns`. False where no event is
    /// left.
    fn step(&mut self, limit_ns: f64) -> bool {
        let mut next_start = f64::INFINITY;
        for core in &mut self.cores {
            if core.running.is_some() {
                continue;
            }
            let Some(first) = core.queue.front() else {
                continue;
            };
            if first.ready_ns > self.now_ns + EPSILON {
                next_start = next_start.min(first.ready_ns);
                continue;
            }
            if let Some(mut job) = core.queue.pop_front() {
                let left = job.tasks.pop_front().unwrap_or_default();
                let start_ns = self.now_ns;
                core.running = Some(Running {
                    job,
                    start_ns,
                    left,
                });
            }
        }
        let rate = self.rate();
        let running = self.cores.iter().filter_map(|core| core.running.as_ref());
        let end = running
            .map(|r| r.next_event(rate, self.timeout_ns - (self.now_ns - r.start_ns)))
            .fold(f64::INFINITY, f64::min);
        // Steps, not times, are compared: late times are too coarse for the rest of a task.
        let step = end
            .min(next_start - self.now_ns)
            .min(limit_ns - self.now_ns);
        if !step.is_finite() {
            return false;
        }
        self.pass(step, rate);
        self.now_ns += step;
        self.retire();
        true
    }

    /// Share of each core that moves data, in bytes a nanosecond.
    fn rate(&self) -> f64 {
        let running = self.cores.iter().filter_map(|core| core.running.as_ref());
        let active = running.filter(|r| r.left.fixed_ns <= EPSILON && r.left.dma_bytes > EPSILON);
        let share = self.ddr_bytes_per_ns / (active.count().max(1) as f64);
        share.min(self.core_bytes_per_ns)
    }

    fn pass(&mut self, ns: f64, rate: f64) {
        for running in self.cores.iter_mut().filter_map(|c| c.running.as_mut()) {
            let left = &mut running.left;
            if left.fixed_ns > EPSILON {
                left.fixed_ns -= ns;
            } else {
                left.mac_ns -= ns;
                left.dma_bytes -= ns * rate;
            }
        }
    }

    fn retire(&mut self) {
        for (at, core) in self.cores.iter_mut().enumerate() {
            let Some(running) = &mut core.running else {
                continue;
            };
            let late = self.now_ns - running.start_ns >= self.timeout_ns - EPSILON;
            let mut ended = late;
            if running.done() && !running.job.hangs {
                match running.job.tasks.pop_front() {
                    Some(next) => running.left = next,
                    None => ended = true,
                }
            }
            if ended {
                let ran = Ran {
                    core: at,
                    start_ns: running.start_ns,
                    end_ns: self.now_ns,
                    timed_out: late,
                };
                self.ended.insert(running.job.id, ran);
                core.running = None;
            }
        }
    }
}

impl Running {
    fn done(&self) -> bool {
        let left = &self.left;
        left.fixed_ns <= EPSILON && left.mac_ns <= EPSILON && left.dma_bytes <= EPSILON
    }

    /// Time to the end of the current phase, or to the reset.
    fn next_event(&self, rate: f64, to_reset_ns: f64) -> f64 {
        let left = &self.left;
        let phase = match (self.done(), left.fixed_ns > EPSILON) {
            (true, _) if self.job.hangs => f64::INFINITY,
            (true, _) => 0.0,
            (_, true) => left.fixed_ns,
            // The shares change when one of the two ends.
            _ => {
                let ends = [left.mac_ns, left.dma_bytes / rate];
                let ahead = ends.into_iter().filter(|&ns| ns > EPSILON);
                ahead.fold(f64::INFINITY, f64::min)
            }
        };
        phase.min(to_reset_ns.max(0.0))
    }
}
