//! Keys in files of layers with a selective scan.

use super::recurrent::number;
use crate::Error;
use crate::arch::SetKey;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, shortest};
use crate::config::{MambaConfig, MambaNorm, ModelConfig, RecurrentConfig, RecurrentMixer};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Value, json};

/// Bounds that change no step.
pub(in crate::arch) const NO_LIMIT: (f32, f32) = (0.0, f32::INFINITY);

/// A key of this program: llama.cpp does not bound steps.
const LIMIT: &str = "ssm.time_step_limit";

/// Sizes of selective scans, and which layers have them.
pub(in crate::arch) fn gguf(
    keys: &Keys<'_>,
    layers: Vec<bool>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let n_heads = keys.required("ssm.time_step_rank")?;
    let inner = keys.required("ssm.inner_size")?;
    if n_heads == 0 || !inner.is_multiple_of(n_heads) {
        let feature = format!("{n_heads} heads of {inner} elements together");
        return Err(keys.unsupported(feature, "heads of one size"));
    }
    let first = layers.iter().position(|recurs| *recurs);
    let has = |role, is_bias| {
        let name = first.map(|layer| TensorName::block(layer, role));
        let name = name.map(|name| if is_bias { name.bias() } else { name });
        name.is_some_and(|name| keys.has(name))
    };
    let dt_limit = match keys.f32_array(LIMIT)?.as_deref() {
        None => NO_LIMIT,
        Some(&[least, most]) => (least, most),
        Some(_) => {
            let feature = format!("`{LIMIT}` of another number of values");
            return Err(keys.unsupported(feature, "two values"));
        }
    };
    let mamba = MambaConfig {
        n_taps: keys.required("ssm.conv_kernel")?,
        n_heads,
        n_groups: keys.required("ssm.group_count")?,
        head_dim: inner / n_heads,
        d_state: keys.required("ssm.state_size")?,
        dt_limit,
        norm: match (
            has(WeightRole::SsmNorm, false),
            has(WeightRole::SsmPreNorm, false),
        ) {
            (true, _) => MambaNorm::BehindGate,
            (false, true) => MambaNorm::BeforeGate,
            (false, false) => MambaNorm::Absent,
        },
        conv_bias: has(WeightRole::SsmConv, true),
        in_bias: has(WeightRole::SsmIn, true),
        out_bias: has(WeightRole::SsmOut, true),
    };
    set(config, layers, mamba);
    Ok(())
}

/// Gives a configuration its recurrent layers.
fn set(config: &mut ModelConfig, layers: Vec<bool>, mamba: MambaConfig) {
    config.recurrent = Some(RecurrentConfig {
        layers,
        mixer: RecurrentMixer::Mamba(mamba),
        beside_attention: None,
    });
}

/// Reads from the tensors which projections have biases, of any layers that have them.
pub(in crate::arch) fn gguf_biases(keys: &Keys<'_>, config: &mut ModelConfig) {
    let n_layers = config.n_layers;
    let has = |role| (0..n_layers).any(|layer| keys.has(TensorName::block(layer, role).bias()));
    config.biases.qkv = has(WeightRole::AttnQ);
    config.biases.attn_output = has(WeightRole::AttnOutput);
    config.biases.ffn = has(WeightRole::FfnUp);
}

/// Writes sizes of selective scans, and which layers attend where not all do.
pub(in crate::arch) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let mamba = config.recurrent.as_ref().and_then(RecurrentConfig::mamba);
    let Some(mamba) = mamba else {
        return;
    };
    let sizes = [
        ("ssm.conv_kernel", mamba.n_taps),
        ("ssm.inner_size", mamba.d_inner()),
        ("ssm.state_size", mamba.d_state),
        ("ssm.time_step_rank", mamba.n_heads),
        ("ssm.group_count", mamba.n_groups),
    ];
    for (key, size) in sizes {
        set(key, number(size));
    }
    if mamba.dt_limit != NO_LIMIT {
        let (least, most) = mamba.dt_limit;
        set(LIMIT, GgufValue::Array(GgufArray::F32(vec![least, most])));
    }
    if !(0..config.n_layers).all(|layer| config.attends(layer)) {
        write_gguf_heads(config, set);
    }
}

/// Writes which layers attend: those with heads of keys.
pub(in crate::arch) fn write_gguf_heads(config: &ModelConfig, set: &mut SetKey<'_>) {
    let n_kv_heads = i32::try_from(config.n_kv_heads).unwrap_or(i32::MAX);
    let heads = |layer| i32::from(config.attends(layer)) * n_kv_heads;
    let heads = GgufArray::I32((0..config.n_layers).map(heads).collect());
    set("attention.head_count_kv", GgufValue::Array(heads));
}

/// The kind of a layer, as `config.json` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::arch) enum LayerKind {
    Scan,
    Attention,
    Network,
    Experts,
}

impl LayerKind {
    /// Its letter in patterns, its name in lists, and the name that transformers 4 has for it.
    const WORDS: [(LayerKind, char, [&'static str; 2]); 4] = [
        (LayerKind::Scan, 'M', ["linear_attention", "mamba"]),
        (LayerKind::Attention, '*', ["full_attention", "attention"]),
        (LayerKind::Network, '-', ["mlp", "mlp"]),
        (LayerKind::Experts, 'E', ["moe", "moe"]),
    ];

    pub(in crate::arch) fn of_letter(letter: char) -> Option<LayerKind> {
        let mut words = LayerKind::WORDS.iter();
        words.find(|row| row.1 == letter).map(|row| row.0)
    }

    pub(in crate::arch) fn name(self) -> &'static str {
        let mut words = LayerKind::WORDS.iter();
        words.find(|row| row.0 == self).map_or("", |row| row.2[0])
    }
}

/// The kinds of layers by either of two keys; `None` without both.
pub(in crate::arch) fn hf_kinds(
    text: &ConfigObject<'_>,
    known: &[LayerKind],
) -> Result<Option<Vec<LayerKind>>, Error> {
    let key = match text.get("layer_types") {
        Some(_) => "layer_types",
        None => "layers_block_type",
    };
    let Some(types) = text.array(key)? else {
        return Ok(None);
    };
    let kind = |value: &Value| {
        let name = value.as_str().unwrap_or_default();
        let mut words = LayerKind::WORDS.iter();
        let row = words.find(|row| row.2.contains(&name) && known.contains(&row.0));
        row.map(|row| row.0).ok_or_else(|| {
            let feature = format!("layer type {value} (`{key}`)");
            let names: Vec<&str> = known.iter().map(|kind| kind.name()).collect();
            text.unsupported(feature, &names.join(", "))
        })
    };
    types.iter().map(kind).collect::<Result<_, _>>().map(Some)
}

/// Reads sizes of selective scans under the keys of Bamba, whose heads have `inner` elements together.
pub(in crate::arch) fn hf(
    text: &ConfigObject<'_>,
    (layers, inner): (Vec<bool>, usize),
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let size = |key: &str, default| Ok::<_, Error>(text.usize(key)?.unwrap_or(default));
    let n_heads = size("mamba_n_heads", 128)?;
    let key = "mamba_d_head";
    let head_dim = match text.get(key) {
        None | Some(Value::String(_)) => inner / n_heads.max(1),
        Some(_) => size(key, 0)?,
    };
    if n_heads.checked_mul(head_dim) != Some(inner) {
        let expected = format!("heads of {inner} elements together");
        return Err(text.bad("mamba_n_heads", &json!(n_heads), &expected));
    }
    let bias = text.bool("mamba_proj_bias")?.unwrap_or(false);
    let mamba = MambaConfig {
        n_taps: size("mamba_d_conv", 4)?,
        n_heads,
        n_groups: size("mamba_n_groups", 1)?,
        head_dim,
        d_state: size("mamba_d_state", 256)?,
        dt_limit: hf_limit(text)?,
        norm: MambaNorm::BehindGate,
        conv_bias: text.bool("mamba_conv_bias")?.unwrap_or(true),
        in_bias: bias,
        out_bias: bias,
    };
    set(config, layers, mamba);
    Ok(())
}

/// `mamba_expand` times the width of the stream.
pub(in crate::arch) fn hf_inner(
    text: &ConfigObject<'_>,
    config: &ModelConfig,
) -> Result<usize, Error> {
    let expand = text.usize("mamba_expand")?.unwrap_or(2);
    Ok(expand.saturating_mul(config.d_model))
}

/// The reason why `config.json` cannot express a width of scans: it gives multiples of the stream's width.
pub(in crate::arch) fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let recurrent = config.recurrent.as_ref()?;
    let inner = match &recurrent.mixer {
        RecurrentMixer::Mamba(mamba) => mamba.d_inner(),
        RecurrentMixer::ChannelScan(scan) => scan.d_inner,
        _ => return None,
    };
    let d_model = config.d_model;
    (!inner.is_multiple_of(d_model))
        .then(|| format!("scans of {inner} elements beside a stream of {d_model}"))
}

/// Writes the keys that [`hf`] reads.
pub(in crate::arch) fn write_hf(config: &ModelConfig, out: &mut Value) {
    let mamba = config.recurrent.as_ref().and_then(RecurrentConfig::mamba);
    let Some(mamba) = mamba else {
        return;
    };
    out["mamba_n_heads"] = json!(mamba.n_heads);
    out["mamba_n_groups"] = json!(mamba.n_groups);
    out["mamba_d_state"] = json!(mamba.d_state);
    out["mamba_d_head"] = json!(mamba.head_dim);
    out["mamba_d_conv"] = json!(mamba.n_taps);
    out["mamba_expand"] = json!(mamba.d_inner() / config.d_model.max(1));
    out["mamba_conv_bias"] = json!(mamba.conv_bias);
    out["mamba_proj_bias"] = json!(mamba.in_bias);
    write_hf_limit(mamba.dt_limit, out);
}

/// Bounds of steps: `time_step_limit`.
pub(in crate::arch) fn hf_limit(text: &ConfigObject<'_>) -> Result<(f32, f32), Error> {
    let key = "time_step_limit";
    let Some(limits) = text.get(key) else {
        return Ok(NO_LIMIT);
    };
    let bad = || text.bad(key, limits, "two numbers, the least first");
    let [least, most] = limits.as_array().map_or(&[][..], Vec::as_slice) else {
        return Err(bad());
    };
    let read = |value: &Value| {
        // transformers writes a value that JSON has no number for as an object, older files as Python does.
        let word = value.get("__float__").unwrap_or(value);
        match word.as_str() {
            Some("Infinity") => Some(f32::INFINITY),
            _ => value.as_f64().map(|x| x as f32),
        }
    };
    read(least).zip(read(most)).ok_or_else(bad)
}

pub(in crate::arch) fn write_hf_limit(limit: (f32, f32), out: &mut Value) {
    let spell = |x: f32| match x == f32::INFINITY {
        true => json!({"__float__": "Infinity"}),
        false => shortest(x),
    };
    if limit != NO_LIMIT {
        out["time_step_limit"] = json!([spell(limit.0), spell(limit.1)]);
    }
}
