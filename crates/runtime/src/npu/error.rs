//! Errors of a model on an NPU.

use millrace_npu::{CacheError, DeviceError};
use millrace_plan::LowerError;

/// Why a model does not load, or a pass does not end.
///
/// A session whose pass failed stays at its last complete step and can continue from there.
#[derive(Debug, thiserror::Error)]
pub enum NpuError {
    /// The model, its files, or the request.
    #[error(transparent)]
    Runtime(#[from] crate::Error),
    /// No plan exists for this model.
    #[error("this model cannot run on the NPU: {0}")]
    Lower(#[from] LowerError),
    /// A program cannot be made, or buffers cannot be filled.
    #[error("the NPU cannot be set up: {0}")]
    Cache(#[from] CacheError),
    /// The device cannot be opened.
    #[error("the NPU cannot be opened: {0}")]
    Open(#[source] DeviceError),
    /// A dispatch failed.
    #[error("call {call} of {n_calls} (`{set}`): {error}")]
    Call {
        /// The call, from 1.
        call: usize,
        /// Calls of the pass.
        n_calls: usize,
        /// Its buffer set.
        set: String,
        /// Why.
        error: CacheError,
    },
    /// A plan that does not fit its own graph or programs; a defect of lowering.
    #[error("the plan is inconsistent at {place}: {problem}")]
    Plan {
        /// Where.
        place: String,
        /// Description of the mismatch.
        problem: String,
    },
}

impl NpuError {
    /// The device's error; `None` if the device was not involved.
    pub fn device(&self) -> Option<&DeviceError> {
        match self {
            NpuError::Cache(error) | NpuError::Call { error, .. } => error.device(),
            NpuError::Open(error) => Some(error),
            _ => None,
        }
    }

    /// A plan that is inconsistent at a place.
    pub fn plan(place: impl Into<String>, problem: impl Into<String>) -> NpuError {
        NpuError::Plan {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

impl From<millrace_quant::Error> for NpuError {
    fn from(error: millrace_quant::Error) -> NpuError {
        NpuError::Runtime(error.into())
    }
}

impl From<millrace_kernels::Error> for NpuError {
    fn from(error: millrace_kernels::Error) -> NpuError {
        NpuError::Runtime(error.into())
    }
}
