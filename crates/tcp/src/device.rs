//! The virtual chip as a [`Device`](millrace_npu::Device): programs are verified, computed, and timed by
//! the model. Times say `modelled(profile)`.

use crate::program::TARGET;
use crate::simulate::{self, CommandFault};
use crate::{Machine, Profile, Program, timing, verify};
use millrace_npu::simulated::{RunStop, SimulatedDevice, Simulator, SimulatorJob};
use millrace_npu::{Completion, Container, DeviceInfo, Energy, ErrorPlace, Trace};

/// Longest wait for a chip: assumed, since no published driver states it.
const TIMEOUT_NS: u64 = 10_000_000_000;

/// A virtual chip.
pub type VirtualDevice = SimulatedDevice<Chip>;

/// Simulator behind a [`VirtualDevice`].
pub struct Chip {
    machine: Machine,
    profile: Profile,
    n_threads: usize,
    traces: bool,
}

/// A verified program.
pub struct TcpProgram {
    program: Program,
    /// Predicted once: times do not depend on data.
    duration_ns: u64,
    trace: Option<Trace>,
}

impl Chip {
    /// A chip of that machine, timed by that profile, computing on so many threads.
    pub fn new(machine: Machine, profile: Profile, n_threads: usize) -> Chip {
        Chip {
            machine,
            profile,
            n_threads,
            traces: false,
        }
    }

    /// The same with completions that record when each command ran.
    #[must_use]
    pub fn with_traces(mut self) -> Chip {
        self.traces = true;
        self
    }

    fn completion(&self, accepted: &TcpProgram) -> Completion {
        let provenance = self.profile.provenance();
        let mut energy = Energy::default();
        // The board's limit, not its actual power: nobody has published a measured power by program.
        let board = energy.add(
            "board at its limit",
            self.machine.tdp_watts,
            accepted.duration_ns,
            provenance.clone(),
        );
        Completion {
            duration_ns: accepted.duration_ns,
            provenance,
            trace: accepted.trace.clone(),
            energy: board.is_ok().then_some(energy),
        }
    }
}

fn stopped(program: &Program, fault: CommandFault) -> RunStop {
    RunStop {
        place: ErrorPlace {
            program: program.name.clone(),
            launch: Some(fault.command),
            unit: None,
            slot: fault.slot,
        },
        reason: fault.reason,
    }
}

impl Simulator for Chip {
    type Program = TcpProgram;

    fn info(&self) -> DeviceInfo {
        let machine = &self.machine;
        DeviceInfo {
            name: format!(
                "virtual {}, {} × {} slices",
                machine.name.to_uppercase(),
                machine.clusters,
                machine.slices
            ),
            target: TARGET.to_owned(),
            memory_bytes: machine.hbm_bytes,
            max_buffer_bytes: machine.hbm_bytes,
            coherent: false,
            provenance: self.profile.provenance(),
        }
    }

    fn timeout_ns(&self) -> u64 {
        TIMEOUT_NS
    }

    fn accept(&self, container: &Container) -> Result<TcpProgram, String> {
        let program = Program::from_container(container).map_err(|error| error.to_string())?;
        verify(&program, &self.machine).map_err(|refusals| {
            let reasons: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            reasons.join("; ")
        })?;
        let timed = timing::TimedProgram::new(&program, &self.machine, &self.profile);
        let timed = timed.map_err(|broken| broken.message)?;
        let duration_ns = timing::predict(&timed, &self.machine, &self.profile).total_ns;
        let trace = || timing::trace(&timed, &self.machine, &self.profile);
        Ok(TcpProgram {
            duration_ns: duration_ns.round() as u64,
            trace: self.traces.then(trace),
            program,
        })
    }

    fn run(
        &self,
        accepted: &TcpProgram,
        content: &mut [Vec<u8>],
        job: &SimulatorJob<'_>,
    ) -> Result<Completion, RunStop> {
        let after = |slot: usize, content: &mut [Vec<u8>]| job.wrote(&[slot], content);
        let options = simulate::SimulationOptions {
            n_threads: self.n_threads,
            stop_after: job.stop_after(),
            after_write: job.is_watching().then_some(&after),
        };
        simulate::run(&accepted.program, content, &options)
            .map_err(|fault| stopped(&accepted.program, fault))?;
        Ok(self.completion(accepted))
    }
}
