//! Layers with a scan of channels (Mamba), and their keys in files.

use super::recurrent::{self, number};
use crate::Error;
use crate::arch::SetKey;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::ConfigObject;
use crate::config::{ChannelScanConfig, ModelConfig, RecurrentConfig, RecurrentMixer, ScanNorms};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ChannelScan, DecayForm, Glu, RmsNorm, ValueId, WeightSource};
use serde_json::Value;

/// A scan of channels of a normed stream, with its gate and its projections; `activation` follows its convolution.
pub(super) fn scan(
    b: &mut GraphBuilder<'_>,
    config: &ChannelScanConfig,
    activation: Activation,
    x: ValueId,
) -> Result<ValueId, Error> {
    let ChannelScanConfig {
        d_inner, d_state, ..
    } = *config;
    let values = projected(b, config, ("ssm_in_x", WeightRole::SsmInX, 0), x)?;
    let gate = ("ssm_in_gate", WeightRole::SsmInGate, d_inner);
    let gate = projected(b, config, gate, x)?;
    let convolution = (config.n_taps, config.conv_bias);
    let activation = Some(activation);
    let x = recurrent::conv(b, WeightRole::SsmConv, convolution, activation, values)?;
    let [dt, k, q] = inputs(b, config, x)?;
    let dt = b.linear("ssm_dt", WeightRole::SsmDt, (d_inner, true), dt)?;
    let rate = b.name_of(WeightRole::SsmRate);
    let op = ChannelScan {
        state: b.next_state(),
        rate: b.weight_from(rate, rate, &[d_inner, d_state], WeightSource::Whole)?,
        form: match b.is_gguf() {
            true => DecayForm::Rate,
            false => DecayForm::Logarithm,
        },
        skip: b.vector(WeightRole::SsmSkip, d_inner)?,
        n_channels: d_inner,
        d_state,
    };
    let out = b.push("channel_scan", op.into(), vec![x, dt, k, q], d_inner);
    let glu = Glu::new(Activation::Silu);
    let out = b.push("ssm_gated", glu.into(), vec![gate, out], d_inner);
    let size = (b.config().d_model, config.biased);
    b.linear("ssm_out", WeightRole::SsmOut, size, out)
}

/// Half of the rows of the projection before the convolution, from `first` on.
fn projected(
    b: &mut GraphBuilder<'_>,
    config: &ChannelScanConfig,
    (label, role, first): (&'static str, WeightRole, usize),
    x: ValueId,
) -> Result<ValueId, Error> {
    let (name, fused) = (b.name_of(role), b.name_of(WeightRole::SsmIn));
    let (n, n_rows) = (config.d_inner, 2 * config.d_inner);
    let shape = [n, b.width(x)];
    let weight = b.rows_of((name, &shape), (fused, n_rows), first)?;
    let bias = match config.biased {
        true => Some(b.rows_of((name.bias(), &[n]), (fused.bias(), n_rows), first)?),
        false => None,
    };
    Ok(b.product(label, (weight, bias), x))
}

/// The inputs of steps, keys and queries, each with its norm.
fn inputs(
    b: &mut GraphBuilder<'_>,
    config: &ChannelScanConfig,
    x: ValueId,
) -> Result<[ValueId; 3], Error> {
    let ChannelScanConfig {
        d_state, dt_rank, ..
    } = *config;
    let fused = (b.name_of(WeightRole::SsmX), config.x_width());
    let part = |b: &mut GraphBuilder<'_>, label, role, (first, n): (usize, usize)| {
        let name = b.name_of(role);
        let shape = [n, b.width(x)];
        let weight = b.rows_of((name, &shape), fused, first)?;
        Ok::<_, Error>(b.product(label, (weight, None), x))
    };
    let dt = part(b, "ssm_x_dt", WeightRole::SsmXDt, (0, dt_rank))?;
    let k = part(b, "ssm_x_b", WeightRole::SsmXB, (dt_rank, d_state))?;
    let q = part(
        b,
        "ssm_x_c",
        WeightRole::SsmXC,
        (dt_rank + d_state, d_state),
    )?;
    Ok([
        normed(b, config.norms, ("ssm_dt_norm", WeightRole::SsmDtNorm), dt)?,
        normed(b, config.norms, ("ssm_b_norm", WeightRole::SsmBNorm), k)?,
        normed(b, config.norms, ("ssm_c_norm", WeightRole::SsmCNorm), q)?,
    ])
}

fn normed(
    b: &mut GraphBuilder<'_>,
    norms: ScanNorms,
    (label, role): (&'static str, WeightRole),
    x: ValueId,
) -> Result<ValueId, Error> {
    let group = b.width(x);
    let (weight, eps) = match norms {
        ScanNorms::Absent => return Ok(x),
        ScanNorms::Bare { eps } => (b.ones(group), eps),
        ScanNorms::Weighted => (b.vector(role, group)?, b.config().norm_eps),
    };
    let norm = RmsNorm {
        weight,
        eps,
        offset: 0.0,
        group,
    };
    Ok(b.push(label, norm.into(), vec![x], group))
}

/// A key of this program: llama.cpp takes the epsilon of the other norms.
const NORM_EPS: &str = "ssm.dt_b_c_rms_epsilon";

/// Whether there are norms without weights.
const HAS_NORMS: &str = "ssm.dt_b_c_rms";

/// The epsilon of Falcon Mamba's norms within a scan, where files give none (transformers, `FalconMambaConfig`).
pub(in crate::arch) const USUAL_NORM_EPS: f32 = 1e-6;

/// Sizes of scans of channels, and which layers have them.
pub(in crate::arch) fn gguf(
    keys: &Keys<'_>,
    layers: Vec<bool>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let first = layers.iter().position(|recurs| *recurs);
    let has = |name: &dyn Fn(usize) -> TensorName| first.is_some_and(|layer| keys.has(name(layer)));
    let has_bias = |role| has(&|layer| TensorName::block(layer, role).bias());
    let has_weight = |role| has(&|layer| TensorName::block(layer, role));
    let norms = match keys.bool(HAS_NORMS)?.unwrap_or(false) {
        true => ScanNorms::Bare {
            eps: keys.f32(NORM_EPS)?.unwrap_or(USUAL_NORM_EPS),
        },
        false if has_weight(WeightRole::SsmDtNorm) => ScanNorms::Weighted,
        false => ScanNorms::Absent,
    };
    let scan = ChannelScanConfig {
        n_taps: keys.required("ssm.conv_kernel")?,
        d_inner: keys.required("ssm.inner_size")?,
        d_state: keys.required("ssm.state_size")?,
        dt_rank: keys.required("ssm.time_step_rank")?,
        norms,
        conv_bias: has_bias(WeightRole::SsmConv),
        biased: has_bias(WeightRole::SsmIn),
    };
    set(config, layers, scan);
    Ok(())
}

/// Gives a configuration its recurrent layers.
pub(in crate::arch) fn set(config: &mut ModelConfig, layers: Vec<bool>, scan: ChannelScanConfig) {
    config.recurrent = Some(RecurrentConfig {
        layers,
        mixer: RecurrentMixer::ChannelScan(scan),
        beside_attention: None,
    });
}

/// Sizes of the scans of channels of a configuration.
pub(in crate::arch) fn of(config: &ModelConfig) -> Option<&ChannelScanConfig> {
    let recurrent = config.recurrent.as_ref();
    recurrent.and_then(RecurrentConfig::channel_scan)
}

/// The rank of steps: a number, or a sixteenth of the stream's width, rounded up.
pub(in crate::arch) fn hf_rank(
    text: &ConfigObject<'_>,
    key: &str,
    config: &ModelConfig,
) -> Result<usize, Error> {
    let usual = config.d_model.div_ceil(16);
    match text.get(key) {
        Some(Value::String(word)) if word == "auto" => Ok(usual),
        _ => Ok(text.usize(key)?.unwrap_or(usual)),
    }
}

/// Writes sizes of scans of channels.
pub(in crate::arch) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let Some(scan) = of(config) else {
        return;
    };
    let sizes = [
        ("ssm.conv_kernel", scan.n_taps),
        ("ssm.inner_size", scan.d_inner),
        ("ssm.state_size", scan.d_state),
        ("ssm.time_step_rank", scan.dt_rank),
    ];
    for (key, size) in sizes {
        set(key, number(size));
    }
    if let ScanNorms::Bare { eps } = scan.norms {
        set(HAS_NORMS, GgufValue::Bool(true));
        if eps != USUAL_NORM_EPS {
            set(NORM_EPS, GgufValue::F32(eps));
        }
    }
}
