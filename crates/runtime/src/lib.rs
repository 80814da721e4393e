//! The inference engine: from a loaded model and tokens to logits, and from a prompt to text.
//!
//! [`LoadedModel`] is a checkpoint with its graph, tokenizer and template. An [`Engine`] runs it:
//! [`Engine::step`] takes a ragged batch (each item a sequence and the tokens to append, prompt
//! chunks and single decode tokens mixed) and returns logits. [`generate`] is the loop most callers
//! want: prefix reuse, prefill, sampling, stop conditions, streaming text.
//!
//! [`npu`] holds the same for models on an NPU: `NpuModel`, `NpuSession`, `generate`.
//!
//! Every session is reproducible from model, tokens, seed and instruction-set level, whatever else
//! shares the batch: the kernels promise bit-identical rows (see `millrace_kernels`), and this
//! crate adds no arithmetic of its own.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod exec;
pub mod gate;
mod generate;
mod kv;
mod load;
pub mod npu;
mod plan;
pub mod sampling;

pub use engine::{BatchItem, Engine, EngineMemory, EngineOptions, LogitsFor, StepOutput};
pub use error::Error;
pub use generate::{Event, Finish, GenerateParams, Generation, Session, Timings, generate};
pub use kv::{PAGE_TOKENS, SeqId};
pub use load::{LoadedModel, tokenizer_of, tokenizer_of_files};
pub use millrace_kernels::{KvType, Level};
pub use plan::PlanError;
pub use sampling::{Sampler, SamplingParams};
