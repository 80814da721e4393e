//! How a model on a device is set up, and what it takes.

use crate::npu::NpuError;
use crate::npu::progress::LoadProgress;
use millrace_kernels::{Cpu, CpuOptions, Level};
use millrace_plan::WeightLayout;
use std::path::PathBuf;

/// How an [`NpuModel`](super::NpuModel) is set up.
#[derive(Clone, Debug, Default)]
pub struct NpuOptions {
    /// Tokens a sequence may hold; `None` takes the trained context, at most
    /// [`EngineOptions::DEFAULT_MAX_CTX`](crate::EngineOptions::DEFAULT_MAX_CTX).
    pub n_ctx: Option<usize>,
    /// Sequences alive at a time; 0 takes one.
    pub max_sequences: usize,
    /// Threads of the host's steps, and of the simulation; `None` takes the physical cores.
    pub n_threads: Option<usize>,
    /// Forces an instruction-set level; `None` takes the best.
    pub level: Option<Level>,
    /// Folder where compiled programs are kept from one run to the next, shared with others;
    /// where it cannot be made, and with `None`, they are kept in memory.
    pub programs: Option<PathBuf>,
    /// Tokens that every prefill is padded to; `None` takes the lengths that the planner has
    /// ([`Lowering::lengths`](millrace_plan::Lowering::lengths)). Longer prompts go in chunks.
    pub prefill_tokens: Option<u64>,
    /// A mistake on purpose, for testing what finds it: the layout that weights are written in instead
    /// of the one that programs ask for. It must have as many elements.
    pub relayout: Option<fn(WeightLayout) -> WeightLayout>,
    /// Bytes of experts' matrices that the device holds at most: it has each from when it is first chosen until others need
    /// the room. `None` takes half of the device's memory.
    pub expert_bytes: Option<u64>,
    /// Who is told while the model is loaded.
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
    /// Weights and tables; of experts those that were chosen so far.
    pub weight_bytes: u64,
    /// Values and scratch of all plans in use.
    pub activation_bytes: u64,
    /// Copies of keys and values, where programs read them.
    pub kv_bytes: u64,
}
