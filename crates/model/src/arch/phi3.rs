//! Phi 3, 3.5 and 4-mini: Llama with the three projections of attention in one matrix, gate and up projection in one, and
//! LongRoPE. Phi 4 also belongs to it.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::Biases;
use crate::config::hf::{ConfigObject, HfDefaults, HfObject, HfWindows};
use crate::names::WeightRole;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "phi3",
    gguf_arch: "phi3",
    hf_model_types: &["phi3"],
    hf_classes: &["Phi3ForCausalLM"],
    models: "Phi 3, 3.5, 4, 4-mini",
    hf_biases: Some(Biases::NONE),
    hf_rotates_part: true,
    hf_windows: HfWindows::Given,
    hf_norm_eps: 1e-5,
    hf_spelling,
    hf_defaults: HfDefaults {
        vocab_size: 32_064,
        d_model: 3072,
        d_ff: 8192,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(0),
    own_roles: &[WeightRole::AttnQkv],
    build,
    ..Family::PLAIN
};

/// The context before a stretch that the class takes without a key.
const ORIGINAL_CONTEXT: usize = 4096;

/// Takes the class's original context where there is none, and LongRoPE's name for its older ones.
fn hf_spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut map = text.map.clone();
    let original = map.entry("original_max_position_embeddings");
    let original = original.or_insert(Value::Null);
    if original.is_null() {
        *original = json!(ORIGINAL_CONTEXT);
    }
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(rope) = map.get_mut(key).and_then(Value::as_object_mut) else {
            continue;
        };
        for name in ["rope_type", "type"] {
            if let Some(old) = rope
                .get_mut(name)
                .filter(|old| **old == "su" || **old == "yarn")
            {
                *old = json!("longrope");
            }
        }
    }
    Ok(Some(map))
}

/// Llama's blocks with gate and up projection in one.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let out = attention::attend(b, layer, heads)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::gated_in_one(b, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
