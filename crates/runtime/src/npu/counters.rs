//! Counters of a session, by phase.

use millrace_npu::Traffic;
use std::ops::AddAssign;
use std::time::Duration;

/// Counts and times of a phase, summed over complete and failed passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseCounters {
    /// Passes that ended well.
    pub n_passes: u64,
    /// Tokens of those passes, without padding.
    pub n_tokens: u64,
    /// Tokens that those passes computed, padding included.
    pub n_padded_tokens: u64,
    /// Dispatches.
    pub n_dispatches: u64,
    /// Bytes that crossed buffers; weights that were loaded before the first call are not in it.
    pub traffic: Traffic,
    /// Time on the device, from the device itself; modelled on a virtual one.
    pub device_ns: u64,
    /// Time of the host's steps and of moving values, measured on this computer.
    pub host_ns: u64,
    /// Time of calls on this computer. On a virtual device it is the simulation's and says nothing
    /// about an NPU.
    pub call_ns: u64,
}

/// Counters by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Prompts.
    pub prefill: PhaseCounters,
    /// Behind a prompt, several tokens with the logits of all: drafts that are checked, a text that is
    /// scored.
    pub check: PhaseCounters,
    /// Single tokens.
    pub decode: PhaseCounters,
}

impl AddAssign for PhaseCounters {
    fn add_assign(&mut self, other: PhaseCounters) {
        self.n_passes += other.n_passes;
        self.n_tokens += other.n_tokens;
        self.n_padded_tokens += other.n_padded_tokens;
        self.n_dispatches += other.n_dispatches;
        self.traffic += other.traffic;
        self.device_ns += other.device_ns;
        self.host_ns += other.host_ns;
        self.call_ns += other.call_ns;
    }
}

/// Nanoseconds, saturating after 584 years.
pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
