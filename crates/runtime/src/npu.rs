//! A model on an NPU: plans from [`millrace_xdna2::lower`] run as seed 000 A3–A7 and B6–B9 tell.
//!
//! [`NpuModel`] is what sessions share: plans, programs, and weights in buffer objects, decoded
//! straight from the checkpoint into them. [`NpuSession`] is one sequence: the host's copies of
//! values, the KV cache, and the steps between dispatches. [`generate`] is the loop over it, as
//! [`crate::generate`] is over an engine.
//!
//! What crosses between steps is bf16 `[n_rows, width]`, as the slots say; host steps compute in
//! f32 within a step. Prompts are padded to the length of a plan with the end token. Attention is
//! causal and everything else goes by rows, so what the padding holds changes no bit at a real position
//! (seed 000 A6); its keys and values are not kept. Nor does the plan's length: flash attention has the
//! same tiles of keys and the same deal of them at every bucket and at every length of whole tiles, so
//! a padded prompt and an unpadded one have the same bits. Later chunks see the cache, on the host or
//! by a mapping of its own, whose order of sums is another one.

mod attention;
mod cached;
mod check;
mod counters;
mod error;
mod generate;
mod host;
mod model;
mod observe;
mod pass;
mod prepared;
mod session;
mod weights;

pub use check::{CheckSummary, Finding, OpCheck, Wrong};
pub use counters::{Counters, PhaseCounters};
pub use error::NpuError;
pub use generate::generate;
pub use millrace_xdna2::lower::{Feature, Features, Mode};
pub use model::{NpuMemory, NpuModel, NpuOptions};
pub use observe::{Observation, Observer};
pub use session::NpuSession;
