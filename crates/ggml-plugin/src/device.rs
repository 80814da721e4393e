//! Interface of a device of this plugin, independent of the hardware behind it.

use crate::sys::graph::HostNode;
use crate::sys::tensor::{DataError, HostTensor};
use std::ops::Range;

/// Why a device leaves an op to others: a constant, so that equal ones can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpRefusal(pub(crate) &'static str);

/// Why a graph was not computed.
#[derive(Debug, thiserror::Error)]
#[error("{op} of tensor `{tensor}` on device {device}: {cause}")]
pub(crate) struct ComputeError {
    pub(crate) op: String,
    pub(crate) tensor: String,
    pub(crate) device: String,
    pub(crate) cause: String,
}

/// Description of a failure in an op.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpError {
    #[error("the op is none that the device said it takes: {0}")]
    Refused(&'static str),
    #[error("{what}: {error}")]
    Data {
        what: &'static str,
        error: DataError,
    },
    #[error("row {row} asks for expert {expert} of {n_experts}")]
    Expert {
        row: usize,
        expert: i32,
        n_experts: usize,
    },
    #[error("{0}")]
    Kernel(#[from] millrace_kernels::Error),
    #[error("{0}")]
    Device(String),
    #[error("injected by MILLRACE_GGML_FAIL")]
    Injected,
}

impl OpError {
    /// A result that cannot be written.
    pub(crate) fn of_result(error: DataError) -> OpError {
        OpError::Data {
            what: "the result",
            error,
        }
    }
}

/// Where the weights of an op are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightsIn {
    /// Nowhere yet.
    Nothing,
    /// Memory that the device gave out.
    Own,
    /// Memory of another owner.
    Others,
}

/// Notices to a device about memory that it gave out for weights. This is host memory too: it holds weights as in the
/// file, for kernels that compute with few tokens.
pub(crate) trait DeviceMemory: Sync {
    /// Memory was given out.
    fn add(&self, region: Range<usize>);

    /// It was given back.
    fn remove(&self, region: Range<usize>);

    /// Somebody wrote to it.
    fn changed(&self, bytes: Range<usize>);
}

/// A device that llama.cpp sees.
pub(crate) trait PluginDevice: Send + Sync {
    /// Short name, as `-dev` and `test-backend-ops -b` take it.
    fn name(&self) -> &'static str;

    /// Description for people.
    fn description(&self) -> String;

    /// Free and total bytes of memory; zeros for a device without its own memory.
    fn memory(&self) -> (usize, usize);

    /// Whether weights may stay in the file that the host has mapped; if not, the host copies them into memory of the device's kind.
    fn maps_files(&self) -> bool {
        true
    }

    /// The device's memory for weights; `None` for a device that works in the host's memory.
    fn own_memory(&self) -> Option<&dyn DeviceMemory> {
        None
    }

    /// Whether it takes every op, and has the program's CPU backend compute those that `supports` refuses. Such a device is a GPU to the
    /// program, whose memory is the program's own.
    fn takes_all(&self) -> bool {
        false
    }

    /// Whether it computes an op, judged by types and shapes: nothing may be allocated yet.
    ///
    /// # Errors
    /// Why not.
    fn supports(&self, op: &HostTensor<'_>, weights: WeightsIn) -> Result<(), OpRefusal>;

    /// Prepares a weight that the host has just written into the device's own memory.
    ///
    /// # Errors
    /// The reason why the weight cannot be prepared.
    fn place(&self, weight: &HostTensor<'_>) -> Result<(), OpError> {
        let _ = weight;
        Ok(())
    }

    /// Starts a stream of work.
    ///
    /// # Errors
    /// Why none can be had, in words.
    fn open(&self) -> Result<Box<dyn DeviceStream>, String>;
}

/// A stream of work on a device. ggml calls it a backend.
pub(crate) trait DeviceStream: Send {
    /// The host's wish of threads.
    fn set_threads(&mut self, n: usize);

    /// Computes ops in order, until one fails. `nodes` are ops that the device took; ops without a computation were left out.
    ///
    /// # Errors
    /// The node that failed, by its number, and why.
    fn compute(&mut self, nodes: &mut [HostNode<'_>]) -> Result<(), (usize, OpError)>;
}

/// Ops that move nothing: a device takes them all, and does nothing.
const VIEWS: [&str; 5] = ["NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"];

/// Whether a node needs no computing.
pub(crate) fn is_view(op: &HostTensor<'_>) -> bool {
    VIEWS.contains(&op.op())
}
