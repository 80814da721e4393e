//! Mamba and Falcon Mamba: blocks that are a scan of channels and nothing else.

use super::Family;
use super::SetKey;
use super::block::{attention_free, channel_scan as files, mamba_config};
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows, shortest};
use crate::config::{ChannelScanConfig, ModelConfig, ScanNorms};
use crate::names::WeightRole;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = PLAIN;

const PLAIN: Family = Family {
    name: "mamba",
    gguf_arch: "mamba",
    hf_model_types: &["mamba"],
    hf_classes: &["MambaForCausalLM"],
    models: "Mamba",
    attention_free: true,
    hf_prefix: "backbone.",
    hf_own_biases: true,
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings"),
        (WeightRole::OutputNorm, "norm_f"),
        (WeightRole::AttnNorm, "norm"),
        (WeightRole::SsmIn, "mixer.in_proj"),
        (WeightRole::SsmConv, "mixer.conv1d"),
        (WeightRole::SsmX, "mixer.x_proj"),
        (WeightRole::SsmDt, "mixer.dt_proj"),
        (WeightRole::SsmRate, "mixer.A_log!"),
        (WeightRole::SsmSkip, "mixer.D!"),
        (WeightRole::SsmOut, "mixer.out_proj"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 50_280,
        d_model: 768,
        d_ff: 1,
        n_layers: 32,
        n_heads: 1,
        n_kv_heads: None,
        head_dim: Some(1),
        context_length: attention_free::CONTEXT,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf,
    hf_family: |config| match files::of(config).map(|scan| scan.norms) {
        Some(ScanNorms::Bare { .. }) => Some(FALCON_NAME),
        _ => None,
    },
    write_gguf,
    hf: |text, config| hf(text, ScanNorms::Absent, config),
    write_hf,
    hf_unsayable: mamba_config::hf_unsayable,
    build: attention_free::build,
    ..Family::PLAIN
};

/// The same with norms within the scan. Its GGUF files call themselves `mamba`, so this row is for Hugging Face files.
pub(super) static FALCON: Family = Family {
    name: FALCON_NAME,
    hf_model_types: &["falcon_mamba"],
    hf_classes: &["FalconMambaForCausalLM"],
    models: "Falcon Mamba",
    hf_family: |_| None,
    gguf_family: |_| Some(PLAIN.name),
    hf: |text, config| {
        let eps = text.f32(NORM_EPS)?.unwrap_or(files::USUAL_NORM_EPS);
        hf(text, ScanNorms::Bare { eps }, config)
    },
    ..PLAIN
};

const FALCON_NAME: &str = "falcon_mamba";
const NORM_EPS: &str = "mixer_rms_eps";

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    attention_free::set(config);
    files::gguf(keys, vec![true; config.n_layers], config)
}

fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    attention_free::write_gguf(set);
    files::write_gguf(config, set);
}

fn hf(text: &ConfigObject<'_>, norms: ScanNorms, config: &mut ModelConfig) -> Result<(), Error> {
    attention_free::hf(text, config)?;
    let size = |key: &str, default| Ok::<_, Error>(text.usize(key)?.unwrap_or(default));
    let scan = ChannelScanConfig {
        n_taps: size("conv_kernel", 4)?,
        // The class computes it from the factor, unless files give it.
        d_inner: match text.usize("intermediate_size")? {
            Some(inner) => inner,
            None => size("expand", 2)?.saturating_mul(config.d_model),
        },
        d_state: size("state_size", 16)?,
        dt_rank: files::hf_rank(text, "time_step_rank", config)?,
        norms,
        conv_bias: text.bool("use_conv_bias")?.unwrap_or(true),
        biased: text.bool("use_bias")?.unwrap_or(false),
    };
    files::set(config, vec![true; config.n_layers], scan);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    attention_free::write_hf(config, out);
    let Some(scan) = files::of(config) else {
        return;
    };
    out["conv_kernel"] = json!(scan.n_taps);
    out["expand"] = json!(scan.d_inner / config.d_model.max(1));
    // transformers computes it; llama.cpp's converter reads it.
    out["intermediate_size"] = json!(scan.d_inner);
    out["state_size"] = json!(scan.d_state);
    out["time_step_rank"] = json!(scan.dt_rank);
    out["use_conv_bias"] = json!(scan.conv_bias);
    out["use_bias"] = json!(scan.biased);
    if let ScanNorms::Bare { eps } = scan.norms {
        out[NORM_EPS] = shortest(eps);
    }
}
