//! K-EXAONE: Qwen 3's blocks with experts by sigmoid, a bias for the choice and shared experts. In models with a window,
//! layers without it do not rotate.

use super::glm4moe::{SHARED_EXPERTS, SUM_EPS};
use super::{Family, exaone4, qwen3};
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfExperts, HfShared, HfWindows};
use crate::names::WeightRole;
use millrace_graph::Gating;

pub(super) static FAMILY: Family = Family {
    name: "exaone-moe",
    gguf_arch: "exaone-moe",
    hf_model_types: &["exaone_moe"],
    hf_classes: &["ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"],
    hf_names: &[
        (WeightRole::RouterBias, "mlp.e_score_correction_bias!"),
        SHARED_EXPERTS[0],
        SHARED_EXPERTS[1],
        SHARED_EXPERTS[2],
    ],
    models: "K-EXAONE (30B-A3B, 236B-A23B)",
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 64),
        d_ff: ("moe_intermediate_size", 1024),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 2.5)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        shared: HfShared::Count("num_shared_experts", 1),
        n_dense_layers: Some(("first_k_dense_replace", 1)),
        layer_kinds: Some("mlp_layer_types"),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_windows: HfWindows::Pattern {
        window: 4096,
        pattern: 4,
    },
    hf_defaults: HfDefaults {
        vocab_size: 102_400,
        d_ff: 16_384,
        n_kv_heads: Some(32),
        ..Family::PLAIN.hf_defaults
    },
    gguf_window_pattern: Some(4),
    gguf: |_, config| {
        exaone4::leave_global_unrotated(config);
        Ok(())
    },
    hf: |_, config| {
        exaone4::leave_global_unrotated(config);
        Ok(())
    },
    build: qwen3::build,
    ..Family::PLAIN
};
