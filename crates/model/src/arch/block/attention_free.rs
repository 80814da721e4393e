//! Models whose blocks are a recurrent layer and nothing else: no attention, no feed-forward.

use super::recurrent::{self, number};
use super::{decoder, norm};
use crate::Error;
use crate::arch::SetKey;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use serde_json::Value;

/// The trained context where files give none: such models have no positions. llama.cpp's converter writes the same number.
pub(in crate::arch) const CONTEXT: usize = 1 << 20;

/// Sets sizes that such a model lacks to 1: nothing reads them.
pub(in crate::arch) fn set(config: &mut ModelConfig) {
    config.d_ff = 1;
    config.n_heads = 1;
    config.n_kv_heads = 1;
    config.head_dim = 1;
    config.n_rot = 0;
    config.attention_scale = 1.0;
    config.biases = Biases::default();
}

/// Writes zeros, as llama.cpp's files have them.
pub(in crate::arch) fn write_gguf(set: &mut SetKey<'_>) {
    for key in [
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
    ] {
        set(key, number(0));
    }
}

/// Reads the keys that all classes of Mamba share.
pub(in crate::arch) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    set(config);
    config.norm_eps = text.f32("layer_norm_epsilon")?.unwrap_or(1e-5);
    Ok(())
}

/// Writes them, and removes the words for the parts that such a model lacks.
pub(in crate::arch) fn write_hf(config: &ModelConfig, out: &mut Value) {
    out["layer_norm_epsilon"] = shortest(config.norm_eps);
    let Some(words) = out.as_object_mut() else {
        return;
    };
    for key in [
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "rope_parameters",
        "partial_rotary_factor",
    ] {
        words.remove(key);
    }
}

pub(in crate::arch) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let out = recurrent::mix(b, layer, b.config().activation, normed)?;
        Ok(b.residual("residual", x, out))
    })
}
