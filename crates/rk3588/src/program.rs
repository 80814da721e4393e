//! Programs: a product's register commands, ready to be bound to buffers.
//!
//! A program is a list of jobs; a job runs on one worker, its tasks in order. Three slots are its arguments: `a`
//! (input), `b` (static) and `c` (output), laid out as [`Grid`] says. Address registers hold offsets in a slot; the
//! register determines the slot ([`slot_of`]). Binding adds the addresses of buffers.

mod codec;
mod text;

pub use codec::ProgramError;
pub use text::ProgramTextError;

use crate::command::Command;
use crate::machine::Machine;
use crate::matmul::{Banks, Emit, Precision, Task, weight_banks};
use crate::regs::{Reg, cna, dpu};
use crate::tiling::{Grid, Matmul, Tiling, TilingError};
use millrace_npu::{Container, ContainerError, Element, Role, Slot};

/// The target's name in containers.
pub const TARGET: &str = "rk3588";

/// Index of slot `a`.
pub const A: usize = 0;
/// Index of slot `b`.
pub const B: usize = 1;
/// Index of slot `c`.
pub const C: usize = 2;

/// The register commands of one product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// The product.
    pub shape: Matmul,
    /// How it is cut; determines the places of rows, columns and parts in the slots.
    pub tiling: Tiling,
    /// The jobs, those of one worker in order.
    pub jobs: Vec<CoreJob>,
}

/// Tasks that one core runs in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreJob {
    /// The worker.
    pub worker: u32,
    /// The commands of each task.
    pub tasks: Vec<Vec<Command>>,
}

/// The slot whose address a register holds.
pub fn slot_of(reg: Reg) -> Option<usize> {
    match reg {
        cna::FEATURE_DATA_ADDR::REG => Some(A),
        cna::DCOMP_ADDR0::REG => Some(B),
        dpu::DST_BASE_ADDR::REG => Some(C),
        _ => None,
    }
}

/// A worker's tasks in order, with offsets for addresses. Reuse bits are set where the previous task of the same job
/// left the same tile in the CBUF under the same division.
pub fn tasks(grid: &Grid, worker: usize, job_tasks: u32, machine: &Machine) -> Vec<Task> {
    let kind = grid.shape.kind;
    let mut tasks: Vec<Task> = Vec::new();
    for tile in grid.tiles(worker) {
        let (rows, cols) = (&grid.rows[tile.row], &grid.workers[worker][tile.col]);
        let (m, n, k) = (rows.padded, cols.padded, grid.parts[tile.part].padded);
        // The grid's check found that a kernel group fits.
        let banks = Banks::of(m, k, kind, machine).unwrap_or(Banks { data: 0, weight: 0 });
        let mut task = Task {
            kind,
            m,
            n,
            k,
            banks,
            data_reuse: false,
            weight_reuse: false,
            // The grid keeps buffers within 32 bits.
            a: grid.a_range(tile.row, tile.part).start as u32,
            b: grid.b_range(tile).start as u32,
            c: grid.c_range(tile).start as u32,
        };
        let before = tasks.last().filter(|before| {
            !tasks.len().is_multiple_of(job_tasks as usize)
                && before.banks == banks
                && before.k == k
        });
        if let Some(before) = before {
            task.data_reuse = before.a == task.a && before.m == m;
            task.weight_reuse = before.b == task.b
                && before.n == n
                && weight_banks(n, k, kind, machine) <= banks.weight;
        }
        tasks.push(task);
    }
    tasks
}

/// Why a program cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The tiling does not fit the product or the machine.
    #[error(transparent)]
    Tiling(#[from] TilingError),
    /// A name that no text form can carry.
    #[error("a program's name is one line without `#` or spaces at its ends, found {0:?}")]
    Name(String),
}

impl Program {
    /// The program of a product.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(
        name: &str,
        shape: Matmul,
        tiling: Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let odd = |c: char| c.is_control() || c == '#';
        let plain = name == name.trim() && !name.is_empty() && !name.contains(odd);
        if !plain {
            return Err(BuildError::Name(name.to_owned()));
        }
        let grid = Grid::new(shape, tiling, machine)?;
        let mut jobs = Vec::new();
        for worker in 0..grid.workers.len() {
            let tasks = tasks(&grid, worker, tiling.job_tasks, machine);
            for tasks in tasks.chunks(tiling.job_tasks as usize) {
                let commands = tasks.iter().map(|task| task.commands(Emit::MILLRACE));
                jobs.push(CoreJob {
                    worker: worker as u32,
                    tasks: commands.collect(),
                });
            }
        }
        Ok(Program {
            name: name.to_owned(),
            shape,
            tiling,
            jobs,
        })
    }

    /// Its tiles.
    ///
    /// # Errors
    /// Where the tiling does not fit the product or the machine.
    pub fn grid(&self, machine: &Machine) -> Result<Grid, TilingError> {
        Grid::new(self.shape, self.tiling, machine)
    }

    /// The argument list: `a`, `b`, `c` in packed layout; two numbers of 4 bits are a byte.
    ///
    /// # Errors
    /// Where the tiling does not fit the product or the machine.
    pub fn slots(&self, machine: &Machine) -> Result<Vec<Slot>, TilingError> {
        let grid = self.grid(machine)?;
        let slot = |name: &str, precision, bytes: u64, role| {
            let element = element(precision);
            Slot {
                name: name.to_owned(),
                element,
                shape: vec![bytes / element.size_bytes()],
                role,
            }
        };
        let kind = self.shape.kind;
        Ok(vec![
            slot("a", kind.input(), grid.a_bytes(), Role::Input),
            slot("b", kind.input(), grid.b_bytes(), Role::Static),
            slot("c", kind.output(), grid.c_bytes(), Role::Output),
        ])
    }

    /// The program in a container for weights that are written before every call.
    ///
    /// # Errors
    /// As [`to_container`](Program::to_container).
    pub(crate) fn to_container_for_each_call(
        &self,
        machine: &Machine,
    ) -> Result<Container, ContainError> {
        let mut slots = self.slots(machine)?;
        slots[B].role = Role::Input;
        Ok(Container::new(TARGET, &self.name, slots, self.encode())?)
    }

    /// The program in a container.
    ///
    /// # Errors
    /// Where the tiling does not fit, or the container cannot hold it.
    pub fn to_container(&self, machine: &Machine) -> Result<Container, ContainError> {
        let slots = self.slots(machine)?;
        Ok(Container::new(TARGET, &self.name, slots, self.encode())?)
    }

    /// Tasks of all jobs.
    pub fn n_tasks(&self) -> usize {
        self.jobs.iter().map(|job| job.tasks.len()).sum()
    }
}

/// Why a program cannot be put into a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainError {
    /// The tiling does not fit.
    #[error(transparent)]
    Tiling(#[from] TilingError),
    /// The container refuses it.
    #[error(transparent)]
    Container(#[from] ContainerError),
}

fn element(precision: Precision) -> Element {
    match precision {
        Precision::Int8 => Element::I8,
        Precision::Int16 => Element::I16,
        Precision::Bf16 => Element::Bf16,
        Precision::Int32 => Element::I32,
        Precision::Fp32 => Element::F32,
        Precision::Fp16 => Element::F16,
        Precision::Int4 => Element::U8,
    }
}

#[cfg(test)]
mod tests;
