//! OLMo: Llama with LayerNorms that have no weights.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::qkv_bound;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use millrace_graph::ValueId;

pub(super) static FAMILY: Family = Family {
    name: "olmo",
    gguf_arch: "olmo",
    hf_model_types: &["olmo"],
    hf_classes: &["OlmoForCausalLM"],
    models: "OLMo (first generation)",
    permuted_in_gguf: true,
    layer_norms: true,
    hf_norm_eps: NORM_EPS,
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        d_model: 4096,
        d_ff: 11_008,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf: |keys, config| {
        config.layers.qkv_bound = qkv_bound(keys)?;
        Ok(())
    },
    hf,
    write_hf: |config, out| {
        if let Some(bound) = config.layers.qkv_bound {
            out["clip_qkv"] = shortest(bound);
        }
    },
    build: |b| {
        let x = b.embed()?;
        let x = block::blocks(b, block, x)?;
        let normed = norm::bare_layer(b, "output_norm", x);
        b.head_of(normed, None)
    },
    ..Family::PLAIN
};

/// Epsilon of the class; no key gives another.
const NORM_EPS: f32 = 1e-5;

/// Llama's block with norms that only centre and scale.
fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::bare_layer(b, "attn_norm", x);
    let heads = attention::project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::bare_layer(b, "ffn_norm", x);
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.qkv_bound = text.f32("clip_qkv")?;
    config.norm_eps = NORM_EPS;
    Ok(())
}
