//! Programs on the array: every launch simulated once.

use crate::lower::{PlannedLaunch, PlannedProgram, program_of};
use crate::mapping;
use millrace_npu::Element;
use millrace_plan::predict::{
    Bottleneck, CoreCost, LaunchCost, ModelPart, ProgramCost, Rate, SlotBytes,
};
use millrace_xdna2_machine::program::{Launch, Program};
use millrace_xdna2_machine::timing::{self, CoreCounters, LaunchTiming, TimingError};
use millrace_xdna2_machine::{Machine, Profile};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Launches without name and arguments, on which no time depends, with their times.
type LaunchTimes = Arc<Mutex<Vec<(Launch, LaunchTiming)>>>;

/// Simulated launches by machine and profile, both as text: predictions of one process with other features share most
/// of their launches.
static KNOWN: Mutex<Vec<(String, LaunchTimes)>> = Mutex::new(Vec::new());

/// Machines and profiles that are remembered.
const MOST_KNOWN: usize = 4;

/// Times programs, and remembers launches: those of equal work are simulated once.
pub struct Timer<'a> {
    machine: &'a Machine,
    profile: &'a Profile,
    known: LaunchTimes,
}

/// The array's peak for the products of a program, in operations a second, and its name: a program with sums in 32-bit
/// integers multiplies bytes.
pub(crate) fn peak(machine: &Machine, program: &Program) -> (f64, &'static str) {
    match program
        .slots
        .iter()
        .any(|slot| slot.element == Element::I32)
    {
        true => (machine.int8_ops_per_s(), "int8"),
        false => (machine.bf16_flops_per_s(), "bf16"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Timer<'a> {
    /// A timer that shares the results of others in this process for that machine and profile.
    pub fn new(machine: &'a Machine, profile: &'a Profile) -> Timer<'a> {
        let key = format!("{machine:?} {profile:?}");
        let mut all = lock(&KNOWN);
        let known = match all.iter().position(|(other, _)| *other == key) {
            Some(at) => all[at].1.clone(),
            None => {
                if all.len() == MOST_KNOWN {
                    all.remove(0);
                }
                let known = LaunchTimes::default();
                all.push((key, known.clone()));
                known
            }
        };
        Timer {
            machine,
            profile,
            known,
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

    /// Simulates the unknown launches of these programs, on all processors.
    ///
    /// # Errors
    /// See [`TimingError`].
    pub fn prime(&self, programs: &[&Program]) -> Result<(), TimingError> {
        let mut wanted: Vec<(Launch, &str)> = Vec::new();
        let known = lock(&self.known);
        for launch in programs.iter().flat_map(|p| &p.launches) {
            let plain = plain(launch);
            let known = known.iter().map(|(known, _)| known);
            if !known
                .chain(wanted.iter().map(|w| &w.0))
                .any(|k| *k == plain)
            {
                wanted.push((plain, &launch.name));
            }
        }
        drop(known);
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
            lock(&self.known).push((launch, timing?));
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

    fn launch(&self, launch: &Launch) -> Result<LaunchTiming, TimingError> {
        let wanted = plain(launch);
        let known = lock(&self.known);
        let found = known.iter().find(|(known, _)| *known == wanted);
        if let Some((_, timing)) = found {
            return Ok(timing.clone());
        }
        drop(known);
        let timing = self.simulate(&wanted, &launch.name)?;
        lock(&self.known).push((wanted, timing.clone()));
        Ok(timing)
    }

    /// Cost of one call of a program; `calls` is left at 0.
    ///
    /// # Errors
    /// See [`TimingError`].
    pub fn program(&self, planned: &PlannedProgram) -> Result<ProgramCost, TimingError> {
        let program = program_of(planned);
        let program = program.ok_or_else(|| TimingError::Foreign(planned.name().to_owned()))?;
        let loads_ns = self.loads_ns(program)?;
        let mut launches = Vec::new();
        for logical in &planned.launches {
            launches.push(self.logical(program, logical, &loads_ns)?);
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
            rate: Rate::new(flops, run_ns, peak(self.machine, program).0),
            dispatch_ns,
            load_ns,
            switch_ns: timing::switch_ns(&program.launches, (self.machine, self.profile))?,
            launches,
            slots: SlotBytes::of(&program.slots),
        })
    }

    /// Time before each launch of a program that the work of others does not hide.
    fn loads_ns(&self, program: &Program) -> Result<Vec<f64>, TimingError> {
        let works_ns = program.launches.iter().map(|l| Ok(self.launch(l)?.ns));
        let works_ns: Vec<f64> = works_ns.collect::<Result<_, TimingError>>()?;
        let on = (self.machine, self.profile);
        Ok(timing::exposed_loads_ns(&program.launches, &works_ns, on)?)
    }

    /// Time of all launches of a program as a part of a longer one, at work and loading their cores, without a
    /// dispatch. A single launch would find its cores loaded.
    ///
    /// # Errors
    /// See [`TimingError`].
    pub(crate) fn launches_ns(&self, program: &Program) -> Result<f64, TimingError> {
        let mut longer = program.clone();
        longer.launches.extend_from_slice(&program.launches);
        let loads_ns = self.loads_ns(&longer)?;
        let mut ns: f64 = loads_ns[..program.launches.len()].iter().sum();
        for launch in &program.launches {
            ns += self.launch(launch)?.ns;
        }
        Ok(ns)
    }

    /// A kernel of a program, whose launches have such loads.
    fn logical(
        &self,
        program: &Program,
        logical: &PlannedLaunch,
        loads_ns: &[f64],
    ) -> Result<LaunchCost, TimingError> {
        let mut cost = LaunchCost {
            name: logical.name.clone(),
            kernel: logical.kernel.clone(),
            part: part(&logical.name, &logical.kernel),
            shape: shape_text(logical),
            tiling: logical.tiling.to_string(),
            physical: logical.physical.len() as u64,
            ns: 0.0,
            load_ns: 0.0,
            flops: flops(logical),
            bottleneck: Bottleneck::default(),
            ddr_read_bytes: 0.0,
            ddr_write_bytes: 0.0,
            cores: Vec::new(),
            utilization: 0.0,
        };
        let loads_ns = loads_ns.get(logical.physical.clone()).unwrap_or(&[]);
        cost.load_ns = loads_ns.iter().sum();
        let mut longest = 0.0;
        let mut busy: Vec<CoreCounters> = Vec::new();
        let physical = program.launches.get(logical.physical.clone());
        for launch in physical.unwrap_or(&[]) {
            let timing = self.launch(launch)?;
            cost.ns += timing.ns;
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

/// Operations of a launch.
fn flops(logical: &PlannedLaunch) -> u64 {
    mapping::find(&logical.kernel).map_or(0, |m| m.work(&logical.shape).flops)
}

/// Whether a mapping of that name is one of attention.
fn attends(kernel: &str) -> bool {
    kernel.contains("attention") || kernel.starts_with("flow-")
}

fn part(name: &str, kernel: &str) -> ModelPart {
    let is_product = ["gemm", "gemv", "fused-dqp"]
        .iter()
        .any(|k| kernel.starts_with(k));
    match is_product {
        _ if attends(kernel) => ModelPart::Attention,
        true => ModelPart::of_product(name),
        false => ModelPart::Elementwise,
    }
}

/// The shape as the command line spells it; names with their numbers where that is not plain.
fn shape_text(logical: &PlannedLaunch) -> String {
    let shape = &logical.shape;
    if attends(&logical.kernel) {
        return format!(
            "{} {}q/{}kv d{}{}",
            shape["n_queries"],
            shape["n_heads"],
            shape["n_kv_heads"],
            shape["head_dim"],
            if shape.get("causal") == Some(1) {
                " causal"
            } else {
                ""
            }
        );
    }
    let sizes: Vec<String> = shape.iter().map(|(_, size)| size.to_string()).collect();
    sizes.join("x")
}

/// The launch without the parts that no time depends on.
fn plain(launch: &Launch) -> Launch {
    Launch {
        name: String::new(),
        args: (0..launch.args.len()).collect(),
        resident: false,
        ..launch.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_belong_to_a_part_of_the_model() {
        for (name, kernel, expected) in [
            (
                "attn_q_attn_k_attn_v",
                "gemm-stream-bt",
                ModelPart::Projections,
            ),
            ("attn_output", "gemv", ModelPart::Projections),
            ("ffn_gate_ffn_up", "gemm-q4nx", ModelPart::FeedForward),
            ("ffn_down", "fused-dqp", ModelPart::FeedForward),
            ("attn", "flash-attention", ModelPart::Attention),
            ("attn", "cached-attention", ModelPart::Attention),
            ("attn", "flow-qkv", ModelPart::Attention),
            ("ffn_gate_ffn_up", "gemv-stream", ModelPart::FeedForward),
            ("ffn_glu", "silu-mul", ModelPart::Elementwise),
            ("attn_q_rope", "rope", ModelPart::Elementwise),
            ("output_norm", "rmsnorm", ModelPart::Elementwise),
            ("lm_head_p3", "gemv", ModelPart::Head),
        ] {
            assert_eq!(part(name, kernel), expected, "{name}");
        }
    }

    #[test]
    fn the_peak_is_all_cores_at_once() {
        let mut machine = Machine::npu2();
        let whole = machine.bf16_flops_per_s();
        machine.cols /= 2;
        assert_eq!(2.0 * machine.bf16_flops_per_s(), whole);
        assert_eq!(machine.int8_ops_per_s(), 2.0 * machine.bf16_flops_per_s());
        let rate = Rate::new(whole as u64, 2e9, machine.bf16_flops_per_s());
        assert!((rate.peak_share - 1.0).abs() < 1e-9, "{rate:?}");
    }
}
