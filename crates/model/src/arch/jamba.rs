//! Jamba: scans of channels, and attention without rotation in some layers; experts in some.

use super::Family;
use super::block::{channel_scan as files, mamba_config};
use super::{ExpertDefaults, SetKey, granitehybrid};
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfWindows};
use crate::config::{ChannelScanConfig, ModelConfig, ScanNorms};
use crate::names::WeightRole;
use millrace_graph::Gating;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "jamba",
    gguf_arch: "jamba",
    hf_model_types: &["jamba"],
    hf_classes: &["JambaForCausalLM"],
    models: "Jamba",
    hf_own_biases: true,
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        (WeightRole::OutputNorm, "final_layernorm"),
        (WeightRole::FfnNorm, "pre_ff_layernorm"),
        (WeightRole::FfnGate, "feed_forward.gate_proj"),
        (WeightRole::FfnUp, "feed_forward.up_proj"),
        (WeightRole::FfnDown, "feed_forward.down_proj"),
        (WeightRole::Router, "feed_forward.router"),
        (WeightRole::ExpertsGate, "feed_forward.experts.{}.gate_proj"),
        (WeightRole::ExpertsUp, "feed_forward.experts.{}.up_proj"),
        (WeightRole::ExpertsDown, "feed_forward.experts.{}.down_proj"),
        (WeightRole::SsmIn, "mamba.in_proj"),
        (WeightRole::SsmConv, "mamba.conv1d"),
        (WeightRole::SsmX, "mamba.x_proj"),
        (WeightRole::SsmDtNorm, "mamba.dt_layernorm"),
        (WeightRole::SsmBNorm, "mamba.b_layernorm"),
        (WeightRole::SsmCNorm, "mamba.c_layernorm"),
        (WeightRole::SsmDt, "mamba.dt_proj"),
        (WeightRole::SsmRate, "mamba.A_log!"),
        (WeightRole::SsmSkip, "mamba.D!"),
        (WeightRole::SsmOut, "mamba.out_proj"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 16),
        n_used: ("num_experts_per_tok", 2),
        d_ff: ("intermediate_size", 14_336),
        ..HfExperts::PLAIN
    }),
    experts: ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 65_536,
        d_model: 4096,
        d_ff: 14_336,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 262_144,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf,
    write_gguf,
    hf,
    write_hf,
    hf_unsayable,
    build: granitehybrid::build,
    ..Family::PLAIN
};

/// Keys for the number of layers from one of a kind to the next, and for the first of them.
const ATTENTION: [&str; 2] = ["attn_layer_period", "attn_layer_offset"];
const EXPERTS: [&str; 2] = ["expert_layer_period", "expert_layer_offset"];

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let heads = keys.per_layer("attention.head_count_kv", config.n_layers)?;
    config.unrotated_layers = (0..config.n_layers).collect();
    // A dense model records its networks as one expert each.
    if config
        .experts
        .as_ref()
        .is_some_and(|experts| experts.n_experts == 1)
    {
        config.experts = None;
    }
    files::gguf(keys, heads.iter().map(|n| *n == 0).collect(), config)
}

fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    mamba_config::write_gguf_heads(config, set);
    files::write_gguf(config, set);
}

/// For each layer, whether it is one of a period.
fn every(
    text: &ConfigObject<'_>,
    keys: [&str; 2],
    defaults: [usize; 2],
    n_layers: usize,
) -> Result<Vec<bool>, Error> {
    let period = text.usize(keys[0])?.unwrap_or(defaults[0]);
    let offset = text.usize(keys[1])?.unwrap_or(defaults[1]);
    if offset >= period {
        let expected = format!("less than `{}`, which is {period}", keys[0]);
        return Err(text.bad(keys[1], &json!(offset), &expected));
    }
    Ok((0..n_layers)
        .map(|layer| layer % period == offset)
        .collect())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_layers = config.n_layers;
    let size = |key: &str, default| Ok::<_, Error>(text.usize(key)?.unwrap_or(default));
    let attending = every(text, ATTENTION, [8, 4], n_layers)?;
    let scan = ChannelScanConfig {
        n_taps: size("mamba_d_conv", 4)?,
        d_inner: mamba_config::hf_inner(text, config)?,
        d_state: size("mamba_d_state", 16)?,
        dt_rank: files::hf_rank(text, "mamba_dt_rank", config)?,
        norms: ScanNorms::Weighted,
        conv_bias: text.bool("mamba_conv_bias")?.unwrap_or(true),
        biased: text.bool("mamba_proj_bias")?.unwrap_or(false),
    };
    let recurs = attending.iter().map(|attends| !attends).collect();
    files::set(config, recurs, scan);
    config.unrotated_layers = (0..n_layers).collect();
    let with_experts = every(text, EXPERTS, [2, 1], n_layers)?;
    match &mut config.experts {
        Some(experts) if experts.n_experts > 1 && with_experts.contains(&true) => {
            let dense = with_experts.iter().enumerate().filter(|(_, has)| !**has);
            experts.dense_layers = dense.map(|(layer, _)| layer).collect();
        }
        experts => *experts = None,
    }
    Ok(())
}

/// Layers that attend, and layers with experts, with the keys for both.
fn kinds(config: &ModelConfig) -> [([&'static str; 2], Vec<usize>); 2] {
    let layers = |is: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..config.n_layers).filter(|layer| is(*layer)).collect()
    };
    [
        (ATTENTION, layers(&|layer| config.attends(layer))),
        (EXPERTS, layers(&|layer| config.experts_of(layer).is_some())),
    ]
}

/// The number of layers from one to the next, and the first. For a single one, the number is that of all layers.
fn period(layers: &[usize], n_layers: usize) -> [usize; 2] {
    match *layers {
        [] => [n_layers + 1, n_layers],
        [first] => [n_layers.max(first + 1), first],
        [first, second, ..] => [second - first, first],
    }
}

fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let layers = kinds(config).into_iter().find_map(|(keys, layers)| {
        let [period, offset] = period(&layers, config.n_layers);
        let said = (0..config.n_layers).filter(|layer| layer % period == offset);
        let is_said = offset < period && said.eq(layers.iter().copied());
        (!is_said).then(|| format!("layers {layers:?}, which `{}` cannot say", keys[0]))
    });
    layers.or_else(|| mamba_config::hf_unsayable(config))
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let Some(scan) = files::of(config) else {
        return;
    };
    out["mamba_d_conv"] = json!(scan.n_taps);
    out["mamba_expand"] = json!(scan.d_inner / config.d_model.max(1));
    out["mamba_d_state"] = json!(scan.d_state);
    out["mamba_dt_rank"] = json!(scan.dt_rank);
    out["mamba_conv_bias"] = json!(scan.conv_bias);
    out["mamba_proj_bias"] = json!(scan.biased);
    if config.experts.is_none() {
        out["num_experts"] = json!(1);
    }
    for (keys, layers) in kinds(config) {
        for (key, value) in keys.into_iter().zip(period(&layers, config.n_layers)) {
            out[key] = json!(value);
        }
    }
}
