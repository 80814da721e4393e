//! Refact: one head of keys and values, biases by distance, LayerNorms without biases, gated networks.
//!
//! llama.cpp computes the norms without the mean, which is another model.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use super::bloom::{MAX_DISTANCE_BIAS, set_distance_biases};
use super::gpt2::{hf_words, write_words};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use attention::Heads;
use millrace_format::gguf::GgufValue;
use millrace_graph::ValueId;
use serde_json::{Value, json};

/// Networks have widths that are multiples of it.
const MULTIPLE: usize = 256;

pub(super) static FAMILY: Family = Family {
    name: "refact",
    gguf_arch: "refact",
    hf_model_types: &["gpt_refact"],
    hf_classes: &["GPTRefactForCausalLM"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQ, "attn.q"),
        (WeightRole::AttnKv, "attn.kv"),
        // Older files have them apart.
        (WeightRole::AttnK, "attn.k"),
        (WeightRole::AttnV, "attn.v"),
        (WeightRole::AttnOutput, "attn.c_proj"),
        (WeightRole::FfnNorm, "ln_2"),
        (WeightRole::FfnGateUp, "mlp.gate_up_proj"),
        (WeightRole::FfnGate, "mlp.linear_1"),
        (WeightRole::FfnUp, "mlp.linear_3"),
        (WeightRole::FfnDown, "mlp.c_proj"),
        (WeightRole::OutputNorm, "^ln_f"),
    ],
    models: "Refact 1.6B",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::NONE),
    hf_defaults: HfDefaults {
        vocab_size: 49_216,
        d_model: 2048,
        d_ff: 5632,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(1),
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf_roles: &[WeightRole::AttnKv, WeightRole::FfnGateUp],
    gguf: |_, config| {
        set_distance_biases(config, MAX_DISTANCE_BIAS);
        Ok(())
    },
    hf,
    write_hf,
    hf_unsayable,
    // The name under which llama.cpp looks for it.
    write_gguf: |config, set| {
        let eps = GgufValue::F32(config.norm_eps);
        set("attention.layer_norm_rms_epsilon", eps);
    },
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

/// Width of the networks of a model of this width, unless another inner width is given.
fn width(inner: usize) -> usize {
    (inner.saturating_mul(2) / 3).next_multiple_of(MULTIPLE)
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("multi_query")? == Some(false) {
        let feature = "`multi_query` = false".into();
        return Err(text.unsupported(feature, "one head of keys and values for all queries"));
    }
    hf_words(text, config, &FAMILY.hf_defaults)?;
    config.d_ff = width(config.d_ff);
    // The class knows no other.
    config.activation = FAMILY.activation;
    config.n_kv_heads = 1;
    set_distance_biases(config, MAX_DISTANCE_BIAS);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_words(config, &FAMILY, out);
    out["n_inner"] = json!(inner_width(config));
    out["multi_query"] = json!(true);
    if let Some(map) = out.as_object_mut() {
        map.remove("activation_function");
    }
}

/// The key's value for the width of the networks.
fn inner_width(config: &ModelConfig) -> usize {
    config.d_ff.saturating_mul(3) / 2
}

/// The class has one key head, heads as wide as the stream, and few widths of networks.
fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    if config.n_kv_heads != 1 || config.q_width() != config.d_model {
        return Some("several heads of keys, or heads not as wide as the stream, in Refact".into());
    }
    let is_width = width(inner_width(config)) == config.d_ff;
    (!is_width).then(|| format!("networks of width {} in Refact", config.d_ff))
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = match b.has_own(b.name_of(WeightRole::FfnGateUp)) && !b.is_gguf() {
        true => feed_forward::gated_in_one(b, normed)?,
        false => feed_forward::gated(b, normed)?,
    };
    Ok(b.residual("ffn_residual", x, out))
}

/// Queries of one matrix, keys and values of another.
fn project(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<Heads, Error> {
    if b.is_gguf() || !b.has_own(b.name_of(WeightRole::AttnKv)) {
        return attention::project(b, x);
    }
    let size = (b.config().q_width(), false);
    let q = b.linear("attn_q", WeightRole::AttnQ, size, x)?;
    let [k, v] = attention::keys_and_values(b, x)?;
    Ok(Heads { q, k, v })
}
