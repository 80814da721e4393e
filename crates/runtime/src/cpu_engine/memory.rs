//! Memory requirements of an engine, computed without creating one.

use super::EngineOptions;
use crate::execute::Executor;
use crate::kv::{KvCache, KvSizes, ROLLBACK_TOKENS};
use crate::load::LoadedModel;
use crate::{CpuEngine, Error};
use millrace_model::{Model, ModelConfig};

/// Memory of an engine besides the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineMemory {
    /// Tokens a sequence may hold.
    pub n_ctx: usize,
    /// Bytes of the full cache of keys and values; saturates.
    pub kv_bytes: usize,
    /// Slots for states of recurrent layers, part of the cache: each keeps those of a sequence after a page's end.
    pub n_state_slots: usize,
    /// Bytes of a slot; 0 for a model without such layers.
    pub state_slot_bytes: usize,
    /// Bytes of scratch for activations; saturates.
    pub scratch_bytes: usize,
}

impl CpuEngine {
    /// The memory that [`CpuEngine::new`] would allocate. Nothing is allocated, so any context may
    /// be requested.
    ///
    /// # Errors
    /// As [`CpuEngine::new`], except for lack of memory.
    pub fn memory(model: &LoadedModel, options: &EngineOptions) -> Result<EngineMemory, Error> {
        EngineMemory::of(model.model(), options)
    }
}

impl EngineMemory {
    /// Memory for a model without its weights.
    pub(crate) fn of(model: &Model, options: &EngineOptions) -> Result<EngineMemory, Error> {
        let sizes = sizes(&model.config, options)?;
        let (n_state_slots, state_slot_bytes) = KvCache::slots_of(&model.graph, sizes)?;
        Ok(EngineMemory {
            n_ctx: sizes.n_ctx,
            n_state_slots,
            state_slot_bytes,
            kv_bytes: KvCache::bytes_of(&model.graph, sizes)?,
            scratch_bytes: Executor::scratch_bytes_of(model, sizes.max_chunk)?,
        })
    }
}

/// Positions are 32 bits wide in the kernels.
const MAX_CTX: usize = (1 << 31) - 1;

/// The sizes that the options request, checked.
pub(super) fn sizes(config: &ModelConfig, options: &EngineOptions) -> Result<KvSizes, Error> {
    let usual = config.usual_context();
    let n_ctx = options
        .n_ctx
        .unwrap_or(usual.min(EngineOptions::DEFAULT_MAX_CTX));
    at_least_one("ctx", n_ctx)?;
    check_rope(config, n_ctx)?;
    if n_ctx > MAX_CTX {
        let (found, expected) = (n_ctx.to_string(), "at most 2^31 - 1");
        return Err(Error::BadOption {
            option: "ctx",
            found,
            expected,
        });
    }
    at_least_one("max-sequences", options.max_sequences)?;
    at_least_one("max-chunk", options.max_chunk)?;
    let all = n_ctx.saturating_mul(options.max_sequences);
    Ok(KvSizes {
        dtype: options.kv_type,
        n_ctx,
        kv_tokens: options.kv_tokens.unwrap_or(all),
        max_sequences: options.max_sequences,
        // An encoder reads a text at once.
        max_chunk: match config.encoder {
            Some(_) => options.max_chunk.max(n_ctx),
            None => options.max_chunk.min(all),
        },
        keep_prefixes: options.keep_prefixes,
        rollback_tokens: ROLLBACK_TOKENS,
    })
}

/// Refuses a context in which positions would rotate differently from the model's RoPE.
pub(crate) fn check_rope(config: &ModelConfig, n_ctx: usize) -> Result<(), Error> {
    let mut config = config.clone();
    config.choose_rope(n_ctx);
    match config.position_limit() {
        Some(limit) if n_ctx > limit => Err(Error::BeyondRope {
            n_ctx,
            limit,
            has_table: config.has_position_table(),
        }),
        _ => Ok(()),
    }
}

fn at_least_one(option: &'static str, value: usize) -> Result<(), Error> {
    if value == 0 {
        let found = value.to_string();
        return Err(Error::BadOption {
            option,
            found,
            expected: "at least 1",
        });
    }
    Ok(())
}
