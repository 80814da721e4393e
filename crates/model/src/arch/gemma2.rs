//! Gemma 2: Gemma with norms before and behind both halves of a block. Every second layer has a window, and scores and
//! logits have soft bounds.

use super::block::{self, attention, feed_forward, norm};
use super::family::attention_scale;
use super::{Family, SetKey};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows, shortest};
use crate::names::{HfNorms, WeightRole};
use millrace_format::gguf::GgufValue;
use millrace_graph::Activation;
use serde_json::{Value, json};

/// Bounds that the class and GGUF readers take where the file gives none.
const SOFTCAPS: [f32; 2] = [50.0, 30.0];
/// The window where none is given.
pub(super) const WINDOW: usize = 4096;
const CAP_KEYS: [&str; 2] = ["attn_logit_softcapping", "final_logit_softcapping"];

pub(super) static FAMILY: Family = Family {
    name: "gemma2",
    gguf_arch: "gemma2",
    hf_model_types: &["gemma2"],
    hf_classes: &["Gemma2ForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    activation: Activation::GeluTanh,
    models: "Gemma 2",
    unit_norms: true,
    scaled_embeddings: true,
    hf_windows: HfWindows::Pattern {
        window: WINDOW,
        pattern: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 256_000,
        d_model: 2304,
        d_ff: 9216,
        n_layers: 26,
        n_heads: 8,
        n_kv_heads: Some(4),
        head_dim: Some(256),
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(2),
    // The 27B alone: 46 layers, `query_pre_attn_scalar` 144 with heads of 128.
    gguf_attention_scale: |config| gguf_scale(config, 46),
    gguf,
    hf,
    write_hf,
    write_gguf,
    build,
    ..Family::PLAIN
};

pub(super) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let caps = [&mut config.attention_softcap, &mut config.logit_softcap];
    for ((key, default), cap) in CAP_KEYS.into_iter().zip(SOFTCAPS).zip(caps) {
        if keys.f32(key)?.is_none() {
            *cap = Some(default);
        }
    }
    if keys.usize("attention.sliding_window")?.is_none() {
        config.window = Some(WINDOW);
        config.layer_windowed = (0..config.n_layers).map(|layer| layer % 2 == 0).collect();
    }
    Ok(())
}

/// The scale of scores without a key. The largest model, known by its number of layers, takes the width over the
/// number of heads for the head's size (llama.cpp, `load_hparams`).
pub(super) fn gguf_scale(config: &ModelConfig, n_layers_of_largest: usize) -> f32 {
    let head_dim = match config.n_layers == n_layers_of_largest {
        // `validate` refuses zero heads after this.
        true => config.d_model / config.n_heads.max(1),
        false => config.head_dim,
    };
    attention_scale(config, head_dim)
}

/// The number whose inverse root is the scale of scores.
const SCALAR_KEY: &str = "query_pre_attn_scalar";

/// Reads the scale of scores; the classes take 256 without the key.
pub(super) fn hf_scale(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.attention_scale = 1.0 / text.f32(SCALAR_KEY)?.unwrap_or(256.0).sqrt();
    Ok(())
}

/// Writes the scale of scores, and the activation under the classes' key.
pub(super) fn write_scale(config: &ModelConfig, out: &mut Value) {
    out["hidden_activation"] = out["hidden_act"].take();
    // The scale is the inverse root of a whole number in every model.
    let scalar = (1.0 / (f64::from(config.attention_scale).powi(2))).round();
    out[SCALAR_KEY] = json!(scalar as u64);
    if let Some(map) = out.as_object_mut() {
        map.remove("hidden_act");
    }
}

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_scale(text, config)?;
    let caps = [&mut config.attention_softcap, &mut config.logit_softcap];
    for ((key, default), cap) in CAP_KEYS.into_iter().zip(SOFTCAPS).zip(caps) {
        // `null` switches a bound off.
        *cap = match text.map.contains_key(key) {
            true => text.f32(key)?,
            false => Some(default),
        };
    }
    Ok(())
}

/// Writes the scale and the bounds.
pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    write_scale(config, out);
    let caps = [config.attention_softcap, config.logit_softcap];
    for (key, cap) in CAP_KEYS.into_iter().zip(caps) {
        out[key] = cap.map_or(Value::Null, shortest);
    }
}

/// Writes bounds and window where they are not what readers take.
pub(super) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    // An absent key is the default, and 0 is none.
    let caps = [config.attention_softcap, config.logit_softcap];
    for (key, cap) in CAP_KEYS.into_iter().zip(caps) {
        set(key, GgufValue::F32(cap.unwrap_or(0.0)));
    }
    if config.window.is_none() {
        set("attention.sliding_window", GgufValue::U32(0));
    }
}

/// Blocks with norms before and behind both halves.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
        let heads = attention::project(b, normed)?;
        let out = attention::attend(b, layer, heads)?;
        let out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
        let x = b.residual("attn_residual", x, out);
        let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
        let out = feed_forward::network(b, layer, normed)?;
        let out = norm::stream(b, "ffn_post_norm", WeightRole::FfnPostNorm, out)?;
        Ok(b.residual("ffn_residual", x, out))
    })
}
