//! CPU kernels: a scalar oracle for every op, detected AVX2, AVX-512 and NEON levels, and the thread pool.
//!
//! A [`Cpu`] is opened once. Ops are safe functions that take it, check the lengths of their
//! slices, split the work over its threads and call leaf kernels of its level. The oracles in
//! [`oracle`] define each op.
//!
//! Batch invariance is a contract of every op here. The bits computed for a token do not depend on
//! the rest of the batch, on how a prompt is cut into chunks, or on the number of threads. The
//! order of additions behind each output element is therefore a function of format, level and the
//! token's own history alone.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod attention;
pub mod cpu;
pub mod elementwise;
mod error;
pub mod heap;
pub mod kv;
pub mod level;
pub mod matmul;
pub mod oracle;
pub mod pool;
pub mod recurrent;
pub mod roof;
pub mod table;
pub mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use attention::{AttentionInput, AttentionScratch, AttentionShape, attention, softmax};
pub use cpu::{Cpu, CpuOptions};
pub use elementwise::{
    Activation, RopeTable, activate, add, embed, glu, glu_clamped, layer_norm, multiply, rms_norm,
    rope, rope_from, scale, slice_heads, softcap, xielu,
};
pub use error::Error;
pub use kv::{KvBuffer, KvLayout, KvRun, KvSide, KvType, kv_append, kv_read};
pub use level::Level;
pub use pool::Pool;
pub use recurrent::{
    ChannelScanInput, ChannelScanShape, ConvInput, DeltaInput, DeltaShape, KimiDeltaInput,
    RuleShape, Rwkv7Input, SsmInput, SsmShape, StateRun, StateSlots, causal_conv, channel_scan,
    delta_net, kimi_delta, rwkv7, ssm_scan,
};
