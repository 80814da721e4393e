//! Persimmon: LayerNorms, a network without a gate, biases everywhere, norms of heads, half of a head that rotates.
//! llama.cpp has no name for it.

use super::Family;
use super::block::attention::{self, Heads};
use super::block::{self, norm};
use super::bloom::unsayable_heads;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::ACTIVATION_KEY;
use crate::config::hf::{HfDefaults, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::{Activation, ValueId};
use serde_json::json;

const QK_NORM: &str = "qk_layernorm";

pub(super) static FAMILY: Family = Family {
    name: "persimmon",
    gguf_arch: "persimmon",
    hf_model_types: &["persimmon"],
    hf_classes: &["PersimmonForCausalLM"],
    hf_names: &[
        (WeightRole::AttnQkv, "self_attn.query_key_value"),
        (WeightRole::AttnQNorm, "self_attn.q_layernorm"),
        (WeightRole::AttnKNorm, "self_attn.k_layernorm"),
        (WeightRole::AttnOutput, "self_attn.dense"),
        (WeightRole::FfnUp, "mlp.dense_h_to_4h"),
        (WeightRole::FfnDown, "mlp.dense_4h_to_h"),
        (WeightRole::OutputNorm, "final_layernorm"),
    ],
    activation: Activation::ReluSquared,
    gguf_own_keys: &[ACTIVATION_KEY],
    models: "Persimmon 8B",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_qk_norm: Some(QK_NORM),
    hf_partial_rotary: 0.5,
    hf_defaults: HfDefaults {
        vocab_size: 262_144,
        d_model: 4096,
        d_ff: 16_384,
        n_layers: 36,
        n_heads: 64,
        n_kv_heads: None,
        head_dim: None,
        context_length: 16_384,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::AttnQNorm,
        WeightRole::AttnKNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    hf: |text, config| {
        // The class has no such keys; files may.
        config.n_kv_heads = config.n_heads;
        config.qk_norm = text.bool(QK_NORM)?.unwrap_or(true);
        Ok(())
    },
    write_hf: |config, out| {
        out["layer_norm_eps"] = shortest(config.norm_eps);
        out[QK_NORM] = json!(config.qk_norm);
        if let Some(map) = out.as_object_mut() {
            map.remove("rms_norm_eps");
            map.remove("num_key_value_heads");
            map.remove("head_dim");
        }
    },
    hf_unsayable: |config: &ModelConfig| unsayable_heads(config, "Persimmon"),
    build: |b| block::decoder(b, |b, layer, x| block::ungated(b, layer, project, x)),
    ..Family::PLAIN
};

/// Heads of one matrix, those of queries and keys normed.
fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    let heads = attention::project_by_groups(b, x)?;
    if !b.config().qk_norm {
        return Ok(heads);
    }
    let head_dim = b.heads().head_dim;
    Ok(Heads {
        q: norm::layer(b, "attn_q_norm", (WeightRole::AttnQNorm, head_dim), heads.q)?,
        k: norm::layer(b, "attn_k_norm", (WeightRole::AttnKNorm, head_dim), heads.k)?,
        ..heads
    })
}
