//! MiniCPM: Llama with factors on embeddings, residual branches and logits.

use super::Family;
use crate::Error;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use millrace_format::gguf::GgufValue;

/// Factors that GGUF readers take where the keys are absent: those of the 2B.
pub(super) const EMBED_SCALE: f32 = 12.0;
pub(super) const SCALE_DEPTH: f32 = 1.4;
pub(super) const DIM_MODEL_BASE: f32 = 256.0;

pub(super) static FAMILY: Family = Family {
    name: "minicpm",
    gguf_arch: "minicpm",
    hf_model_types: &["minicpm"],
    hf_classes: &["MiniCPMForCausalLM"],
    models: "MiniCPM 1B, 2B, 4",
    permuted_in_gguf: true,
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 4096,
        d_ff: 11_008,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    hf,
    write_hf,
    write_gguf,
    ..Family::PLAIN
};

pub(super) fn write_hf(config: &ModelConfig, out: &mut serde_json::Value) {
    let depth = config.residual_scale * (config.n_layers as f32).sqrt();
    out["scale_emb"] = shortest(config.embed_scale);
    out["scale_depth"] = shortest(depth);
    let base = config.logit_scale * config.d_model as f32;
    // transformers accepts a whole number only.
    out["dim_model_base"] = match (base - base.round()).abs() < 1e-3 {
        true => (base.round() as u64).into(),
        false => shortest(base),
    };
}

pub(super) fn write_gguf(config: &ModelConfig, set: &mut super::SetKey<'_>) {
    // Absent keys mean the 2B's values.
    set("embedding_scale", GgufValue::F32(config.embed_scale));
    set("residual_scale", GgufValue::F32(config.residual_scale));
    set("logit_scale", GgufValue::F32(1.0 / config.logit_scale));
}

pub(super) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if keys.f32("embedding_scale")?.is_none() {
        config.embed_scale = EMBED_SCALE;
    }
    if keys.f32("residual_scale")?.is_none() {
        config.residual_scale = SCALE_DEPTH / (config.n_layers as f32).sqrt();
    }
    config.logit_scale = match keys.f32("logit_scale")? {
        // A divisor.
        Some(_) => 1.0 / config.logit_scale,
        None => DIM_MODEL_BASE / config.d_model as f32,
    };
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.embed_scale = text.f32("scale_emb")?.unwrap_or(1.0);
    if let Some(depth) = text.f32("scale_depth")? {
        config.residual_scale = depth / (config.n_layers as f32).sqrt();
    }
    if let Some(base) = text.f32("dim_model_base")? {
        config.logit_scale = base / config.d_model as f32;
    }
    Ok(())
}
