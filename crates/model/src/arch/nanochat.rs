//! NanoChat: norms without weights, one of them behind the embeddings; heads rotate against the usual direction and have norms behind
//! it; a network without gates, of a squared ReLU.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::names::WeightRole;
use millrace_graph::{Activation, ValueId};
use serde_json::Value;

pub(super) static FAMILY: Family = Family {
    name: "nanochat",
    gguf_arch: "nanochat",
    hf_model_types: &["nanochat"],
    hf_classes: &["NanoChatForCausalLM"],
    models: "NanoChat d20, d32",
    activation: Activation::ReluSquared,
    rotates_back: true,
    hf_names: &[
        (WeightRole::FfnUp, "mlp.fc1"),
        (WeightRole::FfnDown, "mlp.fc2"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        d_model: 768,
        d_ff: 8192,
        n_layers: 12,
        n_heads: 6,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf,
    write_hf: |config, out| {
        out[SOFTCAP] = config.logit_softcap.map_or(Value::Null, shortest);
    },
    build,
    ..Family::PLAIN
};

const SOFTCAP: &str = "final_logit_softcapping";

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases.ffn = false;
    // `null` differs from an absent key.
    if !text.map.contains_key(SOFTCAP) {
        config.logit_softcap = Some(15.0);
    }
    Ok(())
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let d_model = b.config().d_model;
    let x = b.embed()?;
    let x = norm::bare(b, "embed_norm", d_model, x);
    let x = block::blocks(b, block, x)?;
    let normed = norm::bare(b, "output_norm", d_model, x);
    b.head_of(normed, None)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let normed = norm::bare(b, "attn_norm", d_model, x);
    let heads = attention::project(b, normed)?;
    let mut heads = attention::rotate(b, layer, heads);
    heads.q = attention::norm_bare(b, "attn_q_norm", heads.q);
    heads.k = attention::norm_bare(b, "attn_k_norm", heads.k);
    let out = attention::attend_rotated(b, layer, heads)?;
    let out = attention::project_back(b, out)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::bare(b, "ffn_norm", d_model, x);
    let out = feed_forward::plain(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
