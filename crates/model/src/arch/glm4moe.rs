//! GLM 4.5 to 4.7: experts by sigmoid with a bias for the choice, a shared one, part of each head rotates.

use super::Family;
use super::block::draft::DraftLayer;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::{Gating, ValueId};
use serde_json::json;

/// Names of shared experts in files of GLM and DeepSeek.
pub(super) const SHARED_EXPERTS: [(WeightRole, &str); 3] = [
    (WeightRole::SharedGate, "mlp.shared_experts.gate_proj"),
    (WeightRole::SharedUp, "mlp.shared_experts.up_proj"),
    (WeightRole::SharedDown, "mlp.shared_experts.down_proj"),
];

/// The share of a head that rotates.
const PARTIAL_KEY: &str = "partial_rotary_factor";

/// Added to the sum that weights are divided by (transformers, `Glm4MoeTopkRouter`).
pub(super) const SUM_EPS: f32 = 1e-20;

pub(super) static FAMILY: Family = Family {
    name: "glm4moe",
    gguf_arch: "glm4moe",
    hf_model_types: &["glm4_moe"],
    hf_classes: &["Glm4MoeForCausalLM"],
    models: "GLM 4.5, 4.5 Air, 4.6, 4.7",
    hf_norm_eps: 1e-5,
    hf_qk_norm: Some("use_qk_norm"),
    hf_own_biases: true,
    hf_names: &[
        // GGUF files call the norm before the feed-forward so.
        (WeightRole::AttnPostNorm, "post_attention_layernorm"),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    hf_rotates_part: true,
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 128),
        d_ff: ("moe_intermediate_size", 1408),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Count("n_shared_experts", 1),
        n_dense_layers: Some(("first_k_dense_replace", 1)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 151_552,
        d_model: 4096,
        d_ff: 10_944,
        n_layers: 46,
        n_heads: 96,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 131_072,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    write_hf: |config, out| {
        out["attention_bias"] = json!(config.biases.qkv);
        // The class takes half of a head where nothing is said.
        if config.n_rot == config.head_dim {
            out[PARTIAL_KEY] = json!(1.0);
        }
    },
    hf_unsayable,
    draft: Some(DraftLayer::behind(block)),
    build,
    ..Family::PLAIN
};

/// Biases of other projections than queries, keys and values.
pub(super) fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let Biases {
        attn_output, ffn, ..
    } = config.biases;
    (attn_output || ffn).then(|| format!("{:?} in {}", config.biases, config.family))
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases = Biases {
        qkv: text.bool("attention_bias")?.unwrap_or(false),
        ..Biases::NONE
    };
    let key = PARTIAL_KEY;
    let nested = text.object("rope_parameters")?;
    if nested.is_none_or(|rope| rope.get(key).is_none()) && text.get(key).is_none() {
        config.n_rot = config.head_dim / 2;
    }
    Ok(())
}

pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

/// Attention, and the network behind it.
fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let mut heads = attention::project(b, normed)?;
    if b.config().qk_norm {
        heads = attention::norm_heads(b, heads)?;
    }
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::AttnPostNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
