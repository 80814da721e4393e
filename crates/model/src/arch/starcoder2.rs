//! StarCoder2: LayerNorms, a network without a gate, biases on all projections.

use super::Family;
use super::block::{self, attention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "starcoder2",
    gguf_arch: "starcoder2",
    hf_model_types: &["starcoder2"],
    hf_classes: &["Starcoder2ForCausalLM"],
    hf_names: &[
        (WeightRole::FfnUp, "mlp.c_fc"),
        (WeightRole::FfnDown, "mlp.c_proj"),
    ],
    activation: Activation::GeluTanh,
    models: "StarCoder2",
    hf_own_biases: true,
    hf_windows: HfWindows::Given,
    gguf_window_pattern: Some(0),
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 49_152,
        d_model: 3072,
        d_ff: 12_288,
        n_layers: 30,
        n_heads: 24,
        n_kv_heads: Some(2),
        head_dim: None,
        context_length: 4096,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    hf,
    write_hf: |config, out| {
        out["use_bias"] = json!(config.biases.ffn);
        out["norm_epsilon"] = shortest(config.norm_eps);
    },
    build: plain_network,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let all = text.bool("use_bias")?.unwrap_or(true);
    config.biases = Biases {
        qkv: all,
        attn_output: all,
        ffn: all,
    };
    Ok(())
}

/// Llama's blocks with a network without a gate.
pub(super) fn plain_network(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        block::ungated(b, layer, attention::project, x)
    })
}
