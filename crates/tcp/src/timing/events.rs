//! The clock: when each command runs.

use super::cost::{CommandWork, Cost, Queue};
use super::hazards::{Memory, Open, Touch};
use super::{Dispatch, Timing};
use crate::{Machine, Profile};
use std::collections::{BTreeMap, VecDeque};

/// When a command ran.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandSpan {
    /// The program of the sequence.
    pub program: usize,
    /// Its command.
    pub command: usize,
    /// The queue.
    pub queue: Queue,
    /// Start.
    pub start_ns: f64,
    /// End.
    pub end_ns: f64,
}

/// A command of the sequence.
struct CommandTask<'t> {
    program: usize,
    command: usize,
    cost: &'t Cost,
    /// Commands it waits for that have not ended.
    n_waits: usize,
    /// Commands that wait for it.
    followers: Vec<usize>,
}

/// A command under way.
struct Running {
    task: usize,
    start_ns: f64,
    /// Rest of its start-up; its work follows.
    latency_ns: f64,
    left: CommandWork,
}

/// Time below which a command counts as finished.
const EPSILON_NS: f64 = 1e-6;

pub(super) fn run(
    programs: &[Dispatch<'_>],
    machine: &Machine,
    profile: &Profile,
) -> (Timing, Vec<CommandSpan>) {
    let mut tasks = tasks(programs);
    let mut queues: BTreeMap<Queue, VecDeque<usize>> = BTreeMap::new();
    for (number, task) in tasks.iter().enumerate() {
        queues.entry(task.cost.queue).or_default().push_back(number);
    }
    let hbm_rate = machine.hbm_gb_per_s * profile.hbm_efficiency;
    let mut timing = Timing {
        ends_ns: vec![0.0; programs.len()],
        ..Timing::default()
    };
    let (mut now, mut engines) = (0f64, 0u64);
    let mut running: Vec<Running> = Vec::new();
    let mut spans = Vec::with_capacity(tasks.len());
    loop {
        start(&tasks, &mut queues, &mut running, &mut engines, now);
        if running.is_empty() {
            break;
        }
        let rates = rates(&running, hbm_rate);
        let left = running.iter().zip(&rates).map(|(r, &rate)| r.left_ns(rate));
        let step = left.fold(f64::INFINITY, f64::min);
        now += step;
        for (running, &rate) in running.iter_mut().zip(&rates) {
            running.advance(step, rate);
        }
        let mut ended = Vec::new();
        running.retain(|running| {
            let is_over = running.is_over();
            if is_over {
                ended.push((running.task, running.start_ns));
            }
            !is_over
        });
        for (number, start_ns) in ended {
            let followers = std::mem::take(&mut tasks[number].followers);
            for follower in followers {
                tasks[follower].n_waits -= 1;
            }
            let task = &tasks[number];
            engines &= !task.cost.engines;
            timing.ends_ns[task.program] = timing.ends_ns[task.program].max(now);
            account(&mut timing, task.cost, now - start_ns);
            spans.push(CommandSpan {
                program: task.program,
                command: task.command,
                queue: task.cost.queue,
                start_ns,
                end_ns: now,
            });
        }
    }
    timing.total_ns = now;
    (timing, spans)
}

fn account(timing: &mut Timing, cost: &Cost, ns: f64) {
    *timing.busy_ns.entry(cost.queue).or_default() += ns;
    timing.n_macs += cost.n_macs;
    if let CommandWork::Flow {
        bytes, hbm: true, ..
    } = cost.work
    {
        timing.hbm_bytes += bytes;
    }
}

/// Tasks with their dependencies. Waits go to earlier tasks alone, so one task can always run.
fn tasks<'t>(programs: &[Dispatch<'t>]) -> Vec<CommandTask<'t>> {
    let mut tasks: Vec<CommandTask<'t>> = Vec::new();
    let mut open = Open::default();
    for (number, dispatch) in programs.iter().enumerate() {
        for (at, command) in dispatch.program.commands.iter().enumerate() {
            let bound = command.accesses.iter().map(|touch| Touch {
                memory: match touch.memory {
                    Memory::Slot(slot) => Memory::Slot(dispatch.buffers[slot]),
                    memory => memory,
                },
                ..touch.clone()
            });
            let own = tasks.len();
            let waits = open.enter(own, number, bound);
            for &wait in &waits {
                tasks[wait].followers.push(own);
            }
            tasks.push(CommandTask {
                program: number,
                command: at,
                cost: &command.cost,
                n_waits: waits.len(),
                followers: Vec::new(),
            });
        }
    }
    tasks
}

/// Starts every task that can start.
fn start(
    tasks: &[CommandTask<'_>],
    queues: &mut BTreeMap<Queue, VecDeque<usize>>,
    running: &mut Vec<Running>,
    engines: &mut u64,
    now: f64,
) {
    for (queue, waiting) in queues {
        let is_busy = running.iter().any(|r| tasks[r.task].cost.queue == *queue);
        let Some(&first) = waiting.front() else {
            continue;
        };
        let task = &tasks[first];
        if is_busy || task.n_waits > 0 || *engines & task.cost.engines != 0 {
            continue;
        }
        waiting.pop_front();
        *engines |= task.cost.engines;
        running.push(Running {
            task: first,
            start_ns: now,
            latency_ns: task.cost.start_ns,
            left: task.cost.work,
        });
    }
}

/// Bytes a nanosecond of each. Those at HBM share its rate evenly; the part that one cannot take goes to the others.
fn rates(running: &[Running], hbm_rate: f64) -> Vec<f64> {
    let flow = |r: &Running| match r.left {
        CommandWork::Flow { limit, hbm, .. } if r.latency_ns <= EPSILON_NS => Some((limit, hbm)),
        _ => None,
    };
    let mut rates: Vec<f64> = running
        .iter()
        .map(|r| flow(r).map_or(0.0, |(limit, _)| limit))
        .collect();
    let mut sharing: Vec<(usize, f64)> = (running.iter().enumerate())
        .filter_map(|(i, r)| flow(r).filter(|(_, hbm)| *hbm).map(|(limit, _)| (i, limit)))
        .collect();
    sharing.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut left, mut n_left) = (hbm_rate, sharing.len());
    for (i, limit) in sharing {
        let share = (left / n_left as f64).min(limit);
        rates[i] = share;
        left -= share;
        n_left -= 1;
    }
    rates
}

impl Running {
    fn left_ns(&self, rate: f64) -> f64 {
        match (self.latency_ns > EPSILON_NS, self.left) {
            (true, _) => self.latency_ns,
            (false, CommandWork::Fixed { ns }) => ns.max(0.0),
            (false, CommandWork::Flow { bytes, .. }) => bytes.max(0.0) / rate.max(1e-9),
        }
    }

    fn advance(&mut self, step: f64, rate: f64) {
        if self.latency_ns > EPSILON_NS {
            self.latency_ns -= step;
            return;
        }
        match &mut self.left {
            CommandWork::Fixed { ns } => *ns -= step,
            CommandWork::Flow { bytes, .. } => *bytes -= step * rate,
        }
    }

    fn is_over(&self) -> bool {
        let left = match self.left {
            CommandWork::Fixed { ns } => ns,
            CommandWork::Flow { bytes, limit, .. } => bytes / limit,
        };
        self.latency_ns <= EPSILON_NS && left <= EPSILON_NS
    }
}
