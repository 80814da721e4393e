//! VaultGemma: Gemma 2 without the norms behind both halves of a block. llama.cpp has no name for it.

use super::{Family, gemma2, llama};
use crate::config::hf::{HfDefaults, HfWindows};
use crate::names::HfNorms;
use millrace_graph::Activation;

pub(super) static FAMILY: Family = Family {
    name: "vaultgemma",
    gguf_arch: "vaultgemma",
    hf_model_types: &["vaultgemma"],
    hf_classes: &["VaultGemmaForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    activation: Activation::GeluTanh,
    models: "VaultGemma 1B",
    unit_norms: true,
    scaled_embeddings: true,
    hf_windows: HfWindows::Pattern {
        window: gemma2::WINDOW,
        pattern: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 256_000,
        d_model: 2304,
        d_ff: 9216,
        n_layers: 26,
        n_heads: 8,
        n_kv_heads: Some(4),
        head_dim: Some(256),
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(2),
    gguf: gemma2::gguf,
    hf: gemma2::hf,
    write_hf: gemma2::write_hf,
    write_gguf: gemma2::write_gguf,
    build: llama::build,
    ..Family::PLAIN
};
