//! Hunyuan 3: Qwen 3's blocks with experts by sigmoid, a bias for the choice and shared experts.

use super::glm4moe::SUM_EPS;
use super::{Family, qwen3};
use crate::config::hf::{HfDefaults, HfExperts, HfShared};
use crate::names::WeightRole;
use millrace_graph::Gating;

pub(super) static FAMILY: Family = Family {
    name: "hy-v3",
    gguf_arch: "hy_v3",
    hf_model_types: &["hy_v3"],
    hf_classes: &["HYV3ForCausalLM"],
    hf_names: &[
        (WeightRole::Router, "mlp.router.gate"),
        (WeightRole::ChoiceBias, "mlp.expert_bias!"),
        (WeightRole::SharedGate, "mlp.shared_mlp.gate_proj"),
        (WeightRole::SharedUp, "mlp.shared_mlp.up_proj"),
        (WeightRole::SharedDown, "mlp.shared_mlp.down_proj"),
    ],
    models: "Hunyuan 3 with experts (30B-A3B and larger)",
    own_roles: &[WeightRole::ChoiceBias],
    hf_mlp_bias: true,
    hf_norm_eps: 1e-5,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 192),
        d_ff: ("moe_intermediate_size", 1536),
        normalized: Some(("route_norm", true)),
        scale: Some(("router_scaling_factor", 2.826)),
        choice_bias: true,
        shared: HfShared::Count("num_shared_experts", 1),
        shared_biases: true,
        n_dense_layers: Some(("first_k_dense_replace", 1)),
        layer_kinds: Some("mlp_layer_types"),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 120_832,
        d_model: 4096,
        d_ff: 13_312,
        n_layers: 80,
        n_heads: 64,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 11_158_840.0,
    },
    build: qwen3::build,
    ..Family::PLAIN
};
