//! Qwen 3 with experts: Qwen 3's blocks, a mixture in place of the feed-forward.

use super::Family;
use super::qwen3;
use crate::config::hf::{HfDefaults, HfExperts, HfWindows};

pub(super) static FAMILY: Family = Family {
    name: "qwen3moe",
    gguf_arch: "qwen3moe",
    hf_model_types: &["qwen3_moe"],
    hf_classes: &["Qwen3MoeForCausalLM"],
    models: "Qwen 3 with experts (30B-A3B, Coder, 235B-A22B)",
    hf_experts: Some(HfExperts {
        normalized: Some(("norm_topk_prob", false)),
        every: Some(("decoder_sparse_step", 1)),
        dense_layers: Some("mlp_only_layers"),
        ..HfExperts::PLAIN
    }),
    hf_windows: HfWindows::AllIfUsed(4096),
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 2048,
        d_ff: 6144,
        n_layers: 24,
        n_heads: 32,
        n_kv_heads: Some(4),
        head_dim: None,
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    build: qwen3::build,
    ..Family::PLAIN
};
