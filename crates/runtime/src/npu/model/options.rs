//! Setup of a model on a device, and its size there.

use crate::npu::NpuError;
use crate::npu::progress::LoadProgress;
use millrace_kernels::{Cpu, CpuOptions, Level};
use millrace_plan::WeightLayout;
use std::path::PathBuf;

/// How an [`NpuModel`](super::NpuModel) is set up.
#[derive(Clone, Debug, Default)]
pub struct NpuOptions {
    /// Tokens a sequence may hold; `None` uses the trained context, at most
    /// [`EngineOptions::DEFAULT_MAX_CTX`](crate::EngineOptions::DEFAULT_MAX_CTX).
    pub n_ctx: Option<usize>,
    /// Sequences alive at a time; 0 means one.
    pub max_sequences: usize,
    /// Threads of the host's steps, and of the simulation; `None` uses the physical cores.
    pub n_threads: Option<usize>,
    /// Forces an instruction-set level; `None` uses the best.
    pub level: Option<Level>,
    /// Folder where compiled programs are kept between runs, shared with others. If it cannot be
    /// created, and with `None`, they are kept in memory.
    pub programs: Option<PathBuf>,
    /// Tokens that every prefill is padded to; `None` uses the planner's lengths
    /// ([`Lowering::lengths`](millrace_plan::Lowering::lengths)). Longer prompts go in chunks.
    pub prefill_tokens: Option<u64>,
    /// A deliberate mistake, for testing the checks that must find it: the layout that weights are
    /// written in instead of the layout that programs need. It must have as many elements.
    pub relayout: Option<fn(WeightLayout) -> WeightLayout>,
    /// Maximum bytes of experts' matrices on the device; each stays from its first choice until others need the room.
    /// `None` uses half of the device's memory.
    pub expert_bytes: Option<u64>,
    /// Callback for the progress of loading.
    pub progress: Option<LoadProgress>,
}

impl NpuOptions {
    pub(super) fn cpu(&self) -> Result<Cpu, NpuError> {
        Ok(Cpu::new(CpuOptions {
            n_threads: self.n_threads,
            level: self.level,
        })?)
    }
}

/// Bytes of a model's buffers on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NpuMemory {
    /// Weights and tables; for experts only those chosen so far.
    pub weight_bytes: u64,
    /// Values and scratch of all plans in use.
    pub activation_bytes: u64,
    /// Copies of keys and values, where programs read them.
    pub kv_bytes: u64,
}
