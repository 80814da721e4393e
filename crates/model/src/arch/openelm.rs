//! OpenELM: heads of queries and keys, and widths of networks, that grow from layer to layer; norms of heads.

use super::block::{self, attention, feed_forward, norm};
use super::{Family, SetKey};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::ValueId;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "openelm",
    gguf_arch: "openelm",
    hf_model_types: &["openelm"],
    hf_classes: &["OpenELMForCausalLM"],
    models: "OpenELM 270M, 450M, 1.1B, 3B",
    sizes_by_layer: true,
    hf_own_keys: &["intermediate_size", "hidden_act", "hidden_activation"],
    hf_biases: Some(Biases::NONE),
    hf_prefix: "transformer.",
    own_roles: &[WeightRole::AttnQkv],
    hf_roles: &[WeightRole::FfnGateUp],
    hf_names: &[
        (WeightRole::TokenEmbedding, "token_embeddings"),
        (WeightRole::AttnNorm, "attn_norm"),
        (WeightRole::AttnQkv, "attn.qkv_proj"),
        (WeightRole::AttnQNorm, "attn.q_norm"),
        (WeightRole::AttnKNorm, "attn.k_norm"),
        (WeightRole::AttnOutput, "attn.out_proj"),
        (WeightRole::FfnNorm, "ffn_norm"),
        (WeightRole::FfnGateUp, "ffn.proj_1"),
        (WeightRole::FfnDown, "ffn.proj_2"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 2048,
        d_ff: 8192,
        n_layers: 12,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: Some(128),
        context_length: 2048,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf,
    write_gguf: write_sizes,
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

const HEADS: &str = "num_query_heads";
const KV_HEADS: &str = "num_kv_heads";
const MULTIPLIERS: &str = "ffn_multipliers";
const DIVISOR: &str = "ffn_dim_divisor";

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    read_sizes(keys, config)?;
    require_heads(config).map_err(|feature| keys.unsupported(feature, "heads in every layer"))
}

/// Heads and widths of a GGUF file, each given once or by layer.
pub(super) fn read_sizes(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let list = |key: &str| Ok::<_, Error>(keys.by_layer(key)?.unwrap_or_default());
    let sizes = LayerSizes {
        n_heads: list("attention.head_count")?,
        n_kv_heads: list("attention.head_count_kv")?,
        d_ff: list("feed_forward_length")?,
    };
    sizes.take(config);
    Ok(())
}

/// Sizes by layer, empty where all layers have those of the configuration.
pub(super) struct LayerSizes {
    pub(super) n_heads: Vec<usize>,
    pub(super) n_kv_heads: Vec<usize>,
    pub(super) d_ff: Vec<usize>,
}

impl LayerSizes {
    /// Puts them into a configuration; a list of equal numbers becomes one number.
    pub(super) fn take(self, config: &mut ModelConfig) {
        let layers = &mut config.layers;
        let lists = [
            (self.n_heads, &mut config.n_heads, &mut layers.n_heads),
            (
                self.n_kv_heads,
                &mut config.n_kv_heads,
                &mut layers.n_kv_heads,
            ),
            (self.d_ff, &mut config.d_ff, &mut layers.d_ff),
        ];
        for (found, usual, list) in lists {
            let first = found.iter().copied().find(|n| *n > 0);
            *usual = first.unwrap_or(*usual);
            let are_alike = found.len() == config.n_layers && found.iter().all(|n| n == usual);
            *list = if are_alike { Vec::new() } else { found };
        }
        // Heads are given by layer where anything is: only then does a width of 0 count.
        let needs_heads = !layers.d_ff.is_empty() || !layers.n_kv_heads.is_empty();
        if layers.n_heads.is_empty() && needs_heads {
            layers.n_heads = vec![config.n_heads; config.n_layers];
        }
    }
}

/// Writes the keys that [`read_sizes`] reads.
pub(super) fn write_sizes(config: &ModelConfig, set: &mut SetKey<'_>) {
    let numbers = |of: &dyn Fn(usize) -> usize| {
        let numbers = (0..config.n_layers).map(of);
        let numbers = numbers.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        GgufValue::Array(GgufArray::I32(numbers.collect()))
    };
    let n_kv_heads = |layer: usize| match config.n_heads_of(layer) {
        0 => 0,
        _ => config.heads_of(layer).n_kv_heads,
    };
    set(
        "attention.head_count",
        numbers(&|layer| config.n_heads_of(layer)),
    );
    set("attention.head_count_kv", numbers(&n_kv_heads));
    set(
        "feed_forward_length",
        numbers(&|layer| config.d_ff_of(layer)),
    );
}

fn require_heads(config: &ModelConfig) -> Result<(), String> {
    // Lists of another length are refused with the other sizes.
    match (0..config.n_layers)
        .find(|layer| !config.has_heads(*layer) || config.d_ff_of(*layer) == 0)
    {
        Some(layer) => Err(format!(
            "layer {layer} without attention or network in openelm"
        )),
        None => Ok(()),
    }
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let size = |key: &str, default: usize| Ok::<_, Error>(text.usize(key)?.unwrap_or(default));
    config.d_model = size("model_dim", config.d_model)?;
    config.n_layers = size("num_transformer_layers", config.n_layers)?;
    config.context_length = size("max_context_length", config.context_length)?;
    if let Some(theta) = text.f32("rope_freq_constant")? {
        config.rope.theta = theta;
    }
    config.tied_head = text.bool("share_input_output_layers")?.unwrap_or(true);
    let words = [
        ("activation_fn_name", "swish"),
        ("normalization_layer_name", "rms_norm"),
    ];
    for (key, usual) in words {
        if let Some(found) = text.str(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), usual));
        }
    }
    for key in ["normalize_qk_projections", "ffn_with_glu"] {
        if text.bool(key)? == Some(false) {
            return Err(text.unsupported(format!("`{key}` = false"), "true"));
        }
    }
    let list = |key: &str| {
        let missing = || Error::MissingKey {
            file: text.file.into(),
            key: key.into(),
        };
        text.usizes(key)?.ok_or_else(missing)
    };
    let sizes = LayerSizes {
        n_heads: list(HEADS)?,
        n_kv_heads: list(KV_HEADS)?,
        d_ff: widths(text, config.d_model)?,
    };
    for (key, found) in [
        (HEADS, sizes.n_heads.len()),
        (KV_HEADS, sizes.n_kv_heads.len()),
        (MULTIPLIERS, sizes.d_ff.len()),
    ] {
        if found != config.n_layers {
            let expected = format!("one for each of the {} layers", config.n_layers);
            return Err(text.bad(key, &json!(format!("{found} numbers")), &expected));
        }
    }
    config.layer_windowed = vec![false; config.n_layers];
    sizes.take(config);
    require_heads(config).map_err(|feature| text.unsupported(feature, "heads in every layer"))
}

/// Widths of networks: the multiples of the divisor nearest to the given factors of the stream's width.
fn widths(text: &ConfigObject<'_>, d_model: usize) -> Result<Vec<usize>, Error> {
    let divisor = text.usize(DIVISOR)?.unwrap_or(256);
    if divisor == 0 {
        return Err(text.bad(DIVISOR, &json!(0), "at least 1"));
    }
    let multipliers = text.f64s(MULTIPLIERS)?.unwrap_or_default();
    let width = |factor: &f64| {
        let wanted = factor * d_model as f64;
        let half = divisor as f64 / 2.0;
        let width = ((wanted + half) as usize / divisor * divisor).max(divisor);
        match (width as f64) < 0.9 * wanted {
            true => width + divisor,
            false => width,
        }
    };
    Ok(multipliers.iter().map(width).collect())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let layers = || 0..config.n_layers;
    let widths: Vec<usize> = layers().map(|layer| config.d_ff_of(layer)).collect();
    let usual = 256;
    let divisor = match widths.iter().all(|width| width.is_multiple_of(usual)) {
        true => usual,
        false => 1,
    };
    *out = json!({
        "architectures": out["architectures"],
        "model_type": out["model_type"],
        "vocab_size": config.vocab_size,
        "model_dim": config.d_model,
        "num_transformer_layers": config.n_layers,
        "head_dim": config.head_dim,
        "max_context_length": config.context_length,
        "rope_freq_constant": config.rope.theta,
        "rms_norm_eps": out["rms_norm_eps"],
        "share_input_output_layers": config.tied_head,
        "activation_fn_name": "swish",
        "normalization_layer_name": "rms_norm",
        "normalize_qk_projections": true,
        "ffn_with_glu": true,
        DIVISOR: divisor,
        MULTIPLIERS: widths.iter().map(|n| *n as f64 / config.d_model as f64).collect::<Vec<_>>(),
        HEADS: layers().map(|layer| config.n_heads_of(layer)).collect::<Vec<_>>(),
        KV_HEADS: layers().map(|layer| config.heads_of(layer).n_kv_heads).collect::<Vec<_>>(),
    });
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = attention::norm_heads(b, heads)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = match b.is_gguf() {
        true => feed_forward::gated(b, normed)?,
        false => feed_forward::gated_in_one(b, normed)?,
    };
    Ok(b.residual("ffn_residual", x, out))
}
