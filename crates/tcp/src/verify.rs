//! The verifier: finds programs that the machine would refuse, hang on or compute wrong, before anything runs.
//!
//! [`verify`] works in three stages, each of which needs the one before: tensors in their memories; commands, each by
//! itself; and reads and writes of commands in their order. A stage's refusals are all reported; later stages are then
//! skipped. Its work is bounded, and it never panics.

mod limits;
mod order;
mod region;
mod rule;
mod tensors;

pub(crate) use order::{accesses, range};
pub use region::DmaRegion;
pub(crate) use region::dma_region;
pub(crate) use region::start;
pub use rule::{Rule, TcpViolation};

use crate::Machine;
use crate::flow::{Flow, walk};
use crate::program::{Command, Program};

/// Peak use of each memory by a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Bytes of a slice's data memory.
    pub dm_bytes: u64,
    /// Bytes of a lane's register file.
    pub trf_lane_bytes: u64,
    /// Bytes of a slice's vector register file.
    pub vrf_bytes: u64,
    /// Bytes of the program's arguments.
    pub hbm_bytes: u64,
}

/// Most axes, tensors and commands that are examined.
const MAX_TENSORS: usize = 1 << 16;
const MAX_COMMANDS: usize = 1 << 16;
const MAX_STAGES: usize = 64;

/// Checks a program against a machine.
///
/// # Errors
/// Every rule that the program breaks, as far as they could be examined: see the module.
pub fn verify(program: &Program, machine: &Machine) -> Result<MemoryReport, Vec<TcpViolation>> {
    let mut found = Findings::default();
    let too_many = program.tensors.len() > MAX_TENSORS || program.commands.len() > MAX_COMMANDS;
    let is_long = |command: &Command| match command {
        Command::Dma(_) => false,
        Command::Kernel(kernel) => kernel.stages.len() > MAX_STAGES,
    };
    if too_many || program.commands.iter().any(is_long) {
        let message = format!(
            "at most {MAX_TENSORS} tensors, {MAX_COMMANDS} commands and {MAX_STAGES} stages of one are examined"
        );
        found.add(Rule::TooLarge, "program", message);
    }
    found.stop()?;
    let report = tensors::check(program, machine, &mut found);
    found.stop()?;
    for command in &program.commands {
        check_command(program, machine, command, &mut found);
    }
    found.stop()?;
    order::check(program, &mut found);
    found.stop()?;
    Ok(report)
}

fn check_command(program: &Program, machine: &Machine, command: &Command, found: &mut Findings) {
    match command {
        Command::Dma(dma) => {
            let place = format!("move `{}`", dma.name);
            if let Err((rule, message)) = dma_region(program, dma) {
                found.add(rule, &place, message);
            }
            limits::engines(program, machine, dma, found);
        }
        Command::Kernel(kernel) => match walk(program, kernel) {
            Ok(flow) => {
                let Flow { streams } = &flow;
                limits::kernel(program, machine, kernel, streams, found);
            }
            Err(broken) => {
                let place = format!("kernel `{}`, stage {}", kernel.name, broken.stage + 1);
                found.add(broken.rule, &place, broken.message);
            }
        },
    }
}

/// Findings so far.
#[derive(Default)]
pub(crate) struct Findings {
    refusals: Vec<TcpViolation>,
}

impl Findings {
    fn add(&mut self, rule: Rule, place: &str, message: impl Into<String>) {
        // More refusals help nobody.
        if self.refusals.len() < 100 {
            self.refusals.push(TcpViolation {
                rule,
                place: place.to_owned(),
                message: message.into(),
            });
        }
    }

    fn stop(&mut self) -> Result<(), Vec<TcpViolation>> {
        match self.refusals.is_empty() {
            true => Ok(()),
            false => Err(std::mem::take(&mut self.refusals)),
        }
    }
}
