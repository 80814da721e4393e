//! A profile's constants as a board's clocks take them.

use super::Profile;
use crate::Machine;
use millrace_xdna2_words::board::{ClockRates, TASK_BYTES};

impl Profile {
    /// Rates of the actors of a [board](millrace_xdna2_words::board). A byte of the stream takes its part of
    /// `dispatch.issue_ns`, which is the time of a shim's task.
    pub fn clock_rates(&self, machine: &Machine) -> ClockRates {
        ClockRates {
            cycle_ns: 1e9 / machine.clock_hz,
            operation_ns_per_byte: self.dispatch.issue_ns / TASK_BYTES,
            shim_task_ns: self.shim.task_ns,
            port_gb_per_s: self.shim.port_gb_per_s,
            stream_gb_per_s: machine.stream_bytes_per_s() / 1e9,
            lock_cycles: self.core.block_cycles / 2.0,
            ddr_read_gb_per_s: self.ddr.read_gb_per_s,
            ddr_write_gb_per_s: self.ddr.write_gb_per_s,
            ddr_total_gb_per_s: self.ddr.total_gb_per_s,
        }
    }
}
