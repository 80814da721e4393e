//! Command with experts: Command A's blocks, in which experts and shared ones run beside the attention, half of each.

use super::Family;
use super::block::feed_forward::{self, Inner};
use super::block::{self, attention, experts, norm};
use super::cohere;
use super::glm4moe::SHARED_EXPERTS;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared, HfWindows};
use crate::names::WeightRole;
use millrace_graph::{Gating, ValueId};
use serde_json::json;

/// The factor of experts, and of shared ones, in their sum.
const HALF: f32 = 0.5;

pub(super) static FAMILY: Family = Family {
    name: "cohere2moe",
    gguf_arch: "cohere2moe",
    hf_model_types: &["cohere2_moe"],
    hf_classes: &["Cohere2MoeForCausalLM"],
    hf_names: &SHARED_EXPERTS,
    models: "Command with experts (30B-A3B)",
    interleaved: true,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 8),
        n_used: ("num_experts_per_tok", 2),
        d_ff: ("intermediate_size", 22_528),
        normalized: Some(("norm_topk_prob", true)),
        shared: HfShared::Count("num_shared_experts", 0),
        n_dense_layers: Some(("first_k_dense_replace", 0)),
        layer_kinds: Some("mlp_layer_types"),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(0.0),
        group_best: 2,
    },
    hf_windows: HfWindows::Pattern {
        window: 4096,
        pattern: 4,
    },
    hf_defaults: HfDefaults {
        vocab_size: 256_000,
        d_model: 8192,
        d_ff: 22_528,
        n_layers: 40,
        n_heads: 64,
        n_kv_heads: None,
        head_dim: Some(128),
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(4),
    first_layer_is_global: true,
    gguf,
    hf,
    write_hf,
    build: |b| block::decoder(b, beside),
    ..Family::PLAIN
};

/// Layers without a window do not rotate, but for leading dense ones.
fn leave_global_unrotated(config: &mut ModelConfig) {
    let mut unrotated = config.global_layers();
    unrotated.retain(|layer| config.experts.is_none() || config.experts_of(*layer).is_some());
    config.unrotated_layers = unrotated;
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if keys.f32("attention.layer_norm_epsilon")?.is_none() {
        let feature = "norms without the mean (`attention.layer_norm_rms_epsilon`)".into();
        return Err(keys.unsupported(feature, "`attention.layer_norm_epsilon`"));
    }
    leave_global_unrotated(config);
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.logit_scale = cohere::logit_scale(text)?;
    if text.f32("rms_norm_eps")?.is_some() {
        let feature = "norms without the mean (`rms_norm_eps`)".into();
        return Err(text.unsupported(feature, "`rms_norm_eps` = null"));
    }
    if let Some(width) = text.usize("prefix_dense_intermediate_size")? {
        config.d_ff = width;
    }
    let Some(experts) = &mut config.experts else {
        return Ok(());
    };
    match text.str("expert_selection_fn")?.unwrap_or("softmax") {
        "softmax" => (experts.gating, experts.normalized) = (Gating::SoftmaxChosen, None),
        "sigmoid" => {}
        other => {
            let feature = format!("`expert_selection_fn` = {other}");
            return Err(text.unsupported(feature, "softmax, sigmoid"));
        }
    }
    let key = "shared_expert_combination_strategy";
    let how = text.str(key)?.unwrap_or("average");
    if experts.shared_d_ff > 0 && how != "average" {
        return Err(text.unsupported(format!("`{key}` = {how}"), "average"));
    }
    let n_dense = experts.n_dense_layers;
    let key = "prefix_dense_sliding_window_pattern";
    let of_prefix = text.usize(key)?.unwrap_or(1);
    let has_dense = n_dense > 0 || !experts.dense_layers.is_empty();
    if has_dense && of_prefix != 1 {
        let feature = format!("`{key}` = {of_prefix}");
        return Err(text.unsupported(feature, "1: dense layers have no window, and rotate"));
    }
    if text.get("layer_types").is_none() && config.window.is_some() {
        // The period begins after the dense layers.
        let period = text.usize("sliding_window_pattern")?.unwrap_or(4).max(1);
        let slides =
            |layer: usize| layer >= n_dense && !(layer - n_dense + 1).is_multiple_of(period);
        config.layer_windowed = (0..config.n_layers).map(slides).collect();
    }
    leave_global_unrotated(config);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut serde_json::Value) {
    cohere::write(config, out);
    out["rms_norm_eps"] = serde_json::Value::Null;
    out["prefix_dense_intermediate_size"] = json!(config.d_ff);
    let gating = config.experts.as_ref().map(|experts| experts.gating);
    out["expert_selection_fn"] = match gating {
        Some(Gating::SoftmaxChosen) => json!("softmax"),
        _ => json!("sigmoid"),
    };
}

fn beside(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let attended = attention::attend(b, layer, heads)?;
    let out = match b.config().experts_of(layer) {
        Some(config) if config.shared_d_ff > 0 => {
            let sum = experts::mixture(b, config, Inner::Gated(None), normed)?;
            b.scale("ffn_mean", HALF, sum)
        }
        _ => feed_forward::network(b, layer, normed)?,
    };
    let x = b.residual("attn_residual", x, attended);
    Ok(b.residual("ffn_residual", x, out))
}
