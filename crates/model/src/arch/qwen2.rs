//! Qwen 2 and 2.5: Llama with biases on Q, K and V. MiMo 7B is one with layers for drafts, which are ignored.

use super::Family;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfWindows};

pub(super) static FAMILY: Family = Family {
    name: "qwen2",
    gguf_arch: "qwen2",
    hf_model_types: &["qwen2", "mimo"],
    hf_classes: &["Qwen2ForCausalLM", "MiMoForCausalLM"],
    models: "Qwen 2, Qwen 2.5; MiMo 7B",
    hf_biases: Some(Biases {
        qkv: true,
        attn_output: false,
        ffn: false,
    }),
    hf_windows: HfWindows::FromLayer {
        window: 4096,
        first: 28,
    },
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 4096,
        d_ff: 22_016,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(32),
        head_dim: None,
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    ..Family::PLAIN
};
