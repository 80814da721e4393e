//! Bamba: selective scans, and attention in some layers; half of each head rotates. Its GGUF files call themselves
//! `granitehybrid`, so this row is for Hugging Face files.

use super::block::mamba_config as files;
use super::{Family, granitehybrid};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows};
use crate::names::WeightRole;
use serde_json::Value;

pub(super) static FAMILY: Family = Family {
    name: NAME,
    gguf_arch: "granitehybrid",
    hf_model_types: &["bamba"],
    hf_classes: &["BambaForCausalLM"],
    models: "Bamba",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    hf_norm_eps: 1e-5,
    hf_partial_rotary: 0.5,
    hf_windows: HfWindows::Recurrent,
    hf_names: &[
        (WeightRole::OutputNorm, "final_layernorm"),
        (WeightRole::FfnNorm, "pre_ff_layernorm"),
        (WeightRole::FfnGate, "feed_forward.gate_proj"),
        (WeightRole::FfnUp, "feed_forward.up_proj"),
        (WeightRole::FfnDown, "feed_forward.down_proj"),
        (WeightRole::SsmIn, "mamba.in_proj"),
        (WeightRole::SsmConv, "mamba.conv1d"),
        (WeightRole::SsmRate, "mamba.A_log!"),
        (WeightRole::SsmDt, "mamba.dt!"),
        (WeightRole::SsmSkip, "mamba.D!"),
        (WeightRole::SsmNorm, "mamba.norm"),
        (WeightRole::SsmOut, "mamba.out_proj"),
    ],
    hf_defaults: HfDefaults {
        vocab_size: 128_000,
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
    gguf_family: |_| Some("granitehybrid"),
    hf,
    write_hf,
    hf_unsayable: files::hf_unsayable,
    build: granitehybrid::build,
    ..Family::PLAIN
};

/// Its name, for GGUF files of the other family that hold such a model.
pub(super) const NAME: &str = "bamba";

/// Numbers of the layers that attend.
const ATTENDING: &str = "attn_layer_indices";

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let mut layers = vec![true; config.n_layers];
    for value in text.array(ATTENDING)?.into_iter().flatten() {
        let layer = value.as_u64().and_then(|layer| usize::try_from(layer).ok());
        match layer.and_then(|layer| layers.get_mut(layer)) {
            Some(recurs) => *recurs = false,
            None => return Err(text.bad(ATTENDING, value, "numbers of layers")),
        }
    }
    let inner = files::hf_inner(text, config)?;
    files::hf(text, (layers, inner), config)
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    files::write_hf(config, out);
    let attending = (0..config.n_layers).filter(|layer| config.attends(*layer));
    out[ATTENDING] = attending.collect();
}
