//! Gemma: Llama with GELU gates, norms that add one, and embeddings scaled by `sqrt(d_model)`.

use super::Family;
use crate::config::hf::HfDefaults;
use millrace_graph::Activation;

pub(super) static FAMILY: Family = Family {
    name: "gemma",
    gguf_arch: "gemma",
    hf_model_types: &["gemma"],
    hf_classes: &["GemmaForCausalLM"],
    activation: Activation::GeluTanh,
    models: "Gemma, CodeGemma",
    unit_norms: true,
    scaled_embeddings: true,
    hf_defaults: HfDefaults {
        vocab_size: 256_000,
        d_model: 3072,
        d_ff: 24_576,
        n_layers: 28,
        n_heads: 16,
        n_kv_heads: Some(16),
        head_dim: Some(256),
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    hf: |_, config| {
        // The first files have `gelu` and mean its tanh approximation.
        if config.activation == Activation::Gelu {
            config.activation = Activation::GeluTanh;
        }
        Ok(())
    },
    ..Family::PLAIN
};
