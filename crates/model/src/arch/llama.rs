//! Llama 2, 3, 3.1 and 3.2, and models that took over their architecture unchanged (SmolLM 1 and 2,
//! TinyLlama; in GGUF files Mistral too).

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::names::WeightRole;
use millrace_graph::ValueId;

pub(super) static FAMILY: Family = Family {
    name: "llama",
    gguf_arch: "llama",
    hf_model_types: &["llama"],
    hf_classes: &["LlamaForCausalLM"],
    models: "Llama 2, 3, 3.1, 3.2; SmolLM2; TinyLlama",
    golden: Some("llama-mha"),
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    // Mistral's window covers every layer; transformers' Llama has none.
    gguf_window_pattern: Some(0),
    gguf: |_, config| {
        // Mixtral's files name no other architecture.
        if config.experts.is_some() {
            config.family = super::mixtral::FAMILY.name;
        }
        Ok(())
    },
    hf_family: |config| {
        let of_some = config.layer_windowed.contains(&false);
        config
            .window
            .map(|_| if of_some { "ministral" } else { "mistral" })
    },
    build,
    ..Family::PLAIN
};

/// Blocks of attention and a gated feed-forward, each behind a norm.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

/// One of those blocks.
pub(super) fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
