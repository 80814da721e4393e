//! Phi 3.5 MoE, Phi mini and tiny MoE: Phi 3's attention in three matrices, LayerNorms, biases, a head with a bias, and experts that
//! SparseMixer weighs. llama.cpp computes RMSNorms and a softmax of the two best in their place. transformers computes the published
//! functions.

use super::Family;
use super::family::ExpertDefaults;
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfWindows, shortest};
use crate::config::{ModelConfig, RopeScaling};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::Gating;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "phimoe",
    gguf_arch: "phimoe",
    hf_model_types: &["phimoe"],
    hf_classes: &["PhimoeForCausalLM", "PhiMoEForCausalLM"],
    models: "Phi 3.5 MoE, Phi mini MoE",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Given,
    gguf_window_pattern: Some(0),
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.gate"),
        (WeightRole::ExpertsGate, "block_sparse_moe.experts.{}.w1"),
        (WeightRole::ExpertsUp, "block_sparse_moe.experts.{}.w3"),
        (WeightRole::ExpertsDown, "block_sparse_moe.experts.{}.w2"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 16),
        n_used: ("num_experts_per_tok", 2),
        d_ff: ("intermediate_size", 6400),
        ..HfExperts::PLAIN
    }),
    experts: ExpertDefaults {
        gating: Gating::SparseMixer,
        normalized: None,
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 32_064,
        d_model: 4096,
        d_ff: 6400,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 131_072,
        tied_head: false,
        rope_theta: 1_000_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
        WeightRole::Output,
    ],
    hf,
    write_hf: |config, out| {
        out["lm_head_bias"] = json!(true);
        out["rms_norm_eps"] = shortest(config.norm_eps);
        if let RopeScaling::Long(long) = &config.rope.scaling {
            for key in MSCALES {
                out["rope_parameters"][key] = shortest(long.attention_factor);
            }
        }
    },
    // llama.cpp's reader asks for this name.
    write_gguf: |config, set| {
        set(
            "attention.layer_norm_rms_epsilon",
            GgufValue::F32(config.norm_eps),
        );
    },
    ..Family::PLAIN
};

/// Factors on cosines and sines, in short and in long contexts.
const MSCALES: [&str; 2] = ["short_mscale", "long_mscale"];

/// `router_jitter_noise` of every published model, half of [`millrace_graph::SPARSE_MIXER_REACH`].
const JITTER: f32 = 0.01;

const N_USED: usize = 2;

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if let Some(eps) = text.f32("rms_norm_eps")? {
        config.norm_eps = eps;
    }
    if text.bool("lm_head_bias")? != Some(true) {
        let feature = "a head without a bias (`lm_head_bias`)".into();
        return Err(text.unsupported(feature, "`lm_head_bias` = true"));
    }
    if let Some(experts) = config.experts.as_ref().filter(|e| e.n_used != N_USED) {
        let feature = format!("`num_experts_per_tok` = {}", experts.n_used);
        return Err(text.unsupported(feature, "2: the class chooses two whatever it says"));
    }
    let jitter = text.f32("router_jitter_noise")?.unwrap_or(JITTER);
    if jitter != JITTER {
        let feature = format!("`router_jitter_noise` = {jitter}");
        return Err(text.unsupported(feature, "0.01"));
    }
    let rope = match text.object("rope_scaling")? {
        Some(rope) => Some(rope),
        None => text.object("rope_parameters")?,
    };
    if let (Some(rope), RopeScaling::Long(long)) = (rope, &mut config.rope.scaling) {
        let [short, of_long] = [rope.f32(MSCALES[0])?, rope.f32(MSCALES[1])?];
        if short != of_long {
            let feature = format!("`short_mscale` = {short:?} beside `long_mscale` = {of_long:?}");
            return Err(text.unsupported(feature, "one factor"));
        }
        long.attention_factor = short.unwrap_or(long.attention_factor);
    }
    Ok(())
}
