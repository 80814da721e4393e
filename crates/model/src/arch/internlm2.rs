//! InternLM 2 and 2.5: Llama under other names. Folders have queries, keys and values in one matrix, group by group.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::Biases;
use crate::config::hf::HfDefaults;
use crate::names::WeightRole;
use millrace_graph::ValueId;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "internlm2",
    gguf_arch: "internlm2",
    hf_model_types: &["internlm2"],
    hf_classes: &["InternLM2ForCausalLM"],
    hf_names: &[
        (WeightRole::TokenEmbedding, "tok_embeddings"),
        (WeightRole::AttnNorm, "attention_norm"),
        (WeightRole::AttnQkv, "attention.wqkv"),
        (WeightRole::AttnOutput, "attention.wo"),
        (WeightRole::FfnNorm, "ffn_norm"),
        (WeightRole::FfnGate, "feed_forward.w1"),
        (WeightRole::FfnUp, "feed_forward.w3"),
        (WeightRole::FfnDown, "feed_forward.w2"),
        (WeightRole::Output, "output"),
    ],
    models: "InternLM 2, 2.5",
    permuted_in_gguf: true,
    hf_own_biases: true,
    hf_defaults: HfDefaults {
        vocab_size: 103_168,
        context_length: 2048,
        ..Family::PLAIN.hf_defaults
    },
    hf: |text, config| {
        let all = text.bool("bias")?.unwrap_or(true);
        config.biases = Biases {
            qkv: all,
            attn_output: all,
            ffn: false,
        };
        Ok(())
    },
    write_hf: |config, out| out["bias"] = json!(config.biases.qkv),
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

/// Llama's block, of one matrix of queries, keys and values.
fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project_by_groups(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
