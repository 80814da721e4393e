//! Vision encoders of random-weight models: their place in a folder, and the `mmproj` file beside a GGUF
//! model.

use std::path::{Path, PathBuf};

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use millrace_format::{Source, TensorSpec, TensorType, output};
use millrace_quant::DType;
use serde_json::json;

use super::{PlannedName, SynthTensor};
use crate::Error;
use crate::config::{self, ModelConfig};
use crate::vision::{HUB, VisionConfig, VisionName, VisionRole, by_name};

/// Control tokens that a vocabulary of a model with a vision encoder has besides: those of conversations and of
/// images, as Gemma 3 calls them.
pub(super) const TOKENS: [&str; 5] = [
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
];

/// Prefix of the text model's names in the hub's files of models with a vision encoder.
pub(super) const TEXT_PREFIX: &str = "language_model.model.";

/// The vision encoder's tensors in a folder whose weights are of this type.
pub(super) fn plan_folder(config: &VisionConfig, dtype: DType) -> Vec<SynthTensor> {
    let planned = |name: VisionName| {
        planned(
            config,
            name,
            name.hf(by_name(config.family), HUB),
            (dtype, Source::HuggingFace),
        )
    };
    config.names().into_iter().map(planned).collect()
}

/// The tensors of an `mmproj` file: F32 where llama.cpp's converter keeps F32, else F16.
pub(super) fn plan_mmproj(config: &VisionConfig) -> Vec<SynthTensor> {
    let planned = |name: VisionName| {
        let is_exact = matches!(name.role, VisionRole::Patches | VisionRole::Positions);
        let is_vector = config.shape_of(name, Source::Gguf).len() == 1;
        let dtype = match is_exact || is_vector {
            true => DType::F32,
            false => DType::F16,
        };
        planned(config, name, name.gguf(), (dtype, Source::Gguf))
    };
    config.names().into_iter().map(planned).collect()
}

fn planned(
    config: &VisionConfig,
    name: VisionName,
    spelled: String,
    (dtype, source): (DType, Source),
) -> SynthTensor {
    SynthTensor {
        name: PlannedName::Vision(name),
        dtype,
        spec: TensorSpec {
            name: spelled,
            tensor_type: TensorType::Weights(dtype),
            shape: config.shape_of(name, source),
        },
    }
}

/// The `mmproj` file of a GGUF model: `mmproj-` and its name, in the same folder.
pub(super) fn mmproj_path(model: &Path) -> PathBuf {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("mmproj-{name}"))
}

/// The metadata of an `mmproj` file (llama.cpp, `conversion/gemma.py`).
pub(super) fn mmproj_metadata(name: &str, config: &VisionConfig) -> Metadata {
    let mut out = Metadata::new();
    let mut set = |key: &str, value: GgufValue| out.insert(key, value);
    let text = |text: &str| GgufValue::Str(text.into());
    set("general.architecture", text("clip"));
    set("general.type", text("mmproj"));
    set("general.name", text(&format!("{name} with random weights")));
    set("clip.has_vision_encoder", GgufValue::Bool(true));
    set("clip.projector_type", text("gemma3"));
    set("clip.use_gelu", GgufValue::Bool(true));
    let sizes = [
        ("image_size", config.image_size),
        ("patch_size", config.patch_size),
        ("embedding_length", config.d_model),
        ("feed_forward_length", config.d_ff),
        ("block_count", config.n_layers),
        ("projection_dim", config.d_text),
        ("attention.head_count", config.n_heads),
        ("projector.scale_factor", config.pool()),
    ];
    for (key, size) in sizes {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        set(&format!("clip.vision.{key}"), GgufValue::U32(size));
    }
    let eps = GgufValue::F32(config.norm_eps);
    set("clip.vision.attention.layer_norm_epsilon", eps);
    for key in ["clip.vision.image_mean", "clip.vision.image_std"] {
        set(key, GgufValue::Array(GgufArray::F32(vec![0.5; 3])));
    }
    out
}

/// Writes `config.json` of the hub's kind and `preprocessor_config.json`. `first_token` is the id of
/// the first of [`TOKENS`].
pub(super) fn write_side_files(
    folder: &Path,
    text: &ModelConfig,
    vision: &VisionConfig,
    first_token: usize,
) -> Result<(), Error> {
    let mut text_config = config::hf::write(text)?;
    text_config["model_type"] = json!("gemma3_text");
    if let Some(map) = text_config.as_object_mut() {
        map.shift_remove("architectures");
    }
    let config = json!({
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "boi_token_index": first_token + 2,
        "eoi_token_index": first_token + 3,
        "image_token_index": first_token + 4,
        "mm_tokens_per_image": vision.n_tokens,
        "tie_word_embeddings": text.tied_head,
        "text_config": text_config,
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": vision.d_model,
            "intermediate_size": vision.d_ff,
            "num_hidden_layers": vision.n_layers,
            "num_attention_heads": vision.n_heads,
            "image_size": vision.image_size,
            "patch_size": vision.patch_size,
            "vision_use_head": false,
        },
    });
    let side = vision.image_size;
    let preprocessor = json!({
        "image_processor_type": "Gemma3ImageProcessor",
        "do_resize": true,
        "do_rescale": true,
        "do_normalize": true,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 2,
        "rescale_factor": 1.0 / 255.0,
        "size": { "height": side, "width": side },
    });
    for (name, json) in [
        ("config.json", config),
        ("preprocessor_config.json", preprocessor),
    ] {
        output::write(&folder.join(name), format!("{json:#}\n").as_bytes())?;
    }
    Ok(())
}
