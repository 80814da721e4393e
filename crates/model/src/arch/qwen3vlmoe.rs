//! Qwen 3 VL with experts, text part: Qwen 3 with experts, whose matrices are transposed in published folders. Sections
//! of a head rotate by the time, row and column of an image; for text all three are the position.

use super::block::sections;
use super::{Family, GateOrder, qwen3};
use crate::config::hf::{HfDefaults, HfExperts};
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "qwen3vlmoe",
    gguf_arch: "qwen3vlmoe",
    hf_model_types: &["qwen3_vl_moe", "qwen3_vl_moe_text"],
    hf_classes: &["Qwen3VLMoeForConditionalGeneration"],
    models: "Qwen 3 VL with experts",
    hf_turned_experts: Some(GateOrder::GateFirst),
    hf_roles: &[WeightRole::ExpertsGateUp],
    hf_names: &[(WeightRole::ExpertsDown, "mlp.experts.down_proj!")],
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 60),
        n_used: ("num_experts_per_tok", 4),
        d_ff: ("moe_intermediate_size", 1408),
        every: Some(("decoder_sparse_step", 1)),
        dense_layers: Some("mlp_only_layers"),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 2048,
        d_ff: 5632,
        n_layers: 24,
        n_heads: 16,
        n_kv_heads: Some(16),
        head_dim: None,
        context_length: 128_000,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    gguf: sections::gguf,
    // The default of transformers' configuration.
    rope_sections: &[24, 20, 20],
    interleaved_sections: true,
    hf: sections::hf,
    write_hf: sections::write_hf,
    write_gguf: sections::write_gguf,
    build: qwen3::build,
    ..Family::PLAIN
};
