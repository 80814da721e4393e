//! Qwen 1.5 and 2 with experts: Qwen 2's attention, a mixture whose shared expert has its own gate.

use super::Family;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfExperts, HfShared, HfWindows};
use millrace_graph::Gating;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "qwen2moe",
    gguf_arch: "qwen2moe",
    hf_model_types: &["qwen2_moe"],
    hf_classes: &["Qwen2MoeForCausalLM"],
    models: "Qwen 1.5 and 2 with experts",
    hf_own_biases: true,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 60),
        n_used: ("num_experts_per_tok", 4),
        d_ff: ("moe_intermediate_size", 1408),
        normalized: Some(("norm_topk_prob", false)),
        shared: HfShared::Width("shared_expert_intermediate_size", 5632),
        shared_gate: true,
        every: Some(("decoder_sparse_step", 1)),
        dense_layers: Some("mlp_only_layers"),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 2,
    },
    hf_windows: HfWindows::EvenBefore {
        window: 4096,
        end: 28,
    },
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 2048,
        d_ff: 5632,
        n_layers: 24,
        n_heads: 16,
        n_kv_heads: Some(16),
        head_dim: None,
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf: |text, config| {
        config.biases = Biases {
            qkv: text.bool("qkv_bias")?.unwrap_or(true),
            attn_output: false,
            ffn: false,
        };
        Ok(())
    },
    write_hf: |config, out| out["qkv_bias"] = json!(config.biases.qkv),
    ..Family::PLAIN
};
