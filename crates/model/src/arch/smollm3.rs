//! SmolLM3: Llama whose every fourth layer does not rotate its heads.

use super::Family;
use crate::Error;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows};
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::json;

/// A key of this program: other readers take every fourth layer.
const KEY: &str = "attention.no_rope_layers";
const INTERVAL: usize = 4;

pub(super) static FAMILY: Family = Family {
    name: "smollm3",
    gguf_arch: "smollm3",
    hf_model_types: &["smollm3"],
    hf_classes: &["SmolLM3ForCausalLM"],
    models: "SmolLM3",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    hf_own_keys: &["no_rope_layers", "no_rope_layer_interval"],
    // Without `layer_types` the layers that do not rotate slide.
    hf_windows: HfWindows::FromLayer {
        window: 4096,
        first: usize::MAX,
    },
    hf_defaults: HfDefaults {
        vocab_size: 128_256,
        d_model: 2048,
        d_ff: 11_008,
        n_layers: 36,
        n_heads: 16,
        n_kv_heads: Some(4),
        head_dim: None,
        context_length: 32_768,
        tied_head: true,
        rope_theta: 2_000_000.0,
    },
    gguf: |keys: &Keys<'_>, config| {
        config.unrotated_layers = match keys.u32_array(KEY)? {
            Some(layers) => layers.into_iter().map(|layer| layer as usize).collect(),
            None => every(INTERVAL, config.n_layers),
        };
        Ok(())
    },
    hf,
    write_hf: |config, out| {
        let rotates = (0..config.n_layers).map(|layer| u8::from(config.rotates(layer)));
        out["no_rope_layers"] = rotates.collect();
    },
    write_gguf: |config, set| {
        if config.unrotated_layers != every(INTERVAL, config.n_layers) {
            let layers = config.unrotated_layers.iter().map(|layer| *layer as u32);
            set(KEY, GgufValue::Array(GgufArray::U32(layers.collect())));
        }
    },
    ..Family::PLAIN
};

/// Each `interval`-th layer.
fn every(interval: usize, n_layers: usize) -> Vec<usize> {
    let is_it = |layer: &usize| (layer + 1).is_multiple_of(interval);
    (0..n_layers).filter(is_it).collect()
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.unrotated_layers = unrotated_layers(text, config.n_layers)?;
    if text.get("sliding_window").is_none() {
        config.window = None;
        config.layer_windowed = vec![false; config.n_layers];
    } else if config.window.is_some() && text.get("layer_types").is_none() {
        config.layer_windowed = (0..config.n_layers).map(|l| !config.rotates(l)).collect();
    }
    Ok(())
}

/// Layers whose heads do not rotate: from a list of flags for those that do, else each of an interval.
pub(super) fn unrotated_layers(
    text: &ConfigObject<'_>,
    n_layers: usize,
) -> Result<Vec<usize>, Error> {
    Ok(
        match text
            .array("no_rope_layers")?
            .filter(|layers| !layers.is_empty())
        {
            Some(layers) => {
                let layers = layers.iter().take(n_layers).enumerate();
                let stands =
                    |value: &serde_json::Value| value == &json!(0) || value == &json!(false);
                layers
                    .filter(|(_, value)| stands(value))
                    .map(|(layer, _)| layer)
                    .collect()
            }
            None => match text.usize("no_rope_layer_interval")?.unwrap_or(INTERVAL) {
                0 => return Err(text.bad("no_rope_layer_interval", &json!(0), "at least 1")),
                interval => every(interval, n_layers),
            },
        },
    )
}
