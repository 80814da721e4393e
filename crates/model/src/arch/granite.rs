//! Granite 3 and 4, dense: Llama with factors on embeddings, attention scores, residual branches and logits.

use super::Family;
use crate::Error;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, shortest};
use serde_json::Value;

pub(super) static FAMILY: Family = Family {
    name: "granite",
    gguf_arch: "granite",
    hf_model_types: &["granite"],
    hf_classes: &["GraniteForCausalLM"],
    models: "Granite 3.x and 4 (dense)",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    logit_divisor: true,
    gguf,
    hf,
    write_hf,
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, _config: &mut ModelConfig) -> Result<(), Error> {
    if keys.bool("rope.scaling.finetuned")? == Some(false) {
        // There the key switches rotation off (llama.cpp, `granite.cpp`).
        let feature = "no RoPE at all (`granite.rope.scaling.finetuned` = false)".into();
        return Err(keys.unsupported(feature, "RoPE in every layer"));
    }
    Ok(())
}

/// The four factors, which all of Granite's families have.
pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let factor = |key: &str| Ok::<_, Error>(text.f32(key)?.unwrap_or(1.0));
    config.embed_scale = factor("embedding_multiplier")?;
    config.attention_scale = factor("attention_multiplier")?;
    config.logit_scale = 1.0 / factor("logits_scaling")?;
    Ok(())
}

/// Writes the four factors.
pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    out["embedding_multiplier"] = shortest(config.embed_scale);
    out["attention_multiplier"] = shortest(config.attention_scale);
    out["residual_multiplier"] = shortest(config.residual_scale);
    out["logits_scaling"] = shortest(1.0 / config.logit_scale);
}
