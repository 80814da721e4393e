//! gpt-oss: attention with sinks and windows on every second layer, experts with biases behind a bounded gate.

use super::block::feed_forward::{self, GluBound, Inner};
use super::block::{self, attention, norm};
use super::{Family, GateOrder};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::{Keys, YARN_TRUNCATE};
use crate::config::hf::{
    ConfigObject, HfDefaults, HfExperts, HfWindows, PACKING_KEY, refuse_packing,
};
use crate::config::{ModelConfig, RopeScaling, YarnScaling};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, Gating, GluClamp};

/// The activation of the published models; `config.json` may repeat it.
const CLAMP: GluClamp = GluClamp {
    alpha: 1.702,
    limit: 7.0,
};

pub(super) static FAMILY: Family = Family {
    name: "gpt-oss",
    gguf_arch: "gpt-oss",
    hf_model_types: &["gpt_oss"],
    hf_classes: &["GptOssForCausalLM"],
    models: "gpt-oss 20B and 120B",
    hf_norm_eps: 1e-5,
    hf_turned_experts: Some(GateOrder::Alternating),
    hf_own_keys: &[PACKING_KEY],
    own_roles: &[WeightRole::AttnSinks],
    hf_names: &[
        // GGUF files call the norm before the feed-forward so.
        (WeightRole::AttnPostNorm, "post_attention_layernorm"),
        (WeightRole::Router, "mlp.router"),
        (WeightRole::ExpertsDown, "mlp.experts.down_proj!"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 128),
        n_used: ("num_experts_per_tok", 4),
        d_ff: ("intermediate_size", 2880),
        biases: true,
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::SoftmaxChosen,
        normalized: None,
        group_best: 2,
    },
    hf_windows: HfWindows::Pattern {
        window: 128,
        pattern: 2,
    },
    gguf_window_pattern: Some(2),
    hf_defaults: HfDefaults {
        vocab_size: 201_088,
        d_model: 2880,
        d_ff: 2880,
        n_layers: 36,
        n_heads: 64,
        n_kv_heads: Some(8),
        head_dim: Some(64),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 150_000.0,
    },
    gguf: |keys: &Keys<'_>, config| {
        // As every published model; llama.cpp has no key for it.
        if let RopeScaling::Yarn(yarn) = &mut config.rope.scaling {
            yarn.truncates = keys.bool(YARN_TRUNCATE)?.unwrap_or(false);
        }
        Ok(())
    },
    write_gguf: |config, set| {
        if let RopeScaling::Yarn(yarn) = &config.rope.scaling {
            set(YARN_TRUNCATE, GgufValue::Bool(yarn.truncates));
        }
    },
    hf,
    build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    refuse_other_packing(text)?;
    // The class computes it for any `hidden_act`.
    config.activation = Activation::Silu;
    let biased = text.bool("attention_bias")?.unwrap_or(true);
    config.biases.qkv = biased;
    config.biases.attn_output = biased;
    for (key, usual) in [("swiglu_alpha", CLAMP.alpha), ("swiglu_limit", CLAMP.limit)] {
        if let Some(found) = text.f32(key)?.filter(|found| *found != usual) {
            let feature = format!("another activation (`{key}` = {found})");
            return Err(text.unsupported(feature, &usual.to_string()));
        }
    }
    if text.object("rope_parameters")?.is_none() && text.object("rope_scaling")?.is_none() {
        config.rope.scaling = class_scaling();
    }
    Ok(())
}

/// Refuses packed matrices but the published MXFP4, which are tensors of blocks and of scales, and what quantisers write.
fn refuse_other_packing(text: &ConfigObject<'_>) -> Result<(), Error> {
    let method = text
        .get(PACKING_KEY)
        .and_then(|packing| packing.get("quant_method"));
    match method.is_some_and(|method| method == "mxfp4") {
        true => Ok(()),
        false => refuse_packing(text),
    }
}

/// Scaling that the class takes where `config.json` has no key for RoPE's scaling.
fn class_scaling() -> RopeScaling {
    let factor = 32.0;
    RopeScaling::Yarn(YarnScaling {
        factor,
        original_context: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: YarnScaling::recommended_attention_factor(factor, 1.0),
        score_mscale: None,
        truncates: false,
    })
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let out = attention::attend(b, layer, heads)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::AttnPostNorm, x)?;
        let out = feed_forward::network_of(
            b,
            Inner::Gated(Some(GluBound::Inputs(CLAMP))),
            layer,
            normed,
        )?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
