//! A model on an NPU: plans of a target ([`millrace_plan::Planner`]) run on its device.
//!
//! [`NpuModel`] is shared by sequences: plans, programs, and weights in buffer objects, decoded straight
//! from the checkpoint into them. [`PlannedEngine`] is an [`Engine`](crate::Engine) over it: the host's
//! copies of values, the KV cache, and the steps between dispatches, which run on the CPU's kernels.
//! [`NpuSession`] is a single sequence, for checks and measurements.
//!
//! Values between steps are bf16 `[n_rows, width]` on the host, and in the slots' element types on the
//! device; host steps compute in f32 within a step. Prompts are padded to the length of a plan with the
//! end token. Attention is causal and everything else goes by rows, so the padding changes no bit at a
//! real position. Its keys and values are not kept.

mod attention_products;
mod cached;
mod counters;
mod device_cache;
mod engine;
mod error;
mod experts;
mod filling;
mod given;
mod host;
mod model;
mod observe;
mod pass;
mod prepared;
mod progress;
mod room;
mod session;
mod shares;
mod states;
mod weights;

pub use counters::{DeviceCounters, PhaseCounters};
pub use engine::PlannedEngine;
pub use error::NpuError;
pub use experts::ExpertDispatch;
pub use given::GivenExperts;
pub use model::{NpuMemory, NpuModel, NpuOptions};
pub use observe::{Observation, Observer};
pub use progress::LoadProgress;
pub use session::NpuSession;
pub use shares::{HostShare, Shares};
