//! Mistral: Llama with a sliding window on every layer, or none. Its GGUF files call themselves
//! `llama`, so this row is for Hugging Face files.

use super::{Family, llama};
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::graph::Activation;
use crate::names::HfNorms;

pub(super) static FAMILY: Family = Family {
    name: "mistral",
    gguf_arch: "llama",
    hf_model_types: &["mistral"],
    hf_classes: &["MistralForCausalLM"],
    hf_norms: HfNorms::Pre,
    activation: Activation::Silu,
    models: "Mistral 7B, Nemo",
    permuted_in_gguf: true,
    unit_norms: false,
    scaled_embeddings: false,
    local_rope_theta: None,
    query_pre_attn_scalar: None,
    hf_biases: Some(Biases {
        qkv: false,
        attn_output: false,
        ffn: false,
    }),
    hf_mlp_bias: false,
    hf_windows: HfWindows::All(4096),
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
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(0),
    gguf_scale_by_width_at_layers: None,
    build: llama::build,
};
