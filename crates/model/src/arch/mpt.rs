//! MPT: biases by distance in place of RoPE, LayerNorms without biases, a network without a gate.

use super::bloom::{MAX_DISTANCE_BIAS, check_heads, set_distance_biases, set_sizes};
use super::{Family, starcoder2};
use crate::Error;
use crate::config::gguf::{DISTANCE_BIAS_KEY, Keys, qkv_bound};
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::Activation;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "mpt",
    gguf_arch: "mpt",
    hf_model_types: &["mpt"],
    hf_classes: &["MptForCausalLM", "MPTForCausalLM"],
    hf_layers: "blocks",
    hf_prefix: "transformer.",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "norm_1"),
        (WeightRole::AttnQkv, "attn.Wqkv"),
        (WeightRole::AttnOutput, "attn.out_proj"),
        (WeightRole::FfnNorm, "norm_2"),
        (WeightRole::FfnUp, "ffn.up_proj"),
        (WeightRole::FfnDown, "ffn.down_proj"),
        (WeightRole::OutputNorm, "norm_f"),
    ],
    activation: Activation::Gelu,
    models: "MPT 7B, 30B",
    gguf_own_keys: &[DISTANCE_BIAS_KEY],
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::NONE),
    hf_defaults: HfDefaults {
        vocab_size: 50_368,
        d_model: 2048,
        d_ff: 8192,
        n_layers: 24,
        // The class has a different key, which the hook reads.
        n_heads: 1,
        tied_head: true,
        ..Family::PLAIN.hf_defaults
    },
    own_roles: &[WeightRole::AttnQkv],
    gguf,
    hf,
    write_hf,
    hf_unsayable: |config| {
        let max_bias = config.max_distance_bias;
        let is_usual = max_bias == Some(MAX_DISTANCE_BIAS);
        (!is_usual).then(|| format!("biases by distance of {max_bias:?} in MPT"))
    },
    write_gguf: |config, set| {
        let max_bias = config.max_distance_bias.unwrap_or_default();
        set(DISTANCE_BIAS_KEY, GgufValue::F32(max_bias));
    },
    build: starcoder2::plain_network,
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.qkv_bound = qkv_bound(keys)?;
    match keys
        .f32(DISTANCE_BIAS_KEY)?
        .filter(|max_bias| *max_bias > 0.0)
    {
        Some(max_bias) => set_distance_biases(config, max_bias),
        None => {
            let feature = "learned positions in place of biases by distance (`mpt`)".into();
            return Err(keys.unsupported(feature, "`mpt.attention.max_alibi_bias` above 0"));
        }
    }
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let size = |key: &str, default: usize| Ok::<usize, Error>(text.usize(key)?.unwrap_or(default));
    let defaults = &FAMILY.hf_defaults;
    config.d_model = size("d_model", defaults.d_model)?;
    let (n_layers, n_heads) = (size("n_layers", defaults.n_layers)?, size("n_heads", 16)?);
    set_sizes(config, n_layers, n_heads);
    check_heads(text, "n_heads", config)?;
    config.context_length = size("max_seq_len", defaults.context_length)?;
    if let Some(eps) = text.f32("layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    config.activation = FAMILY.activation;
    if let Some(found) = text.usize("expansion_ratio")?.filter(|found| *found != 4) {
        return Err(text.unsupported(format!("`expansion_ratio` = {found}"), "4"));
    }
    // A text is allowed in the original files: the inverse root of the width.
    if let Some(found) = text.get("logit_scale").filter(|found| !found.is_null()) {
        return Err(text.unsupported(format!("`logit_scale` = {found}"), "models without it"));
    }
    if let Some(attention) = text.object("attn_config")? {
        hf_attention(&attention, config)?;
    }
    set_distance_biases(config, MAX_DISTANCE_BIAS);
    Ok(())
}

/// Reads the object of attention's keys.
fn hf_attention(keys: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let usual = [
        ("attn_type", json!("multihead_attention")),
        ("alibi", json!(true)),
        ("alibi_bias_max", json!(8)),
        ("prefix_lm", json!(false)),
        ("qk_ln", json!(false)),
    ];
    for (key, usual) in usual {
        if let Some(found) = keys.get(key).filter(|found| **found != usual) {
            return Err(keys.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    config.layers.qkv_bound = keys.f32("clip_qkv")?;
    if let Some(scale) = keys.f32("softmax_scale")? {
        config.attention_scale = scale;
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let usual = 1.0 / (config.head_dim as f32).sqrt();
    let scale = match config.attention_scale == usual {
        true => Value::Null,
        false => shortest(config.attention_scale),
    };
    *out = json!({
        "architectures": [FAMILY.hf_classes[0]],
        "model_type": "mpt",
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "expansion_ratio": 4,
        "max_seq_len": config.context_length,
        "layer_norm_epsilon": shortest(config.norm_eps),
        "learned_pos_emb": false,
        "no_bias": true,
        "attn_config": {
            "alibi": true,
            "alibi_bias_max": 8,
            "attn_type": "multihead_attention",
            "clip_qkv": config.layers.qkv_bound.map(shortest),
            "qk_ln": false,
            "softmax_scale": scale,
        },
        "tie_word_embeddings": config.tied_head,
    });
}
