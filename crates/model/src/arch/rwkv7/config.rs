//! Keys in files of RWKV 7.

use crate::Error;
use crate::arch::block::recurrent::number;
use crate::arch::{SetKey, WeightConvention};
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, shortest};
use crate::config::{Biases, ModelConfig, RecurrentConfig, RecurrentMixer, Rwkv7Config};
use crate::names::{TensorName, WeightRole};
use serde_json::{Value, json};

/// The trained context that llama.cpp's converter writes: such models have no positions.
pub(super) const CONTEXT: usize = 1 << 20;

/// Epsilon of LayerNorms where a folder gives none.
pub(super) const NORM_EPS: f32 = 1e-5;

/// Epsilon of the norm of heads, in every published model: that of the others times a head of 64. GGUF files do not give
/// it.
pub(super) const HEAD_NORM_EPS: f32 = 64e-5;

/// Keys of a GGUF file for the ranks of low-rank pairs.
const RANKS: [&str; 4] = [
    "attention.decay_lora_rank",
    "attention.iclr_lora_rank",
    "attention.value_residual_mix_lora_rank",
    "attention.gate_lora_rank",
];

/// Keys of a folder. Without a key the rank is this power of the stream's width times this factor (llama.cpp's converter).
const HF_RANKS: [(&str, f64, f64); 4] = [
    ("decay_low_rank_dim", 0.5, 1.8),
    ("a_low_rank_dim", 0.5, 1.8),
    ("v_low_rank_dim", 0.5, 1.3),
    ("gate_low_rank_dim", 0.8, 0.6),
];

pub(super) const HEAD_SIZE: &str = "wkv.head_size";
const SHIFTS: &str = "token_shift_count";

pub(super) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if let Some(found) = keys.usize(SHIFTS)?.filter(|found| *found != 2) {
        let feature = format!("{found} shifted rows a layer (`{SHIFTS}`)");
        return Err(keys.unsupported(feature, "2"));
    }
    let head_dim = keys.required(HEAD_SIZE)?;
    let n_heads = n_heads(config.d_model, head_dim).map_err(|expected| {
        let feature = format!("heads of {head_dim} elements (`{HEAD_SIZE}`)");
        keys.unsupported(feature, &expected)
    })?;
    let mut ranks = [0; 4];
    for (rank, key) in ranks.iter_mut().zip(RANKS) {
        *rank = keys.required(key)?;
    }
    set(config, (n_heads, head_dim), ranks);
    Ok(())
}

/// Heads of that size, if the stream has a whole number of them; else the requirement on the size.
fn n_heads(d_model: usize, head_dim: usize) -> Result<usize, String> {
    match head_dim > 0 && d_model.is_multiple_of(head_dim) {
        true => Ok(d_model / head_dim),
        false => Err(format!("a divisor of the stream's width, {d_model}")),
    }
}

/// Gives a configuration its recurrence. Sizes of the attention that it lacks are 1: nothing reads them.
fn set(config: &mut ModelConfig, (n_heads, head_dim): (usize, usize), ranks: [usize; 4]) {
    config.n_heads = 1;
    config.n_kv_heads = 1;
    config.head_dim = 1;
    config.n_rot = 0;
    config.attention_scale = 1.0;
    config.biases = Biases::default();
    let [decay_rank, rate_rank, value_rank, gate_rank] = ranks;
    config.recurrent = Some(RecurrentConfig {
        layers: vec![true; config.n_layers],
        mixer: RecurrentMixer::Rwkv7(Rwkv7Config {
            n_heads,
            head_dim,
            decay_rank,
            rate_rank,
            value_rank,
            gate_rank,
        }),
        beside_attention: None,
    });
}

pub(super) fn sizes(config: &ModelConfig) -> Option<Rwkv7Config> {
    match config.recurrent.as_ref()?.mixer {
        RecurrentMixer::Rwkv7(sizes) => Some(sizes),
        _ => None,
    }
}

fn ranks(sizes: &Rwkv7Config) -> [usize; 4] {
    let Rwkv7Config {
        decay_rank,
        rate_rank,
        value_rank,
        gate_rank,
        ..
    } = *sizes;
    [decay_rank, rate_rank, value_rank, gate_rank]
}

pub(super) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    set("attention.head_count", number(0));
    set("attention.head_count_kv", number(0));
    if let Some(sizes) = sizes(config) {
        set(HEAD_SIZE, number(sizes.head_dim));
        for (key, rank) in RANKS.into_iter().zip(ranks(&sizes)) {
            set(key, number(rank));
        }
    }
}

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.norm_eps = text.f32("norm_eps")?.unwrap_or(NORM_EPS);
    // It bounds nothing: states have one size.
    config.context_length = CONTEXT;
    let d_model = config.d_model;
    let head_dim = text.usize("head_dim")?.unwrap_or(64);
    let n_heads = n_heads(d_model, head_dim)
        .map_err(|expected| text.bad("head_dim", &json!(head_dim), &expected))?;
    if let Some(found) = text.usize("num_heads")?.filter(|found| *found != n_heads) {
        let expected =
            format!("{n_heads}, of the stream's width {d_model} and heads of {head_dim}");
        return Err(text.bad("num_heads", &json!(found), &expected));
    }
    if text.usize("intermediate_size")?.is_none() {
        let ratio = text.f64("hidden_ratio")?.unwrap_or(4.0);
        config.d_ff = ((d_model as f64 * ratio) as usize)
            .div_ceil(32)
            .saturating_mul(32);
    }
    refuse_other_blocks(text, config, head_dim)?;
    let mut ranks = [0; 4];
    for (rank, (key, power, factor)) in ranks.iter_mut().zip(HF_RANKS) {
        let usual = ((d_model as f64).powf(power) * factor / 32.0)
            .round()
            .max(1.0) as usize
            * 32;
        *rank = text.usize(key)?.unwrap_or(usual);
    }
    set(config, (n_heads, head_dim), ranks);
    Ok(())
}

/// Refuses options that the published class has and no published model uses.
fn refuse_other_blocks(
    text: &ConfigObject<'_>,
    config: &ModelConfig,
    head_dim: usize,
) -> Result<(), Error> {
    let key = "hidden_act";
    if let Some(found) = text.str(key)?.filter(|found| *found != "sqrelu") {
        return Err(text.unsupported(format!("`{key}` = {found}"), "sqrelu"));
    }
    for key in ["norm_first", "norm_bias"] {
        if text.bool(key)? == Some(false) {
            return Err(text.unsupported(format!("`{key}` = false"), "true"));
        }
    }
    if text.get("attn").is_some_and(|found| !found.is_null()) {
        let feature = "layers that attend (`attn`)".into();
        return Err(text.unsupported(feature, "recurrence in every layer"));
    }
    let d_model = config.d_model;
    let widths = match text.get("value_dim") {
        Some(Value::Array(_)) => text.usizes("value_dim")?,
        Some(_) => text.usize("value_dim")?.map(|width| vec![width]),
        None => None,
    };
    if let Some(width) = widths.unwrap_or_default().iter().find(|n| **n != d_model) {
        let expected = format!("the stream's width, {d_model}");
        return Err(text.bad("value_dim", &json!(width), &expected));
    }
    let eps = head_dim as f32 * config.norm_eps;
    if (eps - HEAD_NORM_EPS).abs() > 1e-3 * HEAD_NORM_EPS {
        let feature =
            format!("an epsilon of {eps} in the norm of heads (`norm_eps` times `head_dim`)");
        return Err(text.unsupported(feature, &HEAD_NORM_EPS.to_string()));
    }
    Ok(())
}

pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    let Some(sizes) = sizes(config) else {
        return;
    };
    *out = json!({
        "architectures": out["architectures"],
        "model_type": out["model_type"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "head_dim": sizes.head_dim,
        "num_heads": sizes.n_heads,
        "norm_eps": shortest(config.norm_eps),
        "norm_first": true,
        "norm_bias": true,
        "hidden_act": "sqrelu",
        "attn": null,
        "tie_word_embeddings": config.tied_head,
    });
    for ((key, ..), rank) in HF_RANKS.into_iter().zip(ranks(&sizes)) {
        out[key] = json!(rank);
    }
}

/// Zeros for the value residual of the first layer, which has none: llama.cpp refuses a file without them.
pub(super) fn values(
    config: &ModelConfig,
    (name, layout): (TensorName, WeightConvention),
) -> Option<Vec<f32>> {
    let is_unread = name.layer == Some(0) && layout == WeightConvention::Gguf;
    let rank = sizes(config).filter(|_| is_unread)?.rate_rank;
    match name.role {
        WeightRole::TimeMixValueOffset => Some(vec![0.0; config.d_model]),
        WeightRole::TimeMixValueA | WeightRole::TimeMixValueB => {
            Some(vec![0.0; rank * config.d_model])
        }
        _ => None,
    }
}
