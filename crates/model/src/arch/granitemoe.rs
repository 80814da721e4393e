//! Granite with experts: Llama's blocks with factors on embeddings, scores, the stream and logits.

use super::Family;
use super::granite;
use crate::config::ModelConfig;
use crate::config::hf::{HfExperts, HfShared};
use crate::names::WeightRole;
use serde_json::{Value, json};

/// Granite's words for experts.
pub(super) const EXPERTS: HfExperts = HfExperts {
    n_experts: ("num_local_experts", 8),
    n_used: ("num_experts_per_tok", 2),
    d_ff: ("intermediate_size", 11_008),
    shared: HfShared::Width("shared_intermediate_size", 0),
    ..HfExperts::PLAIN
};

pub(super) static FAMILY: Family = Family {
    name: "granitemoe",
    gguf_arch: "granitemoe",
    hf_model_types: &["granitemoe", "granitemoeshared"],
    hf_classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
    models: "Granite 3 with experts (1B-A400M, 3B-A800M)",
    permuted_in_gguf: true,
    logit_divisor: true,
    hf_roles: &[WeightRole::ExpertsGateUp, WeightRole::SharedGateUp],
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.router.layer"),
        (WeightRole::ExpertsGateUp, "block_sparse_moe.input_linear"),
        (WeightRole::ExpertsDown, "block_sparse_moe.output_linear"),
        (WeightRole::SharedGateUp, "shared_mlp.input_linear"),
        (WeightRole::SharedDown, "shared_mlp.output_linear"),
    ],
    hf_experts: Some(EXPERTS),
    hf: granite::hf,
    write_hf,
    ..Family::PLAIN
};

fn write_hf(config: &ModelConfig, out: &mut Value) {
    granite::write_hf(config, out);
    let experts = config.experts.as_ref();
    if experts.is_some_and(|experts| experts.shared_d_ff > 0) {
        out["architectures"] = json!([FAMILY.hf_classes[1]]);
        out["model_type"] = json!(FAMILY.hf_model_types[1]);
    }
}
