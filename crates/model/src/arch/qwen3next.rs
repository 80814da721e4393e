//! Qwen 3 Next: Qwen 3.5's blocks with experts; projections of a key head are adjacent.

use super::Family;
use super::block::recurrent;
use super::qwen35;
use super::qwen35moe::EXPERTS;
use crate::config::hf::{HfDefaults, HfExperts, HfWindows};
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "qwen3next",
    gguf_arch: "qwen3next",
    hf_model_types: &["qwen3_next"],
    hf_classes: &["Qwen3NextForCausalLM"],
    models: "Qwen 3 Next, Qwen 3 Coder Next",
    unit_norms: true,
    hf_names: &qwen35::NAMES,
    hf_roles: &[WeightRole::SsmIn],
    own_roles: &[WeightRole::SsmBetaAlpha],
    hf_windows: HfWindows::Recurrent,
    hf_partial_rotary: 0.25,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 512),
        n_used: ("num_experts_per_tok", 10),
        normalized: Some(("norm_topk_prob", true)),
        every: Some(("decoder_sparse_step", 1)),
        dense_layers: Some("mlp_only_layers"),
        ..EXPERTS
    }),
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 2048,
        d_ff: 5632,
        n_layers: 48,
        n_heads: 16,
        n_kv_heads: Some(2),
        head_dim: Some(256),
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf: recurrent::gguf_delta,
    hf: recurrent::hf_delta,
    write_hf: recurrent::write_hf_delta,
    write_gguf: recurrent::write_gguf_delta,
    draft: Some(qwen35::DRAFT),
    build: qwen35::build,
    ..Family::PLAIN
};
