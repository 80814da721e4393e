//! The kernel's interface: the calls of the rocket driver at `/dev/accel/accelN`, as a trait with two implementations.
//!
//! [`sys`] calls Linux; [`Board`] is a virtual kernel and board that behaves as Linux does. Everything above is the
//! same code on both.
//!
//! Numbers and structures are those of `include/uapi/drm/rocket_accel.h` (Linux 6.18, MIT).

pub mod sys;

use crate::simulate::Board;
use millrace_accel::DriverVersion;
use millrace_npu::Provenance;
use rustix::io::Errno;
use std::sync::Arc;

/// Name that the mainline driver reports.
pub(crate) const DRIVER_NAME: &str = "rocket";

/// A buffer object as the kernel made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedBo {
    /// Its handle in this open file.
    pub handle: u32,
    /// Its address in the NPU's address space of this open file. 0 is an address like any other.
    pub dma_address: u64,
    /// The offset that maps it.
    pub offset: u64,
}

/// A task: commands in a buffer object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskArgs {
    /// NPU address of the commands.
    pub regcmd: u32,
    /// Number of words.
    pub regcmd_count: u32,
}

/// A job: tasks that one core runs in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobArgs {
    /// The tasks.
    pub tasks: Vec<TaskArgs>,
    /// Handles that it reads.
    pub in_handles: Vec<u32>,
    /// Handles that it writes; only these can be waited for.
    pub out_handles: Vec<u32>,
}

/// Finds and opens nodes.
pub trait Host: Send + Sync {
    /// Description for people (`Linux 6.18.2`, `virtual board`).
    fn describe(&self) -> String;

    /// Paths of nodes that may be the NPU's, in order.
    fn paths(&self) -> Vec<String>;

    /// Opens a node anew: another open file with a separate address space.
    ///
    /// # Errors
    /// As `open(2)`.
    fn open(&self, path: &str) -> Result<Arc<dyn Node>, Errno>;

    /// Release of the running kernel (`6.18.2`), where known.
    fn kernel_release(&self) -> Option<String>;

    /// Whether the vendor's driver (`rknpu`) is there instead.
    fn has_vendor_driver(&self) -> bool;

    /// A shared handle of the same host.
    fn shared(&self) -> Arc<dyn Host>;

    /// The virtual board, if the host is one.
    fn board(&self) -> Option<&Board> {
        None
    }
}

/// One open file of the driver. Calls may come from several threads.
pub trait Node: Send + Sync {
    /// DRM_VERSION.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn version(&self) -> Result<DriverVersion, Errno>;

    /// CREATE_BO: zeroed memory of whole pages.
    ///
    /// # Errors
    /// As `ioctl(2)`: ENOMEM without memory, ENOSPC where the address space is full.
    fn create_bo(&self, size: u32) -> Result<CreatedBo, Errno>;

    /// SUBMIT. **Success says nothing about single jobs**: rocket ignores their faults.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn submit(&self, jobs: &[JobArgs]) -> Result<(), Errno>;

    /// PREP_BO: waits until no job writes the object and gives its memory to the host. The answer is
    /// 0 or, with older kernels, the time left; both mean success. A job that was reset counts as
    /// ended: **success does not say that anything was written**.
    ///
    /// # Errors
    /// As `ioctl(2)`: ETIMEDOUT at the deadline, an absolute time of [`now_ns`](Node::now_ns); EBUSY
    /// with deadline 0; EINTR.
    fn prep_bo(&self, handle: u32, deadline_ns: i64) -> Result<i32, Errno>;

    /// FINI_BO: gives the object's memory back to the device.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn fini_bo(&self, handle: u32) -> Result<(), Errno>;

    /// GEM_CLOSE.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    fn close_bo(&self, handle: u32) -> Result<(), Errno>;

    /// Calls `touch` with the object's mapping. Only between [`prep_bo`](Node::prep_bo) and [`fini_bo`](Node::fini_bo)
    /// does it equal the device's content.
    ///
    /// # Errors
    /// As `mmap(2)`; the virtual kernel also where the host does not hold the object.
    fn access(&self, bo: &CreatedBo, touch: &mut dyn FnMut(&mut [u8])) -> Result<(), Errno>;

    /// The clock of deadlines and durations, in nanoseconds.
    fn now_ns(&self) -> i64;

    /// Where times come from.
    fn provenance(&self) -> Provenance;

    /// Kernel messages about this device since the last call, where they can be read.
    fn log(&self) -> Vec<String>;
}
