//! Ministral 8B and Code World Model: Llama with a window in some layers. Their GGUF files call themselves `llama`;
//! llama.cpp has no windows there.

use super::Family;
use super::granite_swa::first_layers_are_global;
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows};
use crate::config::{Biases, MAX_LAYERS, ModelConfig, RopeScaling};

pub(super) static FAMILY: Family = Family {
    name: "ministral",
    gguf_arch: "llama",
    hf_model_types: &["ministral"],
    hf_classes: &["MinistralForCausalLM"],
    models: "Ministral 8B",
    permuted_in_gguf: true,
    hf_biases: Some(Biases::NONE),
    hf_windows: HfWindows::Pattern {
        window: 4096,
        // Where no types are given, all layers have one.
        pattern: MAX_LAYERS + 1,
    },
    hf_defaults: HfDefaults {
        vocab_size: 32_000,
        d_model: 4096,
        d_ff: 14_336,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 131_072,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    ..Family::PLAIN
};

/// Code World Model, whose class has other defaults.
pub(super) static CWM: Family = Family {
    name: "cwm",
    gguf_arch: "llama",
    hf_model_types: &["cwm"],
    hf_classes: &["CwmForCausalLM"],
    models: "Code World Model 32B",
    permuted_in_gguf: true,
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Pattern {
        window: 8192,
        pattern: PERIOD,
    },
    hf_defaults: HfDefaults {
        vocab_size: 128_256,
        d_model: 6144,
        d_ff: 21_504,
        n_layers: 64,
        n_heads: 48,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 1_000_000.0,
    },
    hf: hf_cwm,
    ..Family::PLAIN
};

/// Every so many layers, from the first on, one has no window, where no types are given.
const PERIOD: usize = 4;

fn hf_cwm(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    first_layers_are_global(text, config, PERIOD);
    let keys = ["rope_parameters", "rope_scaling"];
    if keys.iter().all(|key| text.get(key).is_none()) {
        config.rope.scaling = RopeScaling::Llama3 {
            factor: 16.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192,
        };
    }
    Ok(())
}
