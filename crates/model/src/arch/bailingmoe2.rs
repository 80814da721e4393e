//! Ling 2 and Ring 2: Qwen 3's blocks whose heads rotate in part. Experts by sigmoid in groups have a bias for the choice,
//! and shared ones beside. Queries, keys and values are one matrix.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use super::glm4moe::{SHARED_EXPERTS, SUM_EPS};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared};
use crate::config::{Biases, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use millrace_graph::{Gating, ValueId};
use serde_json::json;

/// Common part of all families with these blocks.
pub(super) const COMMON: Family = Family {
    gguf_arch: "bailingmoe2",
    hf_names: &[
        (WeightRole::TokenEmbedding, "word_embeddings"),
        (WeightRole::AttnQkv, "attention.query_key_value"),
        (WeightRole::AttnOutput, "attention.dense"),
        (WeightRole::AttnQNorm, "attention.query_layernorm"),
        (WeightRole::AttnKNorm, "attention.key_layernorm"),
        (WeightRole::RouterBias, "mlp.gate.expert_bias!"),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    hf_qk_norm: Some("use_qk_norm"),
    hf_biases: Some(NO_BIASES),
    own_roles: &[WeightRole::AttnQkv],
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    gguf,
    hf,
    write_hf,
    write_gguf: |config, set| {
        // Readers multiply it by the number of shared experts.
        if let Some(experts) = &config.experts {
            let width = u32::try_from(experts.d_ff).unwrap_or(u32::MAX);
            set("expert_shared_feed_forward_length", GgufValue::U32(width));
        }
    },
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

/// Ling's words for experts.
pub(super) const EXPERTS: HfExperts = HfExperts {
    n_experts: ("num_experts", 256),
    d_ff: ("moe_intermediate_size", 512),
    normalized: Some(("norm_topk_prob", true)),
    scale: Some(("routed_scaling_factor", 1.0)),
    groups: Some([("n_group", 8), ("topk_group", 4)]),
    choice_bias: true,
    shared: HfShared::Count("num_shared_experts", 1),
    n_dense_layers: Some(("first_k_dense_replace", 1)),
    ..HfExperts::PLAIN
};

pub(super) static FAMILY: Family = Family {
    name: "bailingmoe2",
    // Ling 2's files have the first one's type.
    hf_model_types: &["bailing_moe_v2", "bailing_moe"],
    hf_classes: &["BailingMoeV2ForCausalLM"],
    models: "Ling 2, Ring 2 (mini, flash, 1T)",
    hf_partial_rotary: 0.5,
    hf_experts: Some(EXPERTS),
    hf_defaults: HfDefaults {
        vocab_size: 157_184,
        d_model: 2048,
        d_ff: 5120,
        n_layers: 20,
        n_heads: 16,
        n_kv_heads: Some(4),
        head_dim: Some(128),
        context_length: 32_768,
        tied_head: false,
        rope_theta: 600_000.0,
    },
    ..COMMON
};

pub(super) const NO_BIASES: Biases = Biases::NONE;

/// The key of shared experts' width gives that of one of them; the tensor has the width of all.
fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let layers = 0..config.n_layers;
    if let Some(experts) = &mut config.experts {
        let of = |layer| keys.shape(TensorName::block(layer, WeightRole::SharedUp));
        if let Some(&[d_ff, _]) = layers.clone().find_map(of) {
            experts.shared_d_ff = d_ff;
        }
    }
    Ok(())
}

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    refuse_variants(text)?;
    config.qk_norm = text.bool("use_qk_norm")?.unwrap_or(true);
    let score = text.str("score_function")?.unwrap_or("sigmoid");
    if score != "sigmoid" {
        return Err(text.unsupported(format!("`score_function` = {score}"), "sigmoid"));
    }
    Ok(())
}

/// Refuses variants that no published model of either generation has.
pub(super) fn refuse_variants(text: &ConfigObject<'_>) -> Result<(), Error> {
    for key in ["use_qkv_bias", "use_bias", "norm_head", "norm_softmax"] {
        if text.bool(key)? == Some(true) {
            return Err(text.unsupported(format!("`{key}`"), "models without it"));
        }
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut serde_json::Value) {
    out["score_function"] = json!("sigmoid");
    out["moe_router_enable_expert_bias"] = json!(true);
    out["moe_shared_expert_intermediate_size"] =
        json!(config.experts.as_ref().map(|experts| experts.d_ff));
    out["use_qkv_bias"] = json!(false);
    out["use_bias"] = json!(false);
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let mut heads = attention::project(b, normed)?;
    if b.config().qk_norm {
        heads = attention::norm_heads(b, heads)?;
    }
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
