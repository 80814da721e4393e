//! Gemma 3, text part: five sliding-window layers to one global one, each kind with its own RoPE
//! base. Each head of Q and K has a norm, and both halves of a block have norms before and after.
//! Gates are GELU, and embeddings scaled by `sqrt(d_model)`.

use super::block::{self, attention, feed_forward, norm};
use super::{Family, gemma2};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ImageSight;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::names::{HfNorms, WeightRole};
use millrace_graph::{Activation, ValueId};

pub(super) const FAMILY: Family = Family {
    name: "gemma3",
    gguf_arch: "gemma3",
    hf_model_types: &["gemma3_text", "gemma3"],
    hf_classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    hf_norms: HfNorms::PreAndPost,
    activation: Activation::GeluTanh,
    models: "Gemma 3 (text)",
    golden: Some("gemma3-pattern"),
    unit_norms: true,
    scaled_embeddings: true,
    local_rope_theta: Some(10_000.0),
    hf_windows: HfWindows::Pattern {
        window: 4096,
        pattern: 6,
    },
    hf_defaults: HfDefaults {
        vocab_size: 262_208,
        d_model: 2304,
        d_ff: 9216,
        n_layers: 26,
        n_heads: 8,
        n_kv_heads: Some(4),
        head_dim: Some(256),
        context_length: 131_072,
        tied_head: true,
        rope_theta: 1_000_000.0,
    },
    gguf_window_pattern: Some(6),
    // The 27B alone: 62 layers, `query_pre_attn_scalar` 168 with heads of 128.
    gguf_attention_scale: |config| gemma2::gguf_scale(config, 62),
    fixed: |config| config.layers.image_sight = ImageSight::All,
    hf: gemma2::hf_scale,
    write_hf: gemma2::write_scale,
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

/// A block with norms of heads, and with norms before and behind both halves.
pub(super) fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = attention::norm_heads(b, heads)?;
    let out = attention::attend(b, layer, heads)?;
    let out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    let out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
    Ok(b.residual("ffn_residual", x, out))
}
