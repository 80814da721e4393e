//! What a process takes from the system at most.

use std::time::Duration;

/// Limits of a process, before the caller's own are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessLimits {
    /// Memory, program and stacks included.
    pub(super) memory_bytes: u64,
    /// Processor time.
    pub(super) cpu_seconds: u64,
    /// The longest it may take in all, on a machine that is busy with other things, or where the system does not
    /// limit processor time.
    pub(super) time: Duration,
}

#[cfg(unix)]
impl ProcessLimits {
    /// These, or what the caller of this program limits it to (`ulimit`) where that is less: nobody but root may
    /// raise that, and it was set to be kept. A process that this one starts finds the same.
    pub(super) fn within_callers(self) -> ProcessLimits {
        use rustix::process::{Resource, getrlimit};
        let callers = |resource| {
            let limit = getrlimit(resource);
            limit.current.into_iter().chain(limit.maximum).min()
        };
        let least =
            |ours: u64, resource| callers(resource).map_or(ours, |callers| callers.min(ours));
        ProcessLimits {
            memory_bytes: least(self.memory_bytes, Resource::As),
            cpu_seconds: least(self.cpu_seconds, Resource::Cpu),
            time: self.time,
        }
    }

    /// Limits this process, for good.
    pub(super) fn impose(self) -> std::io::Result<()> {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limits = self.within_callers();
        let limit = |resource, value: u64| {
            let both = Rlimit {
                current: Some(value),
                maximum: Some(value),
            };
            setrlimit(resource, both)
        };
        limit(Resource::Core, 0)?;
        limit(Resource::Cpu, limits.cpu_seconds)?;
        limit(Resource::As, limits.memory_bytes)?;
        Ok(())
    }
}

/// Elsewhere the time and the work's own bounds must do.
#[cfg(not(unix))]
impl ProcessLimits {
    pub(super) fn within_callers(self) -> ProcessLimits {
        self
    }

    pub(super) fn impose(self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Leaves the processors to others where they want them.
#[cfg(unix)]
pub(super) fn step_back(niceness: i32) {
    // Without it others wait a little.
    let _ = rustix::process::nice(niceness);
}

#[cfg(not(unix))]
pub(super) fn step_back(_: i32) {}

/// Has this process end when the one that started it does, however that ends.
#[cfg(target_os = "linux")]
pub(super) fn end_with_parent() {
    use rustix::process::{Signal, set_parent_process_death_signal};
    // A kernel without it leaves the limits on time.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_parent() {}
