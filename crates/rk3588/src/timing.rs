//! Time of a task on its core, and how jobs of several workers share cores and memory.
//!
//! A task takes `task_ns`, then computes and moves data at once, until both are done:
//!
//! - MAC: `ceil16(m) · max(ceil32(k), 128 / e) · ceil(n, kernel group) / macs` cycles, where `e` is the bytes of an
//!   element. The cycle estimates of the vendor's converter obey this rule (180 layers of our own); one row costs as
//!   much as sixteen.
//! - DMA: A, B and C once each, without tiles that reuse bits leave in the CBUF. A core moves at most
//!   `core_bytes_per_cycle`; all of them share `ddr_bytes_per_s`.
//!
//! Times do not depend on data. [`Schedule`] is the one clock of predictions and of the virtual board.

mod schedule;

pub use schedule::{JobId, Schedule};

use crate::machine::Machine;
use crate::matmul::{MatmulKind, Precision, Task};
use crate::profile::Profile;

/// Cost of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskCost {
    /// Kick, fetch and interrupt.
    pub fixed_ns: f64,
    /// The array's work.
    pub mac_ns: f64,
    /// Bytes that it moves.
    pub dma_bytes: f64,
}

/// Cycles of the array for a product of m × n × k.
pub(crate) fn mac_cycles(m: u32, n: u32, k: u32, kind: MatmulKind, machine: &Machine) -> f64 {
    let macs = match kind.input() {
        Precision::Int4 => machine.macs.int4,
        Precision::Int8 => machine.macs.int8,
        _ => machine.macs.fp16,
    };
    let rows = f64::from(m.next_multiple_of(machine.row_group));
    let depth_least = 1024 / kind.input().bits();
    let depth = k.next_multiple_of(machine.k_group).max(depth_least);
    let cols = f64::from(n.next_multiple_of(kind.n_group()));
    rows * f64::from(depth) * cols / f64::from(macs)
}

impl TaskCost {
    /// The cost of a task.
    pub fn of(task: &Task, machine: &Machine, profile: &Profile) -> TaskCost {
        let row_bytes = task.kind.row_bytes(task.k) as f64;
        let (m, n) = (f64::from(task.m), f64::from(task.n));
        let read = |reused: bool, bytes: f64| if reused { 0.0 } else { bytes };
        let cycles = mac_cycles(task.m, task.n, task.k, task.kind, machine);
        TaskCost {
            fixed_ns: profile.task_ns,
            mac_ns: cycles * 1e9 / (profile.clock_hz * profile.mac_efficiency),
            dma_bytes: read(task.data_reuse, m * row_bytes)
                + read(task.weight_reuse, n * row_bytes)
                + m * n * f64::from(task.kind.output_bytes()),
        }
    }

    /// Time alone on the device, at that rate of a core.
    pub fn ns(&self, bytes_per_ns: f64) -> f64 {
        self.fixed_ns + self.mac_ns.max(self.dma_bytes / bytes_per_ns)
    }
}

/// The estimate of the vendor's converter for a layer, in cycles of one core: a peer's estimate, not a measurement.
/// Found on 180 layers of our own; it knows no overhead of tasks or jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VendorCycles {
    /// Memory: bytes of A, B, C (C again for a later part of k; 8 bytes a column for 8-bit layers) at
    /// 23.654 bytes a cycle.
    pub ddr: f64,
    /// The array.
    pub npu: f64,
}

/// Bytes of k that the converter computes at once, at most.
const VENDOR_PART_BYTES: u64 = 3072;

/// The converter's estimate of each part of k of a layer with results of the operands' type.
pub fn vendor_cycles(
    m: u32,
    n: u32,
    k: u32,
    kind: MatmulKind,
    machine: &Machine,
) -> Vec<VendorCycles> {
    let row_bytes = kind.row_bytes(k);
    let n_parts = row_bytes.div_ceil(VENDOR_PART_BYTES);
    // Parts are whole multiples of 1,024 bytes; a single part stays unpadded.
    let part_bytes = match n_parts {
        1 => row_bytes,
        _ => row_bytes.div_ceil(n_parts).next_multiple_of(1024),
    };
    let element = f64::from(kind.input().bits()) / 8.0;
    let (rows, cols) = (f64::from(m), f64::from(n));
    let scales = if kind.is_integer() { 8.0 * cols } else { 0.0 };
    (0..n_parts)
        .map(|part| {
            let bytes = part_bytes.min(row_bytes.saturating_sub(part * part_bytes));
            let depth = (bytes as f64 / element) as u32;
            let c = rows * cols * element;
            let again = if part > 0 { c } else { 0.0 };
            let moved = (rows + cols) * bytes as f64 + c + again + scales;
            VendorCycles {
                ddr: moved / VENDOR_BYTES_PER_CYCLE,
                npu: mac_cycles(m, n, depth, kind, machine),
            }
        })
        .collect()
}

/// Bytes a cycle of the converter's estimates.
pub(crate) const VENDOR_BYTES_PER_CYCLE: f64 = 23.654;

#[cfg(test)]
mod tests;
