//! BLOOM: biases by distance in place of RoPE, a norm behind the embedding, LayerNorms, a network without a gate, biases
//! everywhere.

use super::Family;
use super::block::{self, attention, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::DISTANCE_BIAS_KEY;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::{Value, json};

/// ALiBi's exponent in every model whose files do not give it.
pub(super) const MAX_DISTANCE_BIAS: f32 = 8.0;

pub(super) static FAMILY: Family = Family {
    name: "bloom",
    gguf_arch: "bloom",
    hf_model_types: &["bloom"],
    hf_classes: &["BloomForCausalLM"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "word_embeddings"),
        (WeightRole::EmbeddingNorm, "word_embeddings_layernorm"),
        (WeightRole::AttnQkv, "self_attention.query_key_value"),
        (WeightRole::AttnOutput, "self_attention.dense"),
        (WeightRole::FfnUp, "mlp.dense_h_to_4h"),
        (WeightRole::FfnDown, "mlp.dense_4h_to_h"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    activation: Activation::GeluTanh,
    models: "BLOOM, BLOOMZ",
    gguf_own_keys: &[DISTANCE_BIAS_KEY],
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 250_880,
        d_model: 64,
        d_ff: 256,
        n_layers: 2,
        n_heads: 8,
        // The hook computes it from sizes that have several keys.
        head_dim: Some(64),
        tied_head: true,
        ..Family::PLAIN.hf_defaults
    },
    own_roles: &[
        WeightRole::EmbeddingNorm,
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf: |_, config| {
        set_distance_biases(config, MAX_DISTANCE_BIAS);
        Ok(())
    },
    hf,
    write_hf,
    build: |b| {
        let x = b.embed()?;
        let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
        let block = |b: &mut GraphBuilder<'_>, layer, x| {
            block::ungated(b, layer, attention::project_by_groups, x)
        };
        block::decoder_from(b, block, x)
    },
    ..Family::PLAIN
};

/// Heads do not rotate; their scores fall with the distance of the key.
pub(super) fn set_distance_biases(config: &mut ModelConfig, max_bias: f32) {
    config.max_distance_bias = Some(max_bias);
    // `validate` refuses more layers after this.
    config.unrotated_layers = (0..config.n_layers.min(MAX_LAYERS)).collect();
    // Nothing rotates, so an odd size need not be refused.
    config.n_rot = config.head_dim / 2 * 2;
}

/// Takes numbers of layers and heads, and the values that follow from them, under the keys of older classes.
pub(super) fn set_sizes(config: &mut ModelConfig, n_layers: usize, n_heads: usize) {
    config.n_layers = n_layers;
    config.layer_windowed = vec![false; n_layers.min(MAX_LAYERS)];
    (config.n_heads, config.n_kv_heads) = (n_heads, n_heads);
    // `validate` refuses zero heads after this.
    config.head_dim = config.d_model / n_heads.max(1);
    config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
    config.d_ff = config.d_model.saturating_mul(4);
}

/// Refuses a width that heads do not divide, under the name of its key.
pub(super) fn check_heads(
    text: &ConfigObject<'_>,
    key: &str,
    config: &ModelConfig,
) -> Result<(), Error> {
    if config.d_model.is_multiple_of(config.n_heads.max(1)) {
        return Ok(());
    }
    Err(Error::BadValue {
        file: text.file.into(),
        key: key.into(),
        found: config.n_heads.to_string(),
        expected: format!("a divisor of the width {}", config.d_model),
    })
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let key = "apply_residual_connection_post_layernorm";
    if text.bool(key)? == Some(true) {
        return Err(text.unsupported(format!("`{key}`"), "models without it"));
    }
    // Published files have other keys than transformers 5 writes.
    let first = |keys: [&str; 2], default: usize| {
        let [own, other] = keys.map(|key| text.usize(key));
        Ok::<usize, Error>(own?.or(other?).unwrap_or(default))
    };
    config.d_model = first(["n_embed", "hidden_size"], FAMILY.hf_defaults.d_model)?;
    let n_layers = first(
        ["n_layer", "num_hidden_layers"],
        FAMILY.hf_defaults.n_layers,
    )?;
    let n_heads = first(["n_head", "num_attention_heads"], 8)?;
    set_sizes(config, n_layers, n_heads);
    check_heads(text, "n_head", config)?;
    if let Some(context) = text.usize("seq_length")? {
        config.context_length = context;
    }
    if let Some(eps) = text.f32("layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    // The class knows no other.
    config.activation = FAMILY.activation;
    set_distance_biases(config, MAX_DISTANCE_BIAS);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    *out = json!({
        "architectures": FAMILY.hf_classes,
        "model_type": "bloom",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "seq_length": config.context_length,
        "layer_norm_epsilon": shortest(config.norm_eps),
        "apply_residual_connection_post_layernorm": false,
        "tie_word_embeddings": config.tied_head,
    });
}

/// Heads that `config.json` of `model` has no words for: those that share keys, or are not as wide as the stream together.
pub(super) fn unsayable_heads(config: &ModelConfig, model: &str) -> Option<String> {
    let is_plain = config.n_kv_heads == config.n_heads && config.q_width() == config.d_model;
    (!is_plain)
        .then(|| format!("heads that share keys, or are not as wide as the stream, in {model}"))
}
