//! Mistral: Llama with a sliding window on every layer, or none. Its GGUF files call themselves
//! `llama`, so this row is for Hugging Face files.

use super::Family;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfWindows};

pub(super) static FAMILY: Family = Family {
    name: "mistral",
    gguf_arch: "llama",
    hf_model_types: &["mistral", "mistral3", "llava"],
    hf_classes: &[
        "MistralForCausalLM",
        "Mistral3ForConditionalGeneration",
        "LlavaForConditionalGeneration",
    ],
    models: "Mistral 7B, Nemo; Mistral Small, Pixtral (text)",
    golden: Some("mistral-window"),
    permuted_in_gguf: true,
    hf_biases: Some(Biases::NONE),
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
    ..Family::PLAIN
};
