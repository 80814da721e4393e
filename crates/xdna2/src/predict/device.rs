//! Programs on the array: every launch simulated once.

use super::work::{self, Rate};
use crate::lower::{LogicalLaunch, PlannedProgram};
use crate::program::{Launch, Program};
use crate::timing::{self, Bottleneck, CoreCounters, LaunchTiming, TimingError};
use crate::{Machine, Profile};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Times programs, and remembers launches: those of equal work are simulated once.
pub struct Timer<'a> {
    machine: &'a Machine,
    profile: &'a Profile,
    /// Launches without name and arguments, on which no time depends.
    known: Vec<(Launch, LaunchTiming)>,
}

/// A program of a pass.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramCost {
    /// Name.
    pub name: String,
    /// Calls in the pass.
    pub calls: u64,
    /// One run on the NPU: `dispatch_ns + load_ns +` its launches.
    pub run_ns: f64,
    /// The call itself, as with an empty program.
    pub dispatch_ns: f64,
    /// Loading core programs.
    pub load_ns: f64,
    /// Operations of a run, and their rate over it.
    #[serde(flatten)]
    pub rate: Rate,
    /// One a kernel, in order.
    pub launches: Vec<LaunchCost>,
    /// Bytes of its slots by role, of one call.
    pub slots: SlotBytes,
}

/// Bytes of a program's slots by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotBytes {
    /// Weights, tables, a sequence's cache.
    pub r#static: u64,
    /// Written by the host, or by a call before.
    pub input: u64,
    /// Of no interest to the host.
    pub intermediate: u64,
    /// Read by the host, or by a call after.
    pub output: u64,
}

/// A kernel within a program.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchCost {
    /// The node's label.
    pub name: String,
    /// The mapping.
    pub mapping: &'static str,
    /// The problem, as `millrace kernel` takes it: `2048x2048x8192`.
    pub shape: String,
    /// How it is tiled.
    pub tiling: String,
    /// Launches of the program that it takes.
    pub physical: u64,
    /// From its first task to its last token.
    pub ns: f64,
    /// Loading its cores' programs.
    pub load_ns: f64,
    /// Its operations.
    pub flops: u64,
    /// What bounds it.
    pub bottleneck: Bottleneck,
    /// Bytes read from DDR.
    pub ddr_read_bytes: f64,
    /// Bytes written to DDR.
    pub ddr_write_bytes: f64,
    /// Cores that compute.
    pub cores: Vec<CoreCost>,
    /// Share of the machine's cores times the launch's time in which they compute.
    pub utilization: f64,
}

/// A core in a launch, as shares of the launch's time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreCost {
    /// Column.
    pub col: u32,
    /// Row.
    pub row: u32,
    /// Computing.
    pub busy: f64,
    /// Waiting for a full or an empty block.
    pub stalled: f64,
}

impl<'a> Timer<'a> {
    /// A timer that knows nothing yet.
    pub fn new(machine: &'a Machine, profile: &'a Profile) -> Timer<'a> {
        Timer {
            machine,
            profile,
            known: Vec::new(),
        }
    }

    /// The machine.
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// The profile.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Simulates what is not known yet of these programs, on all processors.
    ///
    /// # Errors
    /// See [`TimingError`].
    pub fn prime(&mut self, programs: &[&Program]) -> Result<(), TimingError> {
        let mut wanted: Vec<(Launch, &str)> = Vec::new();
        for launch in programs.iter().flat_map(|p| &p.launches) {
            let plain = plain(launch);
            let known = self.known.iter().map(|(known, _)| known);
            if !known
                .chain(wanted.iter().map(|w| &w.0))
                .any(|k| *k == plain)
            {
                wanted.push((plain, &launch.name));
            }
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || {
            while let Some((launch, name)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let timing = self.simulate(launch, name);
                let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
                done.push((launch.clone(), timing));
            }
        };
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            for _ in 1..n_threads.min(wanted.len()) {
                scope.spawn(work);
            }
            work();
        });
        for (launch, timing) in done.into_inner().unwrap_or_else(|e| e.into_inner()) {
            self.known.push((launch, timing?));
        }
        Ok(())
    }

    fn simulate(&self, launch: &Launch, name: &str) -> Result<LaunchTiming, TimingError> {
        let launch = Launch {
            name: name.to_owned(),
            ..launch.clone()
        };
        let alone = Program {
            name: name.to_owned(),
            slots: Vec::new(),
            launches: vec![launch],
        };
        let mut timing = timing::predict(&alone, self.machine, self.profile)?;
        Ok(timing.launches.remove(0))
    }

    fn launch(&mut self, launch: &Launch) -> Result<&LaunchTiming, TimingError> {
        let wanted = plain(launch);
        let at = match self.known.iter().position(|(known, _)| *known == wanted) {
            Some(at) => at,
            None => {
                let timing = self.simulate(&wanted, &launch.name)?;
                self.known.push((wanted, timing));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
    }

    /// What one call of a program costs; `calls` is left at 0.
    ///
    /// # Errors
    /// See [`TimingError`].
    pub fn program(&mut self, planned: &PlannedProgram) -> Result<ProgramCost, TimingError> {
        let program = &planned.program;
        let n_herds: usize = program.launches.iter().map(|l| l.herds.len()).sum();
        let mut launches = Vec::new();
        for logical in &planned.launches {
            launches.push(self.logical(program, logical, n_herds)?);
        }
        let load_ns = launches.iter().map(|l| l.load_ns).sum();
        let dispatch_ns = self.profile.dispatch.call_ns;
        let work_ns: f64 = launches.iter().map(|l| l.ns).sum();
        let run_ns = dispatch_ns + load_ns + work_ns;
        let flops = launches.iter().map(|l| l.flops).sum();
        Ok(ProgramCost {
            name: program.name.clone(),
            calls: 0,
            run_ns,
            rate: Rate::new(flops, run_ns, self.machine),
            dispatch_ns,
            load_ns,
            launches,
            slots: SlotBytes::of(program),
        })
    }

    /// A kernel of a program that has so many herds.
    fn logical(
        &mut self,
        program: &Program,
        logical: &LogicalLaunch,
        n_herds: usize,
    ) -> Result<LaunchCost, TimingError> {
        let mut cost = LaunchCost {
            name: logical.name.clone(),
            mapping: logical.mapping,
            shape: shape_text(logical),
            tiling: logical.tiling.to_string(),
            physical: logical.physical.len() as u64,
            ns: 0.0,
            load_ns: 0.0,
            flops: work::flops(logical.mapping, &logical.shape),
            bottleneck: Bottleneck::default(),
            ddr_read_bytes: 0.0,
            ddr_write_bytes: 0.0,
            cores: Vec::new(),
            utilization: 0.0,
        };
        let dispatch = self.profile.dispatch;
        let mut longest = 0.0;
        let mut busy: Vec<CoreCounters> = Vec::new();
        let physical = program.launches.get(logical.physical.clone());
        for launch in physical.unwrap_or(&[]) {
            let timing = self.launch(launch)?;
            cost.ns += timing.ns;
            cost.load_ns += dispatch.load_ns(timing.cores.len(), timing.objects, n_herds);
            cost.ddr_read_bytes += timing.ddr_read_bytes;
            cost.ddr_write_bytes += timing.ddr_write_bytes;
            if timing.ns >= longest {
                longest = timing.ns;
                cost.bottleneck = timing.bottleneck.clone();
            }
            let cores = timing.cores.iter();
            cores.for_each(|core| add_core(&mut busy, core));
        }
        let share = |ns: f64| if cost.ns > 0.0 { ns / cost.ns } else { 0.0 };
        let core = |core: &CoreCounters| CoreCost {
            col: core.col,
            row: core.row,
            busy: share(core.busy_ns),
            stalled: share(core.stall_in_ns + core.stall_out_ns),
        };
        cost.cores = busy.iter().map(core).collect();
        let all = f64::from(self.machine.n_cores().max(1));
        cost.utilization = cost.cores.iter().map(|core| core.busy).sum::<f64>() / all;
        Ok(cost)
    }
}

impl SlotBytes {
    fn of(program: &Program) -> SlotBytes {
        use millrace_npu::Role;
        let mut bytes = SlotBytes::default();
        for slot in &program.slots {
            let size = slot.size_bytes().unwrap_or(0);
            match slot.role {
                Role::Static => bytes.r#static += size,
                Role::Input => bytes.input += size,
                Role::Intermediate => bytes.intermediate += size,
                Role::Output => bytes.output += size,
            }
        }
        bytes
    }
}

fn add_core(cores: &mut Vec<CoreCounters>, core: &CoreCounters) {
    match cores
        .iter_mut()
        .find(|c| (c.col, c.row) == (core.col, core.row))
    {
        Some(known) => {
            known.busy_ns += core.busy_ns;
            known.stall_in_ns += core.stall_in_ns;
            known.stall_out_ns += core.stall_out_ns;
        }
        None => cores.push(core.clone()),
    }
}

/// The shape as the command line spells it; names with their numbers where that is not plain.
fn shape_text(logical: &LogicalLaunch) -> String {
    let shape = &logical.shape;
    if logical.mapping.contains("attention") {
        return format!(
            "{} {}q/{}kv d{}{}",
            shape.get("n_queries"),
            shape.get("n_heads"),
            shape.get("n_kv_heads"),
            shape.get("head_dim"),
            if shape.get("causal") == 1 {
                " causal"
            } else {
                ""
            }
        );
    }
    let sizes: Vec<String> = shape.iter().map(|(_, size)| size.to_string()).collect();
    sizes.join("x")
}

/// The launch without what no time depends on.
fn plain(launch: &Launch) -> Launch {
    Launch {
        name: String::new(),
        args: (0..launch.args.len()).collect(),
        ..launch.clone()
    }
}
