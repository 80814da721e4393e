//! Seed-OSS: Llama with biases on queries, keys and values. GGUF files give the norm before the feed-forward the name of
//! one behind attention.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "seed-oss",
    gguf_arch: "seed_oss",
    hf_model_types: &["seed_oss"],
    hf_classes: &["SeedOssForCausalLM"],
    hf_names: &[(WeightRole::AttnPostNorm, "post_attention_layernorm")],
    models: "Seed-OSS",
    hf_own_biases: true,
    hf_defaults: HfDefaults {
        vocab_size: 155_136,
        d_model: 4096,
        d_ff: 27_648,
        n_layers: 64,
        n_heads: 80,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 524_288,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    write_hf: |config, out| {
        out["attention_bias"] = json!(config.biases.qkv);
        out["attention_out_bias"] = json!(config.biases.attn_output);
        out["mlp_bias"] = json!(config.biases.ffn);
    },
    build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases = Biases {
        qkv: text.bool("attention_bias")?.unwrap_or(true),
        attn_output: text.bool("attention_out_bias")?.unwrap_or(false),
        ffn: text.bool("mlp_bias")?.unwrap_or(false),
    };
    Ok(())
}

/// Llama's blocks.
fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let out = attention::attend(b, layer, heads)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::AttnPostNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
