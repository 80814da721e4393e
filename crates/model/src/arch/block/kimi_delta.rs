//! Kimi delta attention, and its keys in files.

use super::mamba_config;
use super::recurrent::number;
use crate::Error;
use crate::arch::SetKey;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::ConfigObject;
use crate::config::{KimiDeltaConfig, ModelConfig, RecurrentConfig, RecurrentMixer};
use crate::names::WeightRole;
use millrace_graph::{
    Activation, CausalConv, DecayForm, Glu, KimiDelta, RmsNorm, ValueId, WeightId, WeightSource,
};
use serde_json::{Value, json};

/// The whole layer, of a normed stream.
pub(in crate::arch) fn attend(
    b: &mut GraphBuilder<'_>,
    delta: &KimiDeltaConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (width, head_dim) = (delta.width(), delta.head_dim);
    let parts = [
        (
            ["attn_q", "conv_q"],
            WeightRole::AttnQ,
            WeightRole::SsmConvQ,
        ),
        (
            ["attn_k", "conv_k"],
            WeightRole::AttnK,
            WeightRole::SsmConvK,
        ),
        (
            ["attn_v", "conv_v"],
            WeightRole::AttnV,
            WeightRole::SsmConvV,
        ),
    ];
    let mut inputs = Vec::with_capacity(5);
    for ([label, of_conv], role, by) in parts {
        let x = b.linear(label, role, (width, false), x)?;
        inputs.push(conv(b, (of_conv, by), delta.n_taps, x)?);
    }
    let down = b.linear("ssm_f_a", WeightRole::SsmDecayA, (head_dim, false), x)?;
    inputs.push(b.linear("ssm_f_b", WeightRole::SsmDecayB, (width, false), down)?);
    let strengths = (delta.n_heads, false);
    inputs.push(b.linear("ssm_beta", WeightRole::SsmBeta, strengths, x)?);
    let net = KimiDelta {
        state: b.next_state(),
        rate: rate(b, delta.n_heads)?,
        form: match b.is_gguf() {
            true => DecayForm::Rate,
            false => DecayForm::Logarithm,
        },
        dt: b.bias(WeightRole::SsmDt, &[width])?,
        n_heads: delta.n_heads,
        head_dim,
    };
    let out = b.push("kimi_delta", net.into(), inputs, width);
    let norm = RmsNorm {
        weight: b.vector(WeightRole::SsmNorm, head_dim)?,
        eps: b.config().norm_eps,
        offset: 0.0,
        group: head_dim,
    };
    let out = b.push("ssm_norm", norm.into(), vec![out], width);
    let down = b.linear("ssm_g_a", WeightRole::SsmGateA, (head_dim, false), x)?;
    let gate = b.linear("ssm_g_b", WeightRole::SsmGateB, (width, false), down)?;
    let gated = Glu::new(Activation::Sigmoid);
    let out = b.push("ssm_gated", gated.into(), vec![gate, out], width);
    let d_model = b.config().d_model;
    b.linear("attn_output", WeightRole::AttnOutput, (d_model, false), out)
}

/// A convolution. llama.cpp's converter writes a dimension of one before the usual three.
pub(in crate::arch) fn conv(
    b: &mut GraphBuilder<'_>,
    (label, role): (&'static str, WeightRole),
    n_taps: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (n_channels, name) = (b.width(x), b.name_of(role));
    let shape: &[usize] = match b.rank_of(name) {
        Some(4) => &[1, n_channels, 1, n_taps],
        Some(2) => &[n_channels, n_taps],
        _ => &[n_channels, 1, n_taps],
    };
    let conv = CausalConv {
        state: b.next_state(),
        weight: b.weight_from(name, name, shape, WeightSource::Whole)?,
        bias: None,
        n_channels,
        n_taps,
        activation: Some(b.config().activation),
    };
    Ok(b.push(label, conv.into(), vec![x], n_channels))
}

/// Rates of decay. Folders have dimensions of one around them, GGUF files some or none of these.
fn rate(b: &mut GraphBuilder<'_>, n_heads: usize) -> Result<WeightId, Error> {
    let name = b.name_of(WeightRole::SsmRate);
    let usual = if b.is_gguf() { 2 } else { 4 };
    let shape: &[usize] = match b.rank_of(name).unwrap_or(usual) {
        1 => &[n_heads],
        2 => &[n_heads, 1],
        _ => &[1, 1, n_heads, 1],
    };
    b.weight_from(name, name, shape, WeightSource::Whole)
}

const HEAD_DIM: &str = "kda.head_dim";
const TAPS: &str = "ssm.conv_kernel";

/// Reads its sizes from a GGUF file, and which layers have it: those without heads of keys.
pub(in crate::arch) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let heads = keys.per_layer("attention.head_count_kv", config.n_layers)?;
    let delta = KimiDeltaConfig {
        n_taps: keys.required(TAPS)?,
        n_heads: config.n_heads,
        head_dim: keys.required(HEAD_DIM)?,
    };
    set(config, heads.iter().map(|n| *n == 0).collect(), delta);
    Ok(())
}

/// Writes the keys that [`gguf`] reads.
pub(in crate::arch) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    mamba_config::write_gguf_heads(config, set);
    if let Some(delta) = config
        .recurrent
        .as_ref()
        .and_then(RecurrentConfig::kimi_delta)
    {
        set(TAPS, number(delta.n_taps));
        set(HEAD_DIM, number(delta.head_dim));
    }
}

fn set(config: &mut ModelConfig, layers: Vec<bool>, delta: KimiDeltaConfig) {
    config.recurrent = Some(RecurrentConfig {
        layers,
        mixer: RecurrentMixer::KimiDelta(delta),
        beside_attention: None,
    });
}

/// The object of `config.json` that has them, and its lists of layers, which count from 1.
const OBJECT: &str = "linear_attn_config";
const ATTENDING: &str = "full_attn_layers";
const RECURRENT: &str = "kda_layers";

/// Its sizes in a folder, and which layers have it.
pub(in crate::arch) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let inner = text.object(OBJECT)?;
    // transformers also reads them outside the object.
    let size = |key: &str, flat: &str, default: usize| {
        let nested = inner.as_ref().map(|inner| inner.usize(key));
        let nested = nested.transpose()?.flatten();
        Ok::<_, Error>(nested.or(text.usize(flat)?).unwrap_or(default))
    };
    let delta = KimiDeltaConfig {
        n_taps: size("short_conv_kernel_size", "linear_conv_kernel_dim", 4)?,
        n_heads: size("num_heads", "linear_num_heads", 32)?,
        head_dim: size("head_dim", "linear_head_dim", 128)?,
    };
    if delta.n_heads != config.n_heads {
        let feature = format!("{} heads in layers that do not attend", delta.n_heads);
        let supported = format!("as many as others have, {}", config.n_heads);
        return Err(text.unsupported(feature, &supported));
    }
    let usual = |layer: usize| layer == 0 || !layer.is_multiple_of(4);
    let layers = match super::recurrent::hf_layers(text, super::recurrent::DELTA_TYPE)? {
        Some(layers) => layers,
        None => match &inner {
            Some(inner) if inner.get(ATTENDING).is_some() => listed(inner, config.n_layers)?,
            _ => (0..config.n_layers).map(usual).collect(),
        },
    };
    set(config, layers, delta);
    Ok(())
}

/// For each layer, whether it is in the list of recurrent ones and not in the other.
fn listed(inner: &ConfigObject<'_>, n_layers: usize) -> Result<Vec<bool>, Error> {
    let attending = inner.usizes(ATTENDING)?.unwrap_or_default();
    let recurrent = inner.usizes(RECURRENT)?.unwrap_or_default();
    let layers: Vec<bool> = (1..=n_layers).map(|n| !attending.contains(&n)).collect();
    let fits = |(layer, recurs): (usize, &bool)| recurrent.contains(&(layer + 1)) == *recurs;
    if layers.iter().enumerate().all(fits) {
        return Ok(layers);
    }
    let expected = format!("the layers of 1 to {n_layers} that `{ATTENDING}` does not have");
    Err(inner.bad(RECURRENT, &json!(recurrent), &expected))
}

/// Writes the keys that [`hf`] reads.
pub(in crate::arch) fn write_hf(config: &ModelConfig, out: &mut Value) {
    let Some(recurrent) = &config.recurrent else {
        return;
    };
    let Some(delta) = recurrent.kimi_delta() else {
        return;
    };
    let of = |kind: bool| -> Vec<usize> {
        let layers = recurrent.layers.iter().enumerate();
        let layers = layers.filter(|(_, recurs)| **recurs == kind);
        layers.map(|(layer, _)| layer + 1).collect()
    };
    out[OBJECT] = json!({
        ATTENDING: of(false),
        RECURRENT: of(true),
        "head_dim": delta.head_dim,
        "num_heads": delta.n_heads,
        "short_conv_kernel_size": delta.n_taps,
    });
}
