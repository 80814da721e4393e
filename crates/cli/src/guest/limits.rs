//! Limits on the resources of a process.

use std::time::Duration;

/// Limits of a process, before the caller's own are considered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessLimits {
    /// Memory, including program and stacks.
    pub(super) memory_bytes: u64,
    /// Processor time.
    pub(super) cpu_seconds: u64,
    /// Limit on the elapsed time. It matters on a machine that is busy with other work, or where the system does
    /// not limit processor time.
    pub(super) time: Duration,
}

#[cfg(unix)]
impl ProcessLimits {
    /// These limits, or the caller's own (`ulimit`) where those are lower: nobody but root may raise them, and
    /// they were set to be kept. A process that this one starts finds the same.
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

/// On other systems only the time and the work's own bounds apply.
#[cfg(not(unix))]
impl ProcessLimits {
    pub(super) fn within_callers(self) -> ProcessLimits {
        self
    }

    pub(super) fn impose(self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lowers this process's priority in favour of others.
#[cfg(unix)]
pub(super) fn step_back(niceness: i32) {
    // If this fails, others wait a little longer.
    let _ = rustix::process::nice(niceness);
}

#[cfg(not(unix))]
pub(super) fn step_back(_: i32) {}

/// Makes this process end when its parent ends, for whatever reason.
#[cfg(target_os = "linux")]
pub(super) fn end_with_parent() {
    use rustix::process::{Signal, set_parent_process_death_signal};
    // On a kernel without this, the time limits still apply.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_parent() {}
