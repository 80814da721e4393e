//! The inference engine: from a loaded model and tokens to logits, and from a prompt to text.
//!
//! [`LoadedModel`] is a checkpoint with its graph, tokenizer and template. An [`Engine`] runs it, on the CPU as [`CpuEngine`]:
//! [`Engine::step`] takes a ragged batch (each item a sequence and the tokens to append, prompt chunks and single decode tokens
//! mixed) and returns logits. A [`Turn`] turns logits into text: sampling, stop conditions, limits. The owner of engine and turns
//! decides what runs when. [`generate`] is the loop most callers want: one turn, on one sequence, with prefix reuse.
//! [`speculate_turn`] is the same with drafts ([`speculate`]), [`GenerationRun`] its single steps, and [`generate_batch`] the loop
//! for many prompts.
//!
//! [`npu`] is the engine for models on any NPU.
//!
//! Every session is reproducible from model, tokens, seed and instruction-set level, whatever else
//! shares the batch. The kernels promise bit-identical rows (see `millrace_kernels`). This crate
//! adds no arithmetic except that of adapters, row by row.
#![forbid(unsafe_code)]

mod assistant;
mod batch;
mod cpu_engine;
pub mod disk;
mod embedding;
mod engine;
mod error;
mod execute;
mod generate;
mod host_memory;
pub mod image;
mod kv;
mod load;
mod lora;
pub mod npu;
pub mod ranking;
pub mod ranks;
mod recommended;
pub mod sampling;
mod sequences;
mod shell;
pub mod speculate;
mod turn;
pub mod vision;

pub use assistant::Assistant;
pub use batch::{generate_batch, generate_each};
pub use cpu_engine::{CpuEngine, EngineMemory, EngineOptions};
pub use embedding::{Embedder, Embedding, EmbeddingPrompts, Pooling, cut_embedding};
pub use engine::{
    BatchItem, Engine, EngineCounters, EngineLimits, ItemRows, KvUsage, LogitsFor, StepOutput,
    StepShape, StepSink,
};
pub use error::Error;
pub use execute::{Numbers, PlanError, decode_vectors};
pub use generate::{
    Finish, GenerateParams, Generation, GenerationEvent, GenerationRun, Timings, generate,
    generate_turn, speculate_turn,
};
pub use host_memory::HostMemory;
pub use image::Image;
pub use kv::{PAGE_TOKENS, PrefixCounters, ROLLBACK_TOKENS};
pub use load::{LoadedModel, tokenizer_of, tokenizer_of_files};
pub use lora::{AdapterSet, LoraAdapter};
pub use millrace_kernels::{Cpu, CpuOptions, KvType, Level};
pub use millrace_model::ImageSight;
pub use sampling::{Sampler, SamplingParams};
pub use sequences::SeqId;
pub use shell::{Compute, EngineOf};
pub use speculate::{ShortHeadSize, SpeculationStats, Speculator};
pub use turn::{Feed, Phase, Thinking, Turn, TurnPiece};
pub use vision::VisionEncoder;
