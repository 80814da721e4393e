//! AFMoE (Trinity): norms before and behind both halves of a block, norms of heads, a gate on the attention's output. Heads
//! rotate only in layers with a window. Experts are chosen by sigmoid with a bias for the choice, beside shared ones.

use super::Family;
use super::block::{self, attention, feed_forward, gated_attention, norm};
use super::glm4moe::{SHARED_EXPERTS, SUM_EPS};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared, HfWindows};
use crate::names::{HfNorms, WeightRole};
use millrace_graph::{Gating, ValueId};
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "afmoe",
    gguf_arch: "afmoe",
    hf_model_types: &["afmoe"],
    hf_classes: &["AfmoeForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    hf_names: &[
        (WeightRole::AttnGate, "self_attn.gate_proj"),
        (WeightRole::FfnNorm, "pre_mlp_layernorm"),
        (WeightRole::FfnPostNorm, "post_mlp_layernorm"),
        (WeightRole::Router, "mlp.router.gate"),
        (WeightRole::RouterBias, "mlp.expert_bias!"),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    models: "Trinity Nano, Mini, Large (AFMoE)",
    scaled_embeddings: true,
    hf_norm_eps: 1e-5,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 64),
        n_used: ("num_experts_per_tok", 6),
        d_ff: ("moe_intermediate_size", 1408),
        normalized: Some(("route_norm", true)),
        scale: Some(("route_scale", 1.0)),
        choice_bias: true,
        shared: HfShared::Count("num_shared_experts", 2),
        n_dense_layers: Some(("num_dense_layers", 1)),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_windows: HfWindows::Pattern {
        window: 1024,
        pattern: 4,
    },
    hf_defaults: HfDefaults {
        vocab_size: 200_192,
        d_model: 2048,
        d_ff: 6144,
        n_layers: 32,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: Some(128),
        context_length: 16_384,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(4),
    gguf: |_: &Keys<'_>, config| {
        config.unrotated_layers = config.global_layers();
        Ok(())
    },
    hf,
    write_hf: |config, out| {
        out["mup_enabled"] = json!(config.embed_scale != 1.0);
    },
    build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if !text.bool("mup_enabled")?.unwrap_or(false) {
        config.embed_scale = 1.0;
    }
    if let Some(every) = text.usize("global_attn_every_n_layers")?
        && text.get("layer_types").is_none()
        && config.window.is_some()
    {
        if every == 0 {
            let key = "global_attn_every_n_layers";
            return Err(text.bad(key, &json!(0), "at least 1"));
        }
        let slides = |layer: usize| !(layer + 1).is_multiple_of(every);
        config.layer_windowed = (0..config.n_layers).map(slides).collect();
    }
    config.unrotated_layers = config.global_layers();
    Ok(())
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = attention::norm_heads(b, heads)?;
    let out = gated_attention::attend_gated(b, layer, normed, heads)?;
    let out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    let out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
    Ok(b.residual("ffn_residual", x, out))
}
