//! Granite with windows: Granite's factors, sinks, a window in most layers; some layers do not rotate.

use super::{Family, granite, granite_moe_swa};
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{
    ConfigObject, HfDefaults, HfWindows, unrotated_layers, write_unrotated_layers,
};
use crate::config::{MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};

/// Distance between layers without a window, from the first on.
const PERIOD: usize = 4;
/// For each layer, whether it has a window.
const PATTERN_KEY: &str = "attention.sliding_window_pattern";
/// For each layer, whether it rotates.
const ROPE_KEY: &str = "attention.rope_pattern";

pub(super) static FAMILY: Family = Family {
    name: "granite-swa",
    gguf_arch: "granite_swa",
    hf_model_types: &["granite_swa"],
    hf_classes: &["GraniteSWAForCausalLM"],
    models: "Granite with windows (dense)",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    logit_divisor: true,
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Pattern {
        window: 128,
        pattern: PERIOD,
    },
    hf_defaults: HfDefaults {
        vocab_size: 100_352,
        d_model: 2560,
        d_ff: 8192,
        n_layers: 24,
        n_heads: 20,
        n_kv_heads: Some(4),
        head_dim: None,
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(PERIOD),
    first_layer_is_global: true,
    own_roles: &[WeightRole::AttnSinks],
    gguf: |keys: &Keys<'_>, config| {
        // Files with experts have no name of their own.
        if config.experts.is_some() {
            config.family = granite_moe_swa::FAMILY.name;
        }
        if let Some(rotates) = keys.flags(ROPE_KEY)? {
            let stands = rotates.iter().enumerate().filter(|(_, rotates)| !**rotates);
            config.unrotated_layers = stands.map(|(layer, _)| layer).collect();
        }
        Ok(())
    },
    hf,
    write_hf: |config, out| {
        granite::write_hf(config, out);
        write_unrotated_layers(config, out);
    },
    write_gguf: |config, set| {
        if config.window.is_some() {
            // llama.cpp refuses a file without the list.
            let layers = GgufArray::Bool(config.layer_windowed.clone());
            set(PATTERN_KEY, GgufValue::Array(layers));
        }
        if !config.unrotated_layers.is_empty() {
            let rotates = (0..config.n_layers).map(|layer| config.rotates(layer));
            set(
                ROPE_KEY,
                GgufValue::Array(GgufArray::Bool(rotates.collect())),
            );
        }
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    granite::hf(text, config)?;
    first_layers_are_global(text, config, PERIOD);
    config.unrotated_layers = unrotated_layers(text, config.rope.theta)?.unwrap_or_default();
    Ok(())
}

/// Windows in all layers but the first of each `period`, where the file gives no types of layers.
pub(super) fn first_layers_are_global(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    period: usize,
) {
    if config.window.is_some() && text.get("layer_types").is_none() {
        let slides = |layer: usize| !layer.is_multiple_of(period);
        config.layer_windowed = (0..config.n_layers.min(MAX_LAYERS)).map(slides).collect();
    }
}
