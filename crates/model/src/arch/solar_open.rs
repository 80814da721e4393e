//! Solar Open: GLM 4.5's blocks without norms of heads and without dense layers, whose heads rotate as a whole. Its GGUF
//! files call themselves `glm4moe`.

use super::Family;
use super::glm4moe::{self, SHARED_EXPERTS, SUM_EPS};
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfExperts, HfShared};
use crate::names::WeightRole;
use millrace_graph::Gating;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "solar-open",
    gguf_arch: "glm4moe",
    hf_model_types: &["solar_open"],
    hf_classes: &["SolarOpenForCausalLM"],
    models: "Solar Open 100B",
    hf_norm_eps: 1e-5,
    hf_own_biases: true,
    hf_rotates_part: true,
    hf_names: &[
        // GGUF files call the norm before the feed-forward so.
        (WeightRole::AttnPostNorm, "post_attention_layernorm"),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 128),
        d_ff: ("moe_intermediate_size", 1280),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Count("n_shared_experts", 1),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 196_608,
        d_model: 4096,
        d_ff: 10_240,
        n_layers: 48,
        n_heads: 64,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 1_000_000.0,
    },
    hf: |text, config| {
        config.biases = Biases {
            qkv: text.bool("attention_bias")?.unwrap_or(false),
            ..Biases::NONE
        };
        Ok(())
    },
    write_hf: |config, out| out["attention_bias"] = json!(config.biases.qkv),
    hf_unsayable: glm4moe::hf_unsayable,
    build: glm4moe::build,
    ..Family::PLAIN
};
