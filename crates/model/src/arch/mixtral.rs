//! Mixtral: Mistral's blocks with experts. Its GGUF files call themselves `llama` and have experts.

use super::Family;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfExperts, HfWindows};
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "mixtral",
    gguf_arch: "llama",
    hf_model_types: &["mixtral"],
    hf_classes: &["MixtralForCausalLM"],
    models: "Mixtral 8x7B, 8x22B",
    permuted_in_gguf: true,
    gguf_window_pattern: Some(0),
    hf_biases: Some(Biases::NONE),
    hf_windows: HfWindows::Given,
    hf_norm_eps: 1e-5,
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.gate"),
        (WeightRole::ExpertsGate, "block_sparse_moe.experts.{}.w1"),
        (WeightRole::ExpertsUp, "block_sparse_moe.experts.{}.w3"),
        (WeightRole::ExpertsDown, "block_sparse_moe.experts.{}.w2"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 8),
        n_used: ("num_experts_per_tok", 2),
        d_ff: ("intermediate_size", 14_336),
        ..HfExperts::PLAIN
    }),
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 4096,
        d_ff: 14_336,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 131_072,
        tied_head: false,
        rope_theta: 1_000_000.0,
    },
    ..Family::PLAIN
};
