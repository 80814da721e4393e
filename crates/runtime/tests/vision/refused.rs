//! Vision encoders whose tensors have other shapes than their hyperparameters say, and preprocessing that no vision encoder has: both are
//! refused by name.

use std::collections::BTreeMap;
use std::path::Path;

use millrace_format::{Checkpoint, TensorSpec, safetensors};
use millrace_runtime::VisionEncoder;
use millrace_testkit::vision::VisionGolden;
use serde_json::{Value, json};

use crate::{open, renamed};

/// A copy of a folder in which one tensor has another shape.
fn reshaped(folder: &Path, tensor: &str, shape: &[usize]) -> tempfile::TempDir {
    let out = renamed(folder, str::to_owned);
    let file = Checkpoint::open(folder).unwrap();
    let spec_of = |name: &str| {
        let info = file.tensor(name).unwrap().info;
        let shape = if name == tensor { shape } else { &info.shape };
        TensorSpec {
            name: name.to_owned(),
            tensor_type: info.tensor_type,
            shape: shape.to_vec(),
        }
    };
    let names = file.tensors().iter().map(|info| info.name.as_str());
    let specs: Vec<TensorSpec> = names.map(spec_of).collect();
    assert!(specs.iter().any(|spec| spec.name == tensor), "{tensor}");
    let path = out.path().join("model.safetensors");
    let mut writer = safetensors::Writer::create(&path, &BTreeMap::new(), &specs).unwrap();
    for spec in &specs {
        let mut bytes = file.tensor(&spec.name).unwrap().bytes.to_vec();
        bytes.resize(spec.size_bytes().unwrap(), 0);
        writer.write(&spec.name, &bytes).unwrap();
    }
    writer.commit().unwrap();
    out
}

fn refusal(folder: &Path) -> String {
    let error = VisionEncoder::open(&open(folder), None).err().unwrap();
    error.to_string()
}

#[test]
fn tensors_of_other_shapes_are_named() {
    for (golden, tensor, shape) in [
        (
            "gemma4-vision",
            "model.vision_tower.patch_embedder.position_embedding_table",
            &[1, 80, 48][..],
        ),
        (
            "gemma4-vision",
            "model.vision_tower.patch_embedder.input_proj.weight",
            &[48, 3, 4, 5],
        ),
        (
            "gemma4-vision",
            "model.embed_vision.embedding_projection.weight",
            &[48, 40],
        ),
        (
            "gemma4-vision",
            "model.vision_tower.encoder.layers.1.self_attn.k_norm.weight",
            &[48],
        ),
        ("gemma4-vision", "model.vision_tower.std_scale", &[47]),
        (
            "gemma4-vision-small",
            "model.vision_tower.encoder.layers.0.mlp.up_proj.output_max",
            &[2],
        ),
        ("mistral3-vision", "vision_tower.ln_pre.weight", &[47]),
        (
            "mistral3-vision",
            "multi_modal_projector.patch_merger.merging_layer.weight",
            &[48, 48],
        ),
        (
            "pixtral-vision",
            "multi_modal_projector.linear_2.bias",
            &[41],
        ),
    ] {
        let golden = VisionGolden::named(golden);
        let error = refusal(reshaped(golden.hf(), tensor, shape).path());
        assert!(error.contains(tensor), "{error} for {tensor}");
        // Or no tensor of that name.
        let gap = renamed(golden.hf(), |name| name.replace(tensor, "other"));
        if !tensor.ends_with("bias") {
            let error = refusal(gap.path());
            assert!(error.contains(tensor), "{error} without {tensor}");
        }
    }
}

#[test]
fn preprocessing_that_no_encoder_has_is_named() {
    for (golden, key, value, words) in [
        ("gemma4-vision", "max_soft_tokens", json!(0), "pixels of"),
        ("gemma4-vision", "max_soft_tokens", json!(27), "81 at most"),
        (
            "gemma4-vision",
            "max_soft_tokens",
            json!(u64::MAX),
            "pixels of",
        ),
        ("gemma4-vision", "patch_size", json!(5), "patch_size"),
        (
            "gemma4-vision",
            "pooling_kernel_size",
            json!(2),
            "pooling_kernel_size",
        ),
        ("gemma4-vision", "do_resize", json!(false), "do_resize"),
        ("gemma4-vision", "resample", json!(1), "resample"),
        (
            "mistral3-vision",
            "do_normalize",
            json!(false),
            "do_normalize",
        ),
        (
            "mistral3-vision",
            "size",
            json!({"longest_edge": 0}),
            "pixels of",
        ),
        (
            "mistral3-vision",
            "size",
            json!({"longest_edge": u64::MAX}),
            "pixels of",
        ),
        (
            "mistral3-vision",
            "size",
            json!({"height": 48, "width": 40}),
            "longest_edge",
        ),
        (
            "mistral3-vision",
            "image_std",
            json!([1, 0, 1]),
            "image_std",
        ),
    ] {
        let folder = renamed(VisionGolden::named(golden).hf(), str::to_owned);
        let path = folder.path().join("preprocessor_config.json");
        let mut config: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        config[key] = value;
        std::fs::write(&path, config.to_string()).unwrap();
        let error = refusal(folder.path());
        assert!(error.contains(words), "{error} for {key}");
    }
}
