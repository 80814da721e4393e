//! Counts of a simulation.

use crate::program::Flat;
use crate::timing::TraceSpan;

/// Counts of a simulation.
#[derive(Clone, Debug, Default)]
pub(in crate::timing) struct SimulationCounts {
    /// Time to the last token.
    pub(in crate::timing) ns: f64,
    pub(in crate::timing) cores: Vec<CoreTime>,
    /// Bytes and busy time by channel.
    pub(in crate::timing) channels: Vec<(f64, f64)>,
    pub(in crate::timing) read_bytes: f64,
    pub(in crate::timing) write_bytes: f64,
    /// Time the DDR would take for all reads at its full rate; the same for its fullest channel.
    pub(in crate::timing) ddr_ns: f64,
    pub(in crate::timing) memory_channel_ns: f64,
    /// Stopped at the bound on events, the rest extrapolated.
    pub(in crate::timing) extrapolated: bool,
    pub(in crate::timing) spans: Vec<TraceSpan>,
}

/// Counters of a core.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::timing) struct CoreTime {
    pub(in crate::timing) busy_ns: f64,
    pub(in crate::timing) in_ns: f64,
    pub(in crate::timing) out_ns: f64,
    pub(in crate::timing) calls: f64,
}

impl SimulationCounts {
    pub(in crate::timing) fn new(flat: &Flat<'_>) -> SimulationCounts {
        SimulationCounts {
            cores: vec![CoreTime::default(); flat.cores.len()],
            channels: vec![(0.0, 0.0); flat.channels.len()],
            ..SimulationCounts::default()
        }
    }

    /// Adds a run that happens that many times.
    pub(in crate::timing) fn add(&mut self, run: &SimulationCounts, times: f64) {
        self.ns += run.ns * times;
        self.read_bytes += run.read_bytes * times;
        self.write_bytes += run.write_bytes * times;
        self.ddr_ns += run.ddr_ns * times;
        self.memory_channel_ns += run.memory_channel_ns * times;
        self.extrapolated |= run.extrapolated;
        for (sum, core) in self.cores.iter_mut().zip(&run.cores) {
            sum.busy_ns += core.busy_ns * times;
            sum.in_ns += core.in_ns * times;
            sum.out_ns += core.out_ns * times;
            sum.calls += core.calls * times;
        }
        for (sum, channel) in self.channels.iter_mut().zip(&run.channels) {
            sum.0 += channel.0 * times;
            sum.1 += channel.1 * times;
        }
    }
}
