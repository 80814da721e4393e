//! Jais 2: LayerNorms and biases everywhere, a squared ReLU without a gate.

use super::{Family, starcoder2};
use crate::config::Biases;
use crate::config::hf::{HfDefaults, shortest};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "jais2",
    gguf_arch: "jais2",
    hf_model_types: &["jais2"],
    hf_classes: &["Jais2ForCausalLM"],
    models: "Jais 2 8B, 70B",
    activation: Activation::ReluSquared,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_own_biases: true,
    hf_defaults: HfDefaults {
        vocab_size: 150_272,
        d_model: 3328,
        d_ff: 26_624,
        n_layers: 32,
        n_heads: 26,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    hf: |text, config| {
        let attention = text.bool("attention_bias")?.unwrap_or(true);
        config.biases = Biases {
            qkv: attention,
            attn_output: attention,
            ffn: text.bool("mlp_bias")?.unwrap_or(true),
        };
        Ok(())
    },
    write_hf: |config, out| {
        out["attention_bias"] = json!(config.biases.qkv);
        out["mlp_bias"] = json!(config.biases.ffn);
        out["layer_norm_eps"] = shortest(config.norm_eps);
    },
    build: starcoder2::plain_network,
    ..Family::PLAIN
};
