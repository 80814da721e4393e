//! Ministral 3: Mistral whose queries have a factor that grows with the position.
//!
//! GGUF files of Mistral Small 3.1 and 3.2 have this architecture too, without the factor.

use super::Family;
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows, shortest};
use crate::config::{Biases, ModelConfig};
use millrace_graph::Temperature;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "mistral3",
    gguf_arch: "mistral3",
    hf_model_types: &["ministral3", "mistral3"],
    hf_classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
    models: "Ministral 3, Mistral Small 3 (text)",
    permuted_in_gguf: true,
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Given,
    hf_defaults: HfDefaults {
        vocab_size: 131_072,
        d_model: 4096,
        d_ff: 14_336,
        n_layers: 34,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 262_144,
        tied_head: false,
        rope_theta: 1_000_000.0,
    },
    gguf_window_pattern: Some(0),
    gguf,
    hf,
    hf_family: |config| match config.temperature {
        Some(_) => None,
        None => Some("mistral"),
    },
    write_hf,
    ..Family::PLAIN
};

/// Without a key for its length the factor grows by the context before RoPE was scaled (llama.cpp).
fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let scale = keys.f32("attention.temperature_scale")?;
    let Some(scale) = scale.filter(|scale| *scale != 0.0) else {
        return Ok(());
    };
    let length = match keys.usize("rope.scaling.original_context_length")? {
        Some(length) => length,
        None => keys.required("attention.temperature_length")?,
    };
    config.temperature = Some(Temperature {
        scale,
        length,
        first: 0,
    });
    Ok(())
}

const SCALE: &str = "llama_4_scaling_beta";
const LENGTH: &str = "original_max_position_embeddings";

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_temperature(text, config)
}

/// The factor on queries in `rope_parameters`, which such a configuration must have. A factor of 0 means none.
pub(super) fn hf_temperature(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let Some(rope) = text.object("rope_parameters")? else {
        let feature = format!(
            "a configuration without `rope_parameters` in {}",
            config.family
        );
        return Err(text.unsupported(feature, "one that says them"));
    };
    let scale = rope.f32(SCALE)?;
    let Some(scale) = scale.filter(|scale| *scale != 0.0) else {
        return Ok(());
    };
    let missing = || Error::MissingKey {
        file: rope.file.into(),
        key: format!("rope_parameters.{LENGTH}"),
    };
    config.temperature = Some(Temperature {
        scale,
        length: rope.usize(LENGTH)?.ok_or_else(missing)?,
        first: 0,
    });
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    if config.temperature.is_some() {
        write_temperature(config, out);
    }
}

/// Writes the keys that [`hf_temperature`] reads; 0 where queries have no factor.
pub(super) fn write_temperature(config: &ModelConfig, out: &mut Value) {
    let rope = &mut out["rope_parameters"];
    match config.temperature {
        Some(temperature) => {
            rope[SCALE] = shortest(temperature.scale);
            rope[LENGTH] = json!(temperature.length);
        }
        None => {
            rope[SCALE] = json!(0.0);
            if rope[LENGTH].is_null() {
                rope[LENGTH] = json!(config.context_length);
            }
        }
    }
}
