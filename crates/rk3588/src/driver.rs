//! The driver: several open files of one NPU, their buffer objects, and correct waiting. Linux and the virtual board
//! share the code.
//!
//! Each open file (*worker*) has a separate address space, and the kernel keeps it on one core, so three workers keep
//! three cores busy.

use crate::rocket::{CreatedBo, DRIVER_NAME, Host, JobArgs, Node};
use millrace_accel::find::is_older;
use millrace_accel::{Absence, DriverVersion, find_node};
use millrace_npu::DeviceError;
use rustix::io::Errno;
use std::sync::Arc;

/// The first kernel with the rocket driver.
pub(crate) const KERNEL_MIN: (u32, u32) = (6, 18);

/// Why no NPU can be opened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Neither a node nor a known reason.
    #[error(
        "no node in /dev/accel: check that the kernel was built with CONFIG_DRM_ACCEL_ROCKET, that \
         `modprobe rocket` succeeds, and that the device tree enables the NPU's cores"
    )]
    NoNode,
    /// The kernel is older than the driver.
    #[error(
        "no node in /dev/accel: kernel {release} is older than 6.18, the first with the rocket \
         driver; install a newer one"
    )]
    OldKernel {
        /// The running kernel.
        release: String,
    },
    /// The vendor's kernel.
    #[error(
        "no node in /dev/accel, but the vendor's `rknpu` driver is loaded: its interface is another; \
         boot a mainline kernel, 6.18 or newer"
    )]
    VendorDriver,
    /// No permission.
    #[error(
        "{path} cannot be opened: permission denied; add the user to the group that owns it (often \
         `render`: `sudo usermod -aG render $USER`, then log in again)"
    )]
    Permission {
        /// The node.
        path: String,
    },
    /// Only nodes of other drivers.
    #[error(
        "{path} belongs to driver `{found}`: that is another device; the RK3588's driver is `rocket`, \
         load it on the board (`modprobe rocket`)"
    )]
    OtherDriver {
        /// A node.
        path: String,
        /// Its driver.
        found: String,
    },
    /// Something else.
    #[error("{path} cannot be opened: {errno}")]
    Open {
        /// The node.
        path: String,
        /// Error of the kernel.
        errno: Errno,
    },
    /// The first buffer object cannot be had.
    #[error("{path} was opened, but {error}")]
    Setup {
        /// The node.
        path: String,
        /// The failed call.
        error: DriverError,
    },
}

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {errno}")]
pub struct DriverError {
    /// The call (`CREATE_BO`).
    pub call: &'static str,
    /// Error of the kernel.
    pub errno: Errno,
    /// Bytes that were asked for, if the call was for memory.
    pub asked_bytes: u64,
}

impl DriverError {
    fn of(call: &'static str) -> impl Fn(Errno) -> DriverError {
        move |errno| DriverError {
            call,
            errno,
            asked_bytes: 0,
        }
    }

    /// A shape of this crate that the machine does not take; this happens only with another machine's facts.
    pub(crate) fn unfit() -> DriverError {
        DriverError::of("cutting a product")(Errno::INVAL)
    }

    /// Whether the device has disappeared.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.errno, Errno::NODEV | Errno::NXIO)
    }

    /// The error of the device contract.
    pub fn to_device(self, device: &str) -> DeviceError {
        match self.errno {
            _ if self.is_gone() => DeviceError::Lost {
                device: device.to_owned(),
                place: None,
            },
            Errno::NOMEM | Errno::NOSPC if self.asked_bytes > 0 => DeviceError::OutOfMemory {
                asked_bytes: self.asked_bytes,
                // The kernel does not report the remaining bytes.
                available_bytes: 0,
            },
            _ => DeviceError::Driver(format!("{device}: {self}")),
        }
    }
}

/// Opens the first rocket node of a host.
///
/// # Errors
/// [`OpenError`]: why not, and what to do.
pub(crate) fn open(host: &dyn Host) -> Result<(String, Arc<dyn Node>, DriverVersion), OpenError> {
    let open = |path: &str| host.open(path);
    let found = find_node(&host.paths(), &[DRIVER_NAME], open, |node| node.version());
    found.map_err(|absence| match absence {
        Absence::NoNode => absent(host),
        Absence::Permission { path } => OpenError::Permission { path },
        Absence::OtherDriver { path, found } => OpenError::OtherDriver { path, found },
        Absence::Open { path, errno } => OpenError::Open { path, errno },
    })
}

fn absent(host: &dyn Host) -> OpenError {
    if host.has_vendor_driver() {
        return OpenError::VendorDriver;
    }
    match host.kernel_release() {
        Some(release) if is_older(&release, KERNEL_MIN) => OpenError::OldKernel { release },
        _ => OpenError::NoNode,
    }
}

/// An open file with its guard object: address 0 is valid to the NPU, so no data of this crate is placed there.
pub(crate) struct Worker {
    node: Arc<dyn Node>,
    _guard: Bo,
}

/// All open files of one NPU.
pub(crate) struct Driver {
    /// The node's path.
    pub path: String,
    /// Version that the driver reports.
    pub version: DriverVersion,
    workers: Vec<Worker>,
}

impl Driver {
    /// Opens the NPU so many times.
    ///
    /// # Errors
    /// [`OpenError`]: why not, and what to do.
    pub(crate) fn open(host: &dyn Host, n_workers: usize) -> Result<Driver, OpenError> {
        let (path, first, version) = open(host)?;
        let mut workers = Vec::new();
        for at in 0..n_workers.max(1) {
            let node = match at {
                0 => first.clone(),
                _ => host.open(&path).map_err(|errno| OpenError::Open {
                    path: path.clone(),
                    errno,
                })?,
            };
            let guard = Bo::create(&node, 1).map_err(|error| OpenError::Setup {
                path: path.clone(),
                error,
            })?;
            workers.push(Worker {
                node,
                _guard: guard,
            });
        }
        Ok(Driver {
            path,
            version,
            workers,
        })
    }

    /// Number of workers.
    pub(crate) fn n_workers(&self) -> usize {
        self.workers.len()
    }

    /// The open file of a worker.
    pub(crate) fn node(&self, worker: usize) -> &Arc<dyn Node> {
        &self.workers[worker].node
    }
}

/// Submits jobs. Success says nothing about single jobs: check their outputs.
///
/// # Errors
/// Where SUBMIT as a whole fails.
pub(crate) fn submit(node: &dyn Node, jobs: &[JobArgs]) -> Result<(), DriverError> {
    node.submit(jobs).map_err(DriverError::of("SUBMIT"))
}

/// A buffer object of one worker, closed when dropped.
pub(crate) struct Bo {
    node: Arc<dyn Node>,
    created: CreatedBo,
    address: u32,
}

/// A wait for an idle object ends at once; this limit is for one that is busy against all rules.
const IDLE_WAIT_NS: i64 = 5_000_000_000;

impl Bo {
    /// Makes a zeroed object of at least that size.
    ///
    /// # Errors
    /// Where there is no memory or no address left.
    pub(crate) fn create(node: &Arc<dyn Node>, size_bytes: u64) -> Result<Bo, DriverError> {
        let error = |errno| DriverError {
            call: "CREATE_BO",
            errno,
            asked_bytes: size_bytes,
        };
        let size = size_bytes.next_multiple_of(4096);
        let size = u32::try_from(size).map_err(|_| error(Errno::NOSPC))?;
        let created = node.create_bo(size).map_err(error)?;
        let mut bo = Bo {
            node: node.clone(),
            created,
            address: 0,
        };
        // Registers hold 32 bits of an address.
        let end = created.dma_address.checked_add(u64::from(size));
        match (u32::try_from(created.dma_address), end) {
            (Ok(address), Some(end)) if end <= 1 << 32 => bo.address = address,
            _ => return Err(error(Errno::NOSPC)),
        }
        Ok(bo)
    }

    /// Its NPU address.
    pub(crate) fn address(&self) -> u32 {
        self.address
    }

    /// Its handle.
    pub(crate) fn handle(&self) -> u32 {
        self.created.handle
    }

    /// Waits until no job writes it, at most to an absolute time, and takes its memory for the host.
    fn prep(&self, deadline_ns: i64) -> Result<(), DriverError> {
        loop {
            match self.node.prep_bo(self.created.handle, deadline_ns) {
                // The same absolute deadline: an interrupted wait is not a longer one.
                Err(Errno::INTR) => {}
                // Kernels answer 0 or the time left.
                Ok(_) => return Ok(()),
                Err(errno) => return Err(DriverError::of("PREP_BO")(errno)),
            }
        }
    }

    /// Waits at most to an absolute time, lets the host touch the memory, and gives it back.
    ///
    /// # Errors
    /// Where a call fails; ETIMEDOUT at the deadline.
    pub(crate) fn touch_by<R>(
        &self,
        deadline_ns: i64,
        touch: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, DriverError> {
        self.prep(deadline_ns)?;
        let mut touch = Some(touch);
        let mut result = None;
        let access = self.node.access(&self.created, &mut |bytes| {
            result = touch.take().map(|touch| touch(bytes));
        });
        let fini = self.node.fini_bo(self.created.handle);
        access.map_err(DriverError::of("mmap"))?;
        fini.map_err(DriverError::of("FINI_BO"))?;
        result.ok_or(DriverError::of("mmap")(Errno::FAULT))
    }

    /// Lets the host touch the memory of an object that no job writes.
    ///
    /// # Errors
    /// Where a call fails.
    pub(crate) fn touch<R>(&self, touch: impl FnOnce(&mut [u8]) -> R) -> Result<R, DriverError> {
        self.touch_by(self.node.now_ns() + IDLE_WAIT_NS, touch)
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        // No caller is left that could act on an error; the kernel closes all objects with the file.
        let _ = self.node.close_bo(self.created.handle);
    }
}
