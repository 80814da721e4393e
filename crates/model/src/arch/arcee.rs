//! Arcee (AFM): Llama with a network without a gate, whose activation is a squared ReLU.

use super::{Family, starcoder2};
use crate::config::hf::HfDefaults;
use millrace_graph::Activation;

pub(super) static FAMILY: Family = Family {
    name: "arcee",
    gguf_arch: "arcee",
    hf_model_types: &["arcee"],
    hf_classes: &["ArceeForCausalLM"],
    activation: Activation::ReluSquared,
    models: "Arcee AFM",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 2560,
        d_ff: 18_432,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    build: starcoder2::plain_network,
    ..Family::PLAIN
};
