//! Faults that a virtual board can have. Jobs count from 0 over the board's life.

use rustix::io::Errno;

/// A task of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskAt {
    /// The job.
    pub job: u64,
    /// The task in it.
    pub task: usize,
}

/// A plan of faults; the default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Opening a node fails with this.
    pub open: Option<Errno>,
    /// The tasks do nothing, and their jobs end as if they had.
    pub dropped: Vec<TaskAt>,
    /// A 32-bit word of the task's output (counted modulo its words) has these bits flipped.
    pub wrong: Vec<(TaskAt, u64, u32)>,
    /// The jobs hang and are reset.
    pub hung: Vec<u64>,
    /// The jobs take so many nanoseconds more.
    pub delayed: Vec<(u64, u64)>,
    /// The address space of an open file has so many bytes.
    pub domain_bytes: Option<u64>,
    /// From this job on every call answers ENODEV.
    pub gone_at: Option<u64>,
    /// Every wait is interrupted once.
    pub interrupts: bool,
}
