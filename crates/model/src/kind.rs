//! Checkpoints that open but are not language models: adapters, vision encoders, statistics, other programs' quantisations.

use millrace_format::{Checkpoint, Error as FormatError, gguf};
use serde_json::Value;

use crate::Error;

const MERGE: &str = "merge it into its base model (peft's `merge_and_unload`, llama.cpp's `llama-export-lora`) and \
     take the result, or name its base model and the adapter with --lora";

/// `general.type` or `general.architecture`, a description of such a file, and advice.
const GGUF_KINDS: &[(&str, &str, &str)] = &[
    ("adapter", "a LoRA adapter, not a model", MERGE),
    (
        "imatrix",
        "an importance matrix (imatrix), which tools quantise with",
        "name the model itself",
    ),
    ("mmproj", VISION_ENCODER, VISION_ADVICE),
    ("projector", VISION_ENCODER, VISION_ADVICE),
    ("clip", VISION_ENCODER, VISION_ADVICE),
    (
        "controlvector",
        "a control vector, which steers another model",
        "name the model itself",
    ),
];

const VISION_ENCODER: &str = "a vision encoder alone (mmproj)";
const VISION_ADVICE: &str = "name the text model, and this file with --mmproj";

/// Refuses a checkpoint of another kind than a language model.
///
/// # Errors
/// [`millrace_format::Error::NotAModel`], with the kind of the file and advice.
pub fn check_kind(checkpoint: &Checkpoint) -> Result<(), Error> {
    let kind = match checkpoint.gguf() {
        Some(metadata) => of_gguf(metadata),
        None => of_folder(checkpoint),
    };
    let Some((what, advice)) = kind else {
        return Ok(());
    };
    Err(FormatError::NotAModel {
        file: checkpoint.name().into(),
        what,
        advice,
    }
    .into())
}

fn of_gguf(metadata: &gguf::Metadata) -> Option<(String, String)> {
    let text = |key: &str| metadata.get_str(key).ok().flatten();
    let found = [
        text("general.type"),
        text("general.architecture"),
        text("adapter.type").map(|_| "adapter"),
    ];
    let row = found
        .iter()
        .flatten()
        .find_map(|found| GGUF_KINDS.iter().find(|row| row.0 == *found))?;
    Some((row.1.into(), row.2.into()))
}

fn of_folder(checkpoint: &Checkpoint) -> Option<(String, String)> {
    let config = checkpoint.hf().and_then(|files| files.config.as_ref());
    let names = || checkpoint.tensors().iter().map(|info| info.name.as_str());
    let is_adapter = |name: &str| name.contains(".lora_A.") || name.contains(".lora_down.");
    // MLX gives its adapters' halves these names.
    let is_mlx_adapter = |name: &str| name.ends_with(".lora_a") || name.ends_with(".lora_b");
    if config.is_none() && names().any(|name| is_adapter(name) || is_mlx_adapter(name)) {
        return Some(("a LoRA adapter, not a model".into(), MERGE.into()));
    }
    let bits = mlx_bits(config?)?;
    Some((
        format!("an MLX model, quantised to {bits} bits in MLX's own format"),
        "take the model's original safetensors or a GGUF file".into(),
    ))
}

/// The bits of MLX's quantisation: group size and bits without a method.
fn mlx_bits(config: &Value) -> Option<&Value> {
    ["quantization", "quantization_config"]
        .iter()
        .filter_map(|key| config.get(*key))
        .find(|value| value.get("group_size").is_some() && value.get("quant_method").is_none())?
        .get("bits")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn files_that_are_no_models_are_named() {
        for (key, value, said) in [
            ("general.type", "adapter", "a LoRA adapter"),
            ("general.type", "imatrix", "an importance matrix"),
            ("general.type", "mmproj", "--mmproj"),
            ("general.architecture", "clip", "--mmproj"),
            ("general.architecture", "controlvector", "a control vector"),
            ("adapter.type", "lora", "a LoRA adapter"),
            ("general.type", "model", ""),
            ("general.architecture", "llama", ""),
        ] {
            let mut metadata = gguf::Metadata::new();
            metadata.insert(key, value);
            let found = of_gguf(&metadata).map(|(what, advice)| format!("{what}: {advice}"));
            assert_eq!(found.is_some(), !said.is_empty(), "{key} {value}");
            assert!(found.unwrap_or_default().contains(said), "{key} {value}");
        }
    }

    #[test]
    fn folders_that_are_no_models_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let said = |header: &str, config: Option<&Value>| {
            let path = dir.path().join("model.safetensors");
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
            std::fs::write(&path, bytes).unwrap();
            let file: &Path = &dir.path().join("config.json");
            match config {
                Some(config) => std::fs::write(file, config.to_string()).unwrap(),
                None => drop(std::fs::remove_file(file)),
            }
            let checked = check_kind(&Checkpoint::open(dir.path()).unwrap());
            checked
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        for name in [
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
            "model.layers.0.self_attn.q_proj.lora_a",
            "lora_unet_x.lora_down.weight",
        ] {
            let header = json!({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}});
            assert!(
                said(&header.to_string(), None).contains("a LoRA adapter"),
                "{name}"
            );
        }
        let mlx = json!({"group_size": 64, "bits": 4});
        for key in ["quantization", "quantization_config"] {
            let found = said("{}", Some(&json!({key: mlx})));
            assert!(
                found.contains("an MLX model, quantised to 4 bits"),
                "{key}: {found}"
            );
        }
        let gptq =
            json!({"quantization_config": {"quant_method": "gptq", "group_size": 64, "bits": 4}});
        for config in [json!({}), gptq] {
            assert_eq!(said("{}", Some(&config)), "", "{config}");
        }
    }
}
