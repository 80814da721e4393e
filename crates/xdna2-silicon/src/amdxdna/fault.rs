//! Why there is no NPU to talk to, or why a command failed.

use super::packet::CommandState;
use super::{ArrayShape, Errno, FirmwareVersion, KERNEL, NPU2, PROTOCOL};
use millrace_accel::Absence;
use millrace_accel::find::is_older;

/// Why no node was opened, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeFault {
    /// No node of any driver.
    #[error(
        "no node in /dev/accel: this needs a Ryzen AI of the 300 series or newer, a kernel with CONFIG_DRM_ACCEL_AMDXDNA and \
         its firmware (amdnpu of linux-firmware); try `modprobe amdxdna`, and look into `dmesg`"
    )]
    NoNode,
    /// The kernel is older than the driver.
    #[error(
        "no node in /dev/accel: kernel {release} is older than {major}.{minor}, the first with amdxdna; install a newer one",
        major = KERNEL.0, minor = KERNEL.1
    )]
    OldKernel {
        /// The running kernel.
        release: String,
    },
    /// No permission.
    #[error(
        "{path} cannot be opened: permission denied; add the user to the group that owns it (often `render`: \
         `sudo usermod -aG render $USER`, then log in again)"
    )]
    Permission {
        /// The node.
        path: String,
    },
    /// Only nodes of other drivers.
    #[error(
        "{path} belongs to driver `{found}`: that is another device; an XDNA2's driver is amdxdna (`modprobe amdxdna`)"
    )]
    OtherDriver {
        /// A node.
        path: String,
        /// Its driver.
        found: String,
    },
    /// Something else.
    #[error("{path} cannot be opened: {errno}; look into `dmesg`")]
    Open {
        /// The node.
        path: String,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl NodeFault {
    /// The fault of this driver for an absence, on a kernel of that release.
    pub fn of(absence: Absence, release: Option<String>) -> NodeFault {
        match absence {
            Absence::NoNode => match release.filter(|release| is_older(release, KERNEL)) {
                Some(release) => NodeFault::OldKernel { release },
                None => NodeFault::NoNode,
            },
            Absence::Permission { path } => NodeFault::Permission { path },
            Absence::OtherDriver { path, found } => NodeFault::OtherDriver { path, found },
            Absence::Open { path, errno } => NodeFault::Open { path, errno },
        }
    }
}

/// Why a stream did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverFault {
    /// The kernel refused.
    #[error("{call} failed: {errno}{}", advice(*.errno))]
    Kernel {
        /// The call (`CREATE_BO`).
        call: &'static str,
        /// Its answer.
        errno: Errno,
    },
    /// The array is another.
    #[error(
        "an array of {cols} columns and {rows} rows: the words are for the {} columns and {} rows of Strix and Krackan",
        NPU2.cols, NPU2.rows, cols = .0.cols, rows = .0.rows
    )]
    Array(ArrayShape),
    /// Kernel or firmware lack the command.
    #[error(
        "the kernel did not give the command to firmware {0}: streams without a PDI need one that speaks protocol {major}.{minor} or \
         newer; update linux-firmware (amdnpu) and the kernel",
        major = PROTOCOL.0, minor = PROTOCOL.1
    )]
    Unsupported(FirmwareVersion),
    /// The command ended in another state than it should.
    #[error("the command ended as {state:?}: {}", meaning(*.state))]
    Command {
        /// The state.
        state: CommandState,
    },
    /// A command went wrong, and there is no new context after it.
    #[error(
        "{fault}; the context is lost, and no other is to be had ({call}: {errno}): reload the driver (`modprobe -r amdxdna`, `modprobe amdxdna`)"
    )]
    ContextLost {
        /// The first fault.
        fault: Box<DriverFault>,
        /// The call that gave no context.
        call: &'static str,
        /// Its answer.
        errno: Errno,
    },
    /// The stream cannot be given addresses.
    #[error("{0}")]
    Stream(String),
}

impl DriverFault {
    pub(super) fn of(call: &'static str) -> impl Fn(Errno) -> DriverFault {
        move |errno| DriverFault::Kernel { call, errno }
    }
}

/// Advice for an answer of the kernel.
fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NODEV | Errno::NXIO => {
            ": the device is gone; look into `dmesg`, and reload the driver"
        }
        Errno::NOMEM => {
            ": memory cannot be had or pinned; free some, or raise the limit of locked memory (`ulimit -l`)"
        }
        Errno::NOSPC => ": the device's heap is full",
        Errno::TIME => ": the command did not end, though the watchdog should have ended it",
        Errno::OPNOTSUPP => ": the kernel lacks it; update it",
        Errno::ACCESS | Errno::PERM => ": permission denied by the driver; look into `dmesg`",
        Errno::AGAIN => ": the heap is not mapped, or the device sleeps; try again",
        _ => "",
    }
}

/// Meaning of a state.
fn meaning(state: CommandState) -> &'static str {
    match state {
        CommandState::Timeout => "the watchdog saw no progress",
        CommandState::Abort => "the context was restarted, for this command or another one hung",
        CommandState::Error => "the firmware or the array reported an error; look into `dmesg`",
        CommandState::New => "nobody took it",
        CommandState::Completed => "all went well",
    }
}
