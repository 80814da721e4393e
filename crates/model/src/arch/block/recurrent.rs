//! Layers with a state in place of attention, and their keys in files.

use super::{attention, channel_scan, mamba, norm};
use crate::Error;
use crate::arch::SetKey;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::ConfigObject;
use crate::config::{DeltaConfig, ModelConfig, RecurrentConfig, RecurrentMixer};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::{
    Activation, CausalConv, DecayForm, DeltaNet, Derivation, Glu, HeadRows, Multiply, RmsNorm,
    ValueHeadOrder, ValueId, WeightSource,
};
use serde_json::{Value, json};

/// The layer's mixer before its feed-forward: a selective scan of either kind, or attention. `activation` follows the
/// convolution before a scan.
pub(in crate::arch) fn mix(
    b: &mut GraphBuilder<'_>,
    layer: usize,
    activation: Activation,
    x: ValueId,
) -> Result<ValueId, Error> {
    match b.config().mixer_of(layer) {
        Some(RecurrentMixer::Mamba(config)) => mamba::scan(b, &config, activation, x),
        Some(RecurrentMixer::ChannelScan(config)) => channel_scan::scan(b, &config, activation, x),
        _ => {
            let heads = attention::project(b, x)?;
            attention::attend(b, layer, heads)
        }
    }
}

/// A gated convolution: `out · (c · conv(b · x))`, of a normed stream.
pub(in crate::arch) fn short_conv(
    b: &mut GraphBuilder<'_>,
    (n_taps, biased): (usize, bool),
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    let parts = [
        ("shortconv_b", WeightRole::ShortConvB, 0),
        ("shortconv_c", WeightRole::ShortConvC, d_model),
        ("shortconv_x", WeightRole::ShortConvX, 2 * d_model),
    ];
    let fused = (b.name_of(WeightRole::ShortConvIn), 3 * d_model);
    let mut values = [x; 3];
    for (value, (label, role, first)) in values.iter_mut().zip(parts) {
        let name = b.name_of(role);
        let weight = b.rows_of((name, &[d_model, d_model]), fused, first)?;
        let bias = match biased {
            true => {
                let n_rows = fused.1;
                let source = WeightSource::Rows { first, n_rows };
                Some(b.weight_from(name.bias(), fused.0.bias(), &[d_model], source)?)
            }
            false => None,
        };
        *value = b.product(label, (weight, bias), x);
    }
    let [gate, after, x] = values;
    let x = b.push("shortconv_bx", Multiply.into(), vec![gate, x], d_model);
    let conv = conv(b, WeightRole::ShortConv, (n_taps, biased), None, x)?;
    let out = b.push(
        "shortconv_gated",
        Multiply.into(),
        vec![after, conv],
        d_model,
    );
    b.linear(
        "shortconv_out",
        WeightRole::ShortConvOut,
        (d_model, biased),
        out,
    )
}

/// A convolution over the last tokens.
pub(super) fn conv(
    b: &mut GraphBuilder<'_>,
    role: WeightRole,
    (n_taps, biased): (usize, bool),
    activation: Option<Activation>,
    x: ValueId,
) -> Result<ValueId, Error> {
    let n_channels = b.width(x);
    let name = b.name_of(role);
    let shape = match b.is_gguf() {
        true => vec![n_channels, n_taps],
        false => vec![n_channels, 1, n_taps],
    };
    let conv = CausalConv {
        state: b.next_state(),
        weight: b.weight_from(name, name, &shape, WeightSource::Whole)?,
        bias: match biased {
            true => Some(b.bias(role, &[n_channels])?),
            false => None,
        },
        n_channels,
        n_taps,
        activation,
    };
    Ok(b.push("conv", conv.into(), vec![x], n_channels))
}

/// A gated delta net, of a normed stream.
pub(in crate::arch) fn delta_net(
    b: &mut GraphBuilder<'_>,
    delta: &DeltaConfig,
    order: ValueHeadOrder,
    x: ValueId,
) -> Result<ValueId, Error> {
    let DeltaInputs {
        qkv,
        gate,
        beta,
        alpha,
    } = DeltaInputs::of(b, delta, x)?;
    let activation = Some(b.config().activation);
    let qkv = conv(
        b,
        WeightRole::SsmConv,
        (delta.n_taps, false),
        activation,
        qkv,
    )?;
    let inputs = DeltaInputs {
        qkv,
        gate,
        beta,
        alpha,
    };
    let eps = b.config().norm_eps;
    delta_rule(b, (delta, order), inputs, eps)
}

/// A gated delta net behind its projections and its convolution. `eps` is that of the norm of its value heads.
pub(in crate::arch) fn delta_rule(
    b: &mut GraphBuilder<'_>,
    (delta, order): (&DeltaConfig, ValueHeadOrder),
    inputs: DeltaInputs,
    eps: f32,
) -> Result<ValueId, Error> {
    let n_heads = delta.n_v_heads;
    let net = DeltaNet {
        state: b.next_state(),
        rate: b.vector(WeightRole::SsmRate, n_heads)?,
        form: match b.is_gguf() {
            true => DecayForm::Rate,
            false => DecayForm::Logarithm,
        },
        dt: b.bias(WeightRole::SsmDt, &[n_heads])?,
        n_k_heads: delta.n_k_heads,
        n_v_heads: n_heads,
        k_dim: delta.k_dim,
        v_dim: delta.v_dim,
        order,
        max_strength: if delta.negative_eigenvalues { 2.0 } else { 1.0 },
    };
    let DeltaInputs {
        qkv,
        gate,
        beta,
        alpha,
    } = inputs;
    let inputs = vec![qkv, alpha, beta];
    let out = b.push("delta_net", net.into(), inputs, delta.v_width());
    // The one norm whose weight no layout stores minus 1.
    let norm = RmsNorm {
        weight: b.vector(WeightRole::SsmNorm, delta.v_dim)?,
        eps,
        offset: 0.0,
        group: delta.v_dim,
    };
    let out = b.push("ssm_norm", norm.into(), vec![out], delta.v_width());
    let gated = Glu::new(Activation::Silu);
    let out = b.push("ssm_gated", gated.into(), vec![gate, out], delta.v_width());
    let d_model = b.config().d_model;
    b.linear("ssm_out", WeightRole::SsmOut, (d_model, false), out)
}

/// Inputs of a gated delta net.
pub(in crate::arch) struct DeltaInputs {
    /// Queries, keys and values.
    pub(in crate::arch) qkv: ValueId,
    /// The gate of its output.
    pub(in crate::arch) gate: ValueId,
    /// A number for each value head, for the strength of the correction.
    pub(in crate::arch) beta: ValueId,
    /// Another for the decay.
    pub(in crate::arch) alpha: ValueId,
}

impl DeltaInputs {
    fn of(b: &mut GraphBuilder<'_>, delta: &DeltaConfig, x: ValueId) -> Result<DeltaInputs, Error> {
        let (k_dim, group) = (delta.k_dim, delta.group());
        let v = group * delta.v_dim;
        let of_heads = |n_rows, parts| HeadRows {
            n_heads: delta.n_k_heads,
            n_rows,
            parts,
        };
        // A key head's queries, keys, values and gates may be adjacent, and so may its two numbers.
        let n_rows = 2 * k_dim + 2 * v;
        let parts = [(0, k_dim), (k_dim, k_dim), (2 * k_dim, v)];
        let qkv = of_heads(n_rows, parts);
        let gate = of_heads(n_rows, [(2 * k_dim + v, v), (0, 0), (0, 0)]);
        let beta = of_heads(2 * group, [(0, group), (0, 0), (0, 0)]);
        let alpha = of_heads(2 * group, [(group, group), (0, 0), (0, 0)]);
        let mut product = |label, role, (fused, rows): (WeightRole, HeadRows), n: usize| {
            let (name, fused) = (b.name_of(role), b.name_of(fused));
            let (tensor, source) = match b.has_own(fused) {
                true => (fused, WeightSource::Derived(Derivation::OfHeads(rows))),
                false => (name, WeightSource::Whole),
            };
            let width = b.width(x);
            let weight = b.weight_from(name, tensor, &[n, width], source)?;
            Ok::<_, Error>(b.product(label, (weight, None), x))
        };
        use WeightRole::{AttnGate, AttnQkv, SsmAlpha, SsmBeta, SsmBetaAlpha, SsmIn};
        let n_heads = delta.n_v_heads;
        Ok(DeltaInputs {
            qkv: product("attn_qkv", AttnQkv, (SsmIn, qkv), delta.qkv_width())?,
            gate: product("attn_gate", AttnGate, (SsmIn, gate), delta.v_width())?,
            beta: product("ssm_beta", SsmBeta, (SsmBetaAlpha, beta), n_heads)?,
            alpha: product("ssm_alpha", SsmAlpha, (SsmBetaAlpha, alpha), n_heads)?,
        })
    }
}

/// The norm before the head, which some files name after the table.
pub(in crate::arch) fn head(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<(), Error> {
    let d_model = b.config().d_model;
    let normed = norm::rms(b, "output_norm", (WeightRole::EmbeddingNorm, d_model), x)?;
    b.head_of(normed, None)
}

const INTERVAL: &str = "full_attention_interval";
const LAYERS: &str = "attention.recurrent_layers";
/// Whether strengths reach 2. llama.cpp has no key for it.
const NEGATIVE: &str = "ssm.negative_eigenvalues";

/// Sizes of gated delta nets, and which layers have them.
pub(in crate::arch) fn gguf_delta(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_v_heads = keys.required("ssm.time_step_rank")?;
    let inner = keys.required("ssm.inner_size")?;
    let delta = DeltaConfig {
        n_taps: keys.required("ssm.conv_kernel")?,
        n_k_heads: keys.required("ssm.group_count")?,
        n_v_heads,
        k_dim: keys.required("ssm.state_size")?,
        v_dim: match n_v_heads > 0 && inner.is_multiple_of(n_v_heads) {
            true => inner / n_v_heads,
            false => {
                let feature = format!("{n_v_heads} value heads of {inner} elements together");
                return Err(keys.unsupported(feature, "heads of one size"));
            }
        },
        negative_eigenvalues: keys.bool(NEGATIVE)?.unwrap_or(false),
    };
    let layers = match keys.flags(LAYERS)? {
        // Blocks behind the last predict further tokens.
        Some(mut layers) => {
            layers.truncate(config.n_layers);
            layers
        }
        None => {
            let interval = keys.usize(INTERVAL)?.unwrap_or(4);
            by_interval(interval, config.n_layers)
        }
    };
    config.recurrent = Some(RecurrentConfig {
        beside_attention: None,
        layers,
        mixer: RecurrentMixer::DeltaNet(delta),
    });
    Ok(())
}

/// All layers but each `interval`-th; with 0 all.
fn by_interval(interval: usize, n_layers: usize) -> Vec<bool> {
    let recurs = |layer: usize| interval == 0 || !(layer + 1).is_multiple_of(interval);
    (0..n_layers).map(recurs).collect()
}

/// Writes the keys that [`gguf_delta`] reads.
pub(in crate::arch) fn write_gguf_delta(config: &ModelConfig, set: &mut SetKey<'_>) {
    let Some(recurrent) = &config.recurrent else {
        return;
    };
    let Some(delta) = recurrent.delta() else {
        return;
    };
    let sizes = [
        ("ssm.conv_kernel", delta.n_taps),
        ("ssm.state_size", delta.k_dim),
        ("ssm.group_count", delta.n_k_heads),
        ("ssm.time_step_rank", delta.n_v_heads),
        ("ssm.inner_size", delta.v_width()),
    ];
    for (key, size) in sizes {
        set(key, number(size));
    }
    if delta.negative_eigenvalues {
        set(NEGATIVE, GgufValue::Bool(true));
    }
    let layers = GgufArray::Bool(recurrent.layers.clone());
    set(LAYERS, GgufValue::Array(layers));
    // Older readers know only the interval.
    let interval = recurrent.layers.iter().position(|recurs| !recurs);
    let interval = interval.map_or(0, |first| first + 1);
    if by_interval(interval, config.n_layers) == recurrent.layers {
        set(INTERVAL, number(interval));
    }
}

pub(in crate::arch) fn number(size: usize) -> GgufValue {
    GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX))
}

/// Layers of that type, by `layer_types`; `None` without them.
pub(in crate::arch) fn hf_layers(
    text: &ConfigObject<'_>,
    recurrent: &str,
) -> Result<Option<Vec<bool>>, Error> {
    let Some(types) = text.array("layer_types")? else {
        return Ok(None);
    };
    let recurs = |value: &Value| match value.as_str() {
        Some(name) if name == recurrent => Ok(true),
        Some("full_attention") => Ok(false),
        _ => {
            let feature = format!("layer type {value} (`layer_types`)");
            Err(text.unsupported(feature, &format!("full_attention, {recurrent}")))
        }
    };
    types.iter().map(recurs).collect::<Result<_, _>>().map(Some)
}

/// Writes `layer_types`.
pub(in crate::arch) fn write_hf_layers(config: &ModelConfig, recurrent: &str, out: &mut Value) {
    let name = |recurs: &bool| match recurs {
        true => recurrent,
        false => "full_attention",
    };
    if let Some(config) = &config.recurrent {
        out["layer_types"] = config.layers.iter().map(name).collect();
    }
}

/// The type of layers with gated delta nets.
pub(in crate::arch) const DELTA_TYPE: &str = "linear_attention";

/// Sizes of gated delta nets, and which layers have them.
pub(in crate::arch) fn hf_delta(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let size = |key: &str, default| Ok::<_, Error>(text.usize(key)?.unwrap_or(default));
    let layers = match hf_layers(text, DELTA_TYPE)? {
        Some(layers) => layers,
        None => match size(INTERVAL, 4)? {
            0 => return Err(text.bad(INTERVAL, &json!(0), "at least 1")),
            interval => by_interval(interval, config.n_layers),
        },
    };
    config.recurrent = Some(RecurrentConfig {
        beside_attention: None,
        layers,
        mixer: RecurrentMixer::DeltaNet(DeltaConfig {
            n_taps: size("linear_conv_kernel_dim", 4)?,
            n_k_heads: size("linear_num_key_heads", 16)?,
            n_v_heads: size("linear_num_value_heads", 32)?,
            k_dim: size("linear_key_head_dim", 128)?,
            v_dim: size("linear_value_head_dim", 128)?,
            negative_eigenvalues: false,
        }),
    });
    Ok(())
}

/// Writes the keys that [`hf_delta`] reads.
pub(in crate::arch) fn write_hf_delta(config: &ModelConfig, out: &mut Value) {
    write_hf_layers(config, DELTA_TYPE, out);
    if let Some(delta) = config.recurrent.as_ref().and_then(RecurrentConfig::delta) {
        out["linear_conv_kernel_dim"] = json!(delta.n_taps);
        out["linear_num_key_heads"] = json!(delta.n_k_heads);
        out["linear_num_value_heads"] = json!(delta.n_v_heads);
        out["linear_key_head_dim"] = json!(delta.k_dim);
        out["linear_value_head_dim"] = json!(delta.v_dim);
    }
}

/// Short convolutions of files whose layers without key heads have them.
pub(in crate::arch) fn gguf_short_conv(
    keys: &Keys<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let heads = keys.per_layer("attention.head_count_kv", config.n_layers)?;
    let layers: Vec<bool> = heads.iter().map(|n| *n == 0).collect();
    let first = layers.iter().position(|recurs| *recurs);
    let bias = |layer| TensorName::block(layer, WeightRole::ShortConv).bias();
    config.recurrent = Some(RecurrentConfig {
        beside_attention: None,
        mixer: RecurrentMixer::ShortConv {
            n_taps: keys.required("shortconv.l_cache")?,
            biased: first.is_some_and(|layer| keys.has(bias(layer))),
        },
        layers,
    });
    Ok(())
}

/// Writes the keys that [`gguf_short_conv`] reads.
pub(in crate::arch) fn write_gguf_short_conv(config: &ModelConfig, set: &mut SetKey<'_>) {
    let Some(recurrent) = &config.recurrent else {
        return;
    };
    let n_kv_heads = i32::try_from(config.n_kv_heads).unwrap_or(i32::MAX);
    let heads = recurrent.layers.iter().map(|recurs| match recurs {
        true => 0,
        false => n_kv_heads,
    });
    let heads = GgufArray::I32(heads.collect());
    set("attention.head_count_kv", GgufValue::Array(heads));
    if let RecurrentMixer::ShortConv { n_taps, .. } = recurrent.mixer {
        set("shortconv.l_cache", number(n_taps));
    }
}
