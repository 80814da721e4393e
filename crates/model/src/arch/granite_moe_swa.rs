//! Granite with windows and experts: the dense family's blocks, whose GGUF name it shares, with Granite's experts.

use super::{Family, granite_swa, granitemoe};
use crate::config::hf::HfDefaults;
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "granite-moe-swa",
    hf_model_types: &["granitemoe_swa"],
    hf_classes: &["GraniteMoeSWAForCausalLM"],
    models: "Granite with windows and experts",
    hf_mlp_bias: false,
    hf_norm_eps: 1e-6,
    hf_roles: &[WeightRole::ExpertsGateUp, WeightRole::SharedGateUp],
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.router"),
        (
            WeightRole::ExpertsGateUp,
            "block_sparse_moe.experts.gate_up_proj!",
        ),
        (
            WeightRole::ExpertsDown,
            "block_sparse_moe.experts.down_proj!",
        ),
        (WeightRole::SharedGateUp, "shared_mlp.input_linear"),
        (WeightRole::SharedDown, "shared_mlp.output_linear"),
    ],
    hf_experts: Some(granitemoe::EXPERTS),
    hf_defaults: HfDefaults {
        n_kv_heads: None,
        ..Family::PLAIN.hf_defaults
    },
    ..granite_swa::FAMILY
};
