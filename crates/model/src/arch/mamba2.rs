//! Mamba 2: blocks that are a selective scan and nothing else.

use super::Family;
use super::block::{attention_free, mamba_config as files};
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows};
use crate::config::{MambaConfig, MambaNorm, ModelConfig, RecurrentConfig, RecurrentMixer};
use crate::names::WeightRole;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "mamba2",
    gguf_arch: "mamba2",
    hf_model_types: &["mamba2"],
    hf_classes: &["Mamba2ForCausalLM"],
    models: "Mamba 2, Mamba Codestral",
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
        (WeightRole::SsmRate, "mixer.A_log!"),
        (WeightRole::SsmDt, "mixer.dt!"),
        (WeightRole::SsmSkip, "mixer.D!"),
        (WeightRole::SsmNorm, "mixer.norm"),
        (WeightRole::SsmOut, "mixer.out_proj"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 32_768,
        d_model: 4096,
        d_ff: 1,
        n_layers: 64,
        n_heads: 1,
        n_kv_heads: None,
        head_dim: Some(1),
        context_length: attention_free::CONTEXT,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf: |keys, config| {
        attention_free::set(config);
        files::gguf(keys, vec![true; config.n_layers], config)
    },
    write_gguf: |config, set| {
        files::write_gguf(config, set);
        attention_free::write_gguf(set);
    },
    hf,
    write_hf,
    hf_unsayable: files::hf_unsayable,
    build: attention_free::build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    attention_free::hf(text, config)?;
    let size = |key: &str, default| Ok::<_, Error>(text.usize(key)?.unwrap_or(default));
    let bias = text.bool("use_bias")?.unwrap_or(false);
    let mamba = MambaConfig {
        n_taps: size("conv_kernel", 4)?,
        n_heads: size("num_heads", 128)?,
        n_groups: size("n_groups", 8)?,
        head_dim: size("head_dim", 64)?,
        d_state: size("state_size", 128)?,
        dt_limit: files::hf_limit(text)?,
        norm: MambaNorm::BehindGate,
        conv_bias: text.bool("use_conv_bias")?.unwrap_or(true),
        in_bias: bias,
        out_bias: bias,
    };
    let inner = size("expand", 2)?.saturating_mul(config.d_model);
    if mamba.n_heads.checked_mul(mamba.head_dim) != Some(inner) {
        let expected = format!("heads of {inner} elements together");
        return Err(text.bad("num_heads", &json!(mamba.n_heads), &expected));
    }
    config.recurrent = Some(RecurrentConfig {
        layers: vec![true; config.n_layers],
        mixer: RecurrentMixer::Mamba(mamba),
        beside_attention: None,
    });
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    attention_free::write_hf(config, out);
    let mamba = config.recurrent.as_ref().and_then(RecurrentConfig::mamba);
    let Some(mamba) = mamba else {
        return;
    };
    out["conv_kernel"] = json!(mamba.n_taps);
    out["num_heads"] = json!(mamba.n_heads);
    out["n_groups"] = json!(mamba.n_groups);
    out["head_dim"] = json!(mamba.head_dim);
    out["state_size"] = json!(mamba.d_state);
    out["expand"] = json!(mamba.d_inner() / config.d_model.max(1));
    out["use_conv_bias"] = json!(mamba.conv_bias);
    out["use_bias"] = json!(mamba.in_bias);
    files::write_hf_limit(mamba.dt_limit, out);
}
