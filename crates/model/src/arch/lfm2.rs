//! LFM2: short convolutions, and attention with norms of heads in some layers.

use super::Family;
use super::block::{Block, attention, feed_forward, norm, recurrent};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, FULL, HfDefaults, HfWindows, SLIDING, shortest};
use crate::config::{Biases, ModelConfig, RecurrentConfig, RecurrentMixer};
use crate::names::WeightRole;
use millrace_graph::{Activation, ValueId};
use serde_json::{Value, json};

/// Names of both families' files.
pub(super) const NAMES: [(WeightRole, &str); 13] = [
    (WeightRole::EmbeddingNorm, "embedding_norm"),
    (WeightRole::AttnNorm, "operator_norm"),
    (WeightRole::AttnQNorm, "self_attn.q_layernorm"),
    (WeightRole::AttnKNorm, "self_attn.k_layernorm"),
    (WeightRole::AttnOutput, "self_attn.out_proj"),
    (WeightRole::FfnNorm, "ffn_norm"),
    (WeightRole::FfnGate, "feed_forward.w1"),
    (WeightRole::FfnUp, "feed_forward.w3"),
    (WeightRole::FfnDown, "feed_forward.w2"),
    (WeightRole::Router, "feed_forward.gate"),
    (WeightRole::ExpertsGate, "feed_forward.experts.{}.w1"),
    (WeightRole::ExpertsUp, "feed_forward.experts.{}.w3"),
    (WeightRole::ExpertsDown, "feed_forward.experts.{}.w2"),
];

/// The type of layers with convolutions.
pub(super) const CONV_TYPE: &str = "conv";

pub(super) static FAMILY: Family = Family {
    name: "lfm2",
    gguf_arch: "lfm2",
    hf_model_types: &["lfm2"],
    hf_classes: &["Lfm2ForCausalLM"],
    models: "LFM2, LFM2.5",
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_names: &NAMES,
    hf_windows: HfWindows::Recurrent,
    gguf_window_pattern: Some(0),
    hf_defaults: HfDefaults {
        vocab_size: 65_536,
        d_model: 2560,
        d_ff: 12_288,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 128_000,
        tied_head: true,
        rope_theta: 1_000_000.0,
    },
    own_roles: &[WeightRole::EmbeddingNorm],
    gguf: recurrent::gguf_short_conv,
    write_gguf: recurrent::write_gguf_short_conv,
    hf: |text, config| {
        hf(text, config)?;
        config.d_ff = adjusted(text, config.d_ff)?;
        let attention = text.array("full_attn_idxs")?;
        if let (Some(attention), None) = (attention, text.array("layer_types")?) {
            let layers = (0..config.n_layers).map(|layer| !attention.contains(&json!(layer)));
            set_layers(config, layers.collect());
        }
        Ok(())
    },
    write_hf: |config, out| {
        write_hf(config, out);
        out["block_auto_adjust_ff_dim"] = json!(false);
    },
    build,
    ..Family::PLAIN
};

/// The width of the feed-forward, which files give before its adjustment.
fn adjusted(text: &ConfigObject<'_>, d_ff: usize) -> Result<usize, Error> {
    let d_ff = text.usize("block_ff_dim")?.unwrap_or(d_ff);
    if !text.bool("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(d_ff);
    }
    let d_ff = (2.0 * d_ff as f64 / 3.0) as usize;
    // `null` leaves the width unchanged; an absent key does not.
    let factor = match text.map.get("block_ffn_dim_multiplier") {
        None => Some(1.0),
        Some(_) => text.f64("block_ffn_dim_multiplier")?,
    };
    let Some(factor) = factor else {
        return Ok(d_ff);
    };
    let key = "block_multiple_of";
    match text.usize(key)?.unwrap_or(256) {
        0 => Err(text.bad(key, &json!(0), "at least 1")),
        multiple => {
            let d_ff = (factor * d_ff as f64) as usize;
            Ok(d_ff.div_ceil(multiple).saturating_mul(multiple))
        }
    }
}

/// Keys that the configurations of both families share.
pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    // The classes compute it for any `hidden_act`.
    config.activation = Activation::Silu;
    if let Some(eps) = text.f32("norm_eps")? {
        config.norm_eps = eps;
    }
    if let Some(tied) = text.bool("tie_embedding")? {
        config.tied_head = tied;
    }
    let layers = recurrent::hf_layers(text, CONV_TYPE)?;
    let layers = layers.unwrap_or_else(|| vec![false; config.n_layers]);
    set_mixer(text, config, layers)
}

/// Sets convolutions in layers of their type; other layers attend, with a window or without.
pub(super) fn set_convolutions(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let types = text.array("layer_types")?.map_or(&[][..], Vec::as_slice);
    let recurs = |kind: &Value| match kind.as_str() {
        Some(CONV_TYPE) => Ok(true),
        Some(FULL | SLIDING) => Ok(false),
        _ => {
            let feature = format!("layer type {kind} (`layer_types`)");
            let known = format!("{FULL}, {SLIDING}, {CONV_TYPE}");
            Err(text.unsupported(feature, &known))
        }
    };
    let layers = types.iter().map(recurs).collect::<Result<_, _>>()?;
    set_mixer(text, config, layers)
}

fn set_mixer(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    layers: Vec<bool>,
) -> Result<(), Error> {
    config.recurrent = Some(RecurrentConfig {
        beside_attention: None,
        layers,
        mixer: RecurrentMixer::ShortConv {
            n_taps: text.usize("conv_L_cache")?.unwrap_or(3),
            biased: text.bool("conv_bias")?.unwrap_or(false),
        },
    });
    Ok(())
}

fn set_layers(config: &mut ModelConfig, layers: Vec<bool>) {
    if let Some(recurrent) = &mut config.recurrent {
        recurrent.layers = layers;
    }
}

pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    recurrent::write_hf_layers(config, CONV_TYPE, out);
    out["norm_eps"] = shortest(config.norm_eps);
    let mixer = config.recurrent.as_ref().map(|recurrent| recurrent.mixer);
    if let Some(RecurrentMixer::ShortConv { n_taps, biased }) = mixer {
        out["conv_L_cache"] = json!(n_taps);
        out["conv_bias"] = json!(biased);
    }
}

pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    build_of(b, block)
}

/// A decoder of these blocks, whose last norm has the name of one of embeddings.
pub(super) fn build_of(b: &mut GraphBuilder<'_>, block: Block) -> Result<(), Error> {
    let mut x = b.embed()?;
    for layer in b.layers() {
        b.hidden(x);
        b.enter_layer(layer);
        x = block(b, layer, x)?;
    }
    b.leave_layers();
    b.hidden(x);
    recurrent::head(b, x)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = match b.config().mixer_of(layer) {
        Some(RecurrentMixer::ShortConv { n_taps, biased }) => {
            recurrent::short_conv(b, (n_taps, biased), normed)?
        }
        _ => {
            let heads = attention::project(b, normed)?;
            let heads = attention::norm_heads(b, heads)?;
            attention::attend(b, layer, heads)?
        }
    };
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
