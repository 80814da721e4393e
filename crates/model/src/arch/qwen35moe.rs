//! Qwen 3.5 and 3.6 with experts: Qwen 3.5's blocks, a mixture whose shared expert has its own gate.

use super::Family;
use super::block::{recurrent, sections};
use super::qwen35;
use crate::config::hf::{HfDefaults, HfExperts, HfShared, HfWindows};

/// Words and defaults of both families with experts.
pub(super) const EXPERTS: HfExperts = HfExperts {
    n_experts: ("num_experts", 256),
    n_used: ("num_experts_per_tok", 8),
    d_ff: ("moe_intermediate_size", 512),
    shared: HfShared::Width("shared_expert_intermediate_size", 512),
    shared_gate: true,
    ..HfExperts::PLAIN
};

pub(super) static FAMILY: Family = Family {
    name: "qwen35moe",
    gguf_arch: "qwen35moe",
    hf_model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
    hf_classes: &[
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    ],
    models: "Qwen 3.5 and 3.6 with experts (35B-A3B, 122B-A10B)",
    unit_norms: true,
    stored: qwen35::stored,
    hf_names: &qwen35::NAMES,
    hf_windows: HfWindows::Recurrent,
    hf_partial_rotary: 0.25,
    hf_experts: Some(EXPERTS),
    hf_defaults: HfDefaults {
        vocab_size: 248_320,
        d_model: 2048,
        d_ff: 512,
        n_layers: 40,
        n_heads: 16,
        n_kv_heads: Some(2),
        head_dim: Some(256),
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf: qwen35::gguf,
    hf: qwen35::hf,
    write_hf: qwen35::write_hf,
    write_gguf: |config, set| {
        sections::write_gguf(config, set);
        recurrent::write_gguf_delta(config, set);
    },
    // The default of transformers' `Qwen3_5TextRotaryEmbedding`; llama.cpp opens no file without them.
    rope_sections: &[11, 11, 10],
    draft: Some(qwen35::DRAFT),
    interleaved_sections: true,
    build: qwen35::build,
    ..Family::PLAIN
};
