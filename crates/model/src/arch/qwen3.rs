//! Qwen 3 (dense): Llama with a norm on each head of Q and K.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "qwen3",
    gguf_arch: "qwen3",
    hf_model_types: &["qwen3"],
    hf_classes: &["Qwen3ForCausalLM"],
    models: "Qwen 3 (dense)",
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
        head_dim: Some(128),
        context_length: 32_768,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    build,
    ..Family::PLAIN
};

/// Llama's blocks with a norm of each head of queries and keys.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let heads = attention::norm_heads(b, heads)?;
        let out = attention::attend(b, layer, heads)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
