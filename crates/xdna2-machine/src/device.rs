//! The virtual NPU2 as a [`Device`](millrace_npu::Device): programs are verified, run functionally, and
//! timed by the model. Times and energies are labelled `modelled(profile)`.

use crate::profile::ErrorScope;
use crate::program::codec::TARGET;
use crate::simulate::{self, SimulationFault};
use crate::{Machine, Profile, Program, timing, verify};
use millrace_kernels::Cpu;
use millrace_npu::simulated::{RunStop, SimulatedDevice, Simulator, SimulatorJob};
use millrace_npu::{Completion, Container, DeviceInfo, ErrorPlace, Provenance};

/// Memory that all buffers together may take, unless [`SimulatedDevice::with_memory`] sets it. An NPU has no dedicated memory:
/// buffers are the host's memory, pinned. Half of a laptop with 32 GiB.
const MEMORY_BYTES: u64 = 16 << 30;

/// How long a device waits for a submission before it stops it.
///
/// Source: the Linux driver amdxdna, whose command timeout is 2 s unless a module parameter sets another.
const TIMEOUT_NS: u64 = 2_000_000_000;

/// A virtual NPU2.
pub type VirtualDevice = SimulatedDevice<Array>;

/// The array of an NPU2, which runs programs in a [`VirtualDevice`].
pub struct Array {
    machine: Machine,
    profile: Profile,
    cpu: Cpu,
    /// Provenance of every time: neither machine nor profile changes.
    provenance: Provenance,
}

/// A verified program.
pub struct AcceptedProgram {
    program: Program,
    /// Predicted once: times do not depend on data.
    duration_ns: u64,
}

impl AcceptedProgram {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

impl Array {
    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The CPU that computes the tile kernels.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Completion of a program, with its predicted time. It does not matter who executed it.
    pub fn completion(&self, accepted: &AcceptedProgram) -> Completion {
        Completion {
            duration_ns: accepted.duration_ns,
            provenance: self.provenance.clone(),
            trace: None,
            energy: self.profile.energy(accepted.duration_ns),
        }
    }

    /// An array of that machine, timed by that profile, computing on that CPU.
    pub fn new(machine: Machine, profile: Profile, cpu: Cpu) -> Array {
        let provenance = profile.provenance(ErrorScope::Kernel, &machine);
        Array {
            machine,
            profile,
            cpu,
            provenance,
        }
    }
}

/// A device of that machine, timed by that profile, computing on that CPU.
pub fn virtual_device(machine: Machine, profile: Profile, cpu: Cpu) -> VirtualDevice {
    SimulatedDevice::new(Array::new(machine, profile, cpu))
}

/// Where and why a program stopped. `asked` is true if it was to stop early.
fn stopped(program: &Program, fault: &SimulationFault, asked: bool) -> RunStop {
    let site = fault.site();
    let slot = site.slot.and_then(|slot| program.slots.get(slot as usize));
    let reason = match fault {
        SimulationFault::Budget { .. } if asked => format!("the array stopped; {}", fault.reason()),
        _ => fault.reason(),
    };
    RunStop {
        place: ErrorPlace {
            program: program.name.clone(),
            launch: fault.launch().map(str::to_owned),
            unit: site.core.map(|(col, row)| format!("core ({col}, {row})")),
            slot: slot.map(|slot| slot.name.clone()),
        },
        reason,
    }
}

impl Simulator for Array {
    type Program = AcceptedProgram;

    fn info(&self) -> DeviceInfo {
        let machine = &self.machine;
        DeviceInfo {
            name: format!(
                "virtual {}, {} × {}",
                machine.name, machine.cols, machine.rows
            ),
            target: TARGET.to_owned(),
            memory_bytes: MEMORY_BYTES,
            max_buffer_bytes: machine.buffer_bytes_max.clamp(1, MEMORY_BYTES),
            coherent: false,
            provenance: self.provenance.clone(),
        }
    }

    fn timeout_ns(&self) -> u64 {
        TIMEOUT_NS
    }

    fn accept(&self, container: &Container) -> Result<AcceptedProgram, String> {
        let program = Program::from_container(container).map_err(|error| error.to_string())?;
        verify(&program, &self.machine).map_err(|refusals| {
            let reasons: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            reasons.join("; ")
        })?;
        let timing = timing::predict(&program, &self.machine, &self.profile)
            .map_err(|error| error.to_string())?;
        Ok(AcceptedProgram {
            program,
            duration_ns: timing.total_ns.round() as u64,
        })
    }

    fn run(
        &self,
        accepted: &AcceptedProgram,
        content: &mut [Vec<u8>],
        job: &SimulatorJob<'_>,
    ) -> Result<Completion, RunStop> {
        let after = |written: &[usize], content: &mut [Vec<u8>]| job.wrote(written, content);
        let mut options = simulate::SimulateOptions::new(&self.cpu);
        options.stop_after = job.stop_after();
        if job.is_watching() {
            options.after_launch = Some(&after);
        }
        simulate::run(&accepted.program, content, &options)
            .map_err(|fault| stopped(&accepted.program, &fault, options.stop_after.is_some()))?;
        Ok(self.completion(accepted))
    }
}
