//! GLM 4 (0414), dense: half of a head rotates, neighbours together; norms before and behind both halves of a block; gate and
//! up projection in one.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "glm4",
    gguf_arch: "glm4",
    hf_model_types: &["glm4"],
    hf_classes: &["Glm4ForCausalLM"],
    hf_names: &[
        (WeightRole::AttnPostNorm, "post_self_attn_layernorm"),
        (WeightRole::FfnPostNorm, "post_mlp_layernorm"),
    ],
    models: "GLM 4 0414 (dense), GLM Z1",
    hf_own_biases: true,
    hf_partial_rotary: 0.5,
    interleaved: true,
    hf_norm_eps: 1.5625e-7,
    hf_defaults: HfDefaults {
        vocab_size: 151_552,
        d_model: 4096,
        d_ff: 13_696,
        n_layers: 40,
        n_heads: 32,
        n_kv_heads: Some(2),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    write_hf: |config, out| out["attention_bias"] = json!(config.biases.qkv),
    build,
    ..Family::PLAIN
};

/// `attention_bias` is that of queries, keys and values alone.
pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases = Biases {
        qkv: text.bool("attention_bias")?.unwrap_or(true),
        attn_output: false,
        ffn: false,
    };
    Ok(())
}

/// Blocks with norms before and behind both halves.
fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let out = attention::attend(b, layer, heads)?;
        let out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::gated_in_one(b, normed)?;
        let out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
