//! Counters of a run.

use crate::tile::TileWork;

/// Counters of a run, launch by launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounters {
    /// One for each launch, in order.
    pub launches: Vec<LaunchCounters>,
}

/// Counters of one launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchCounters {
    /// Bytes that shims read from DDR.
    pub ddr_read_bytes: u64,
    /// Bytes that shims wrote to DDR.
    pub ddr_written_bytes: u64,
    /// Bytes that memory tiles received.
    pub l2_filled_bytes: u64,
    /// Bytes that memory tiles sent; a broadcast counts once.
    pub l2_drained_bytes: u64,
    /// Calls of tile kernels.
    pub n_calls: u64,
    /// Work of those calls.
    pub work: TileWork,
    /// Rounds of the simulation.
    pub n_rounds: u64,
    /// Units of work, as `SimulateOptions::max_units` counts them.
    pub n_units: u64,
}

impl RunCounters {
    /// The sum over all launches.
    pub fn total(&self) -> LaunchCounters {
        let mut total = LaunchCounters::default();
        for launch in &self.launches {
            total.add(launch);
        }
        total
    }
}

impl LaunchCounters {
    pub(super) fn add(&mut self, other: &LaunchCounters) {
        self.ddr_read_bytes += other.ddr_read_bytes;
        self.ddr_written_bytes += other.ddr_written_bytes;
        self.l2_filled_bytes += other.l2_filled_bytes;
        self.l2_drained_bytes += other.l2_drained_bytes;
        self.n_calls += other.n_calls;
        self.work.macs = self.work.macs.saturating_add(other.work.macs);
        self.work.elements = self.work.elements.saturating_add(other.work.elements);
        self.work.bytes = self.work.bytes.saturating_add(other.work.bytes);
        self.n_rounds += other.n_rounds;
        self.n_units = self.n_units.saturating_add(other.n_units);
    }
}

/// Work of one actor: counters, and units of the budget spent in the current round.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counters: LaunchCounters,
    pub(super) spent: u64,
}

impl Tally {
    pub(super) fn add_call(&mut self, work: TileWork) {
        self.spent = self
            .spent
            .saturating_add(16 + work.macs / 256 + work.elements / 16);
        self.counters.add(&LaunchCounters {
            n_calls: 1,
            work,
            ..LaunchCounters::default()
        });
    }
}
