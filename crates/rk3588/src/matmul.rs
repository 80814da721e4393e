//! Matrix products as tasks: C[m, n] = A[m, k] · B[n, k]ᵀ as a convolution. Its kernels are 1 × 1, its width is 1, its
//! height m, with k channels in and n out.
//!
//! [`Task::commands`] gives the register commands of one task. Values follow the open drivers (Mesa's rocket,
//! mtx512/rk3588-npu, gregordinary/rocket-userspace); tests compare with their streams.

mod emit;
mod kind;

pub use emit::{Emit, Form};
pub use kind::{MatmulKind, Precision};

use crate::machine::Machine;

/// How the CBUF of a core is divided during a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Banks {
    /// Banks that hold rows of A.
    pub data: u32,
    /// Banks that kernels of B stream through.
    pub weight: u32,
}

/// One task: a product small enough for the CBUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Operand and result types.
    pub kind: MatmulKind,
    /// Rows of A and C.
    pub m: u32,
    /// Rows of B, columns of C.
    pub n: u32,
    /// Columns of A and B.
    pub k: u32,
    /// The CBUF's division.
    pub banks: Banks,
    /// A is in the CBUF already: the task before, on this core and in this job, had the same A and
    /// division.
    pub data_reuse: bool,
    /// All of B is in the CBUF already, likewise.
    pub weight_reuse: bool,
    /// Address of A.
    pub a: u32,
    /// Address of B.
    pub b: u32,
    /// Address of C.
    pub c: u32,
}

/// Banks that m rows of k elements take: each row in whole units of 64 bytes.
pub fn data_banks(m: u32, k: u32, kind: MatmulKind, machine: &Machine) -> u32 {
    let row_bytes = kind.row_bytes(k).next_multiple_of(machine.cbuf_row_bytes);
    let bytes = u64::from(m) * row_bytes;
    u32::try_from(bytes.div_ceil(machine.cbuf_bank_bytes)).unwrap_or(u32::MAX)
}

/// Banks that one group of kernels takes; fewer cannot compute.
pub(crate) fn kernel_group_banks(k: u32, kind: MatmulKind, machine: &Machine) -> u32 {
    let bytes = u64::from(kind.n_group()) * kind.row_bytes(k);
    u32::try_from(bytes.div_ceil(machine.cbuf_bank_bytes)).unwrap_or(u32::MAX)
}

/// Banks that all n kernels take.
pub(crate) fn weight_banks(n: u32, k: u32, kind: MatmulKind, machine: &Machine) -> u32 {
    let bytes = u64::from(n) * kind.row_bytes(k);
    u32::try_from(bytes.div_ceil(machine.cbuf_bank_bytes)).unwrap_or(u32::MAX)
}

/// Most rows whose features fit beside one kernel group, by the CBUF alone; 0 where k is too long.
pub(crate) fn rows_max(k: u32, kind: MatmulKind, machine: &Machine) -> u32 {
    let free = machine
        .cbuf_banks
        .saturating_sub(kernel_group_banks(k, kind, machine));
    let row_bytes = kind.row_bytes(k).next_multiple_of(machine.cbuf_row_bytes);
    let rows = u64::from(free) * machine.cbuf_bank_bytes / row_bytes.max(1);
    u32::try_from(rows).unwrap_or(u32::MAX)
}

impl Banks {
    /// The division that gives A as many banks as it needs and B the rest; `None` where no kernel group fits beside A.
    pub fn of(m: u32, k: u32, kind: MatmulKind, machine: &Machine) -> Option<Banks> {
        let data = data_banks(m, k, kind, machine);
        let weight = machine.cbuf_banks.checked_sub(data)?;
        let fits = data > 0 && weight >= kernel_group_banks(k, kind, machine).max(1);
        fits.then_some(Banks { data, weight })
    }
}

#[cfg(test)]
mod tests;
