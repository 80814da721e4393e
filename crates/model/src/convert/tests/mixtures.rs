//! Damaged files of mixtures: each refusal names the file, the tensor or key, the expected and the found value.

use millrace_format::gguf::{self, GgufValue};
use millrace_testkit::Golden;

use super::*;
use crate::Model;

/// The golden's GGUF file with another value of a key and without, or with other shapes of, some tensors.
fn gguf_error(golden: &str, key: Option<(&str, u32)>, reshape: Option<(&str, &[usize])>) -> String {
    let source = Checkpoint::open(&Golden::named(golden).gguf().unwrap()).unwrap();
    let mut metadata = source.gguf().unwrap().clone();
    if let Some((key, value)) = key {
        metadata.insert(key, GgufValue::U32(value));
    }
    let mut specs: Vec<TensorSpec> = source.tensors().iter().map(TensorSpec::from).collect();
    if let Some((name, shape)) = reshape {
        let spec = specs.iter_mut().find(|spec| spec.name == name).unwrap();
        spec.shape = shape.to_vec();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.gguf");
    let mut writer = gguf::Writer::create(&path, &metadata, &specs).unwrap();
    for spec in &specs {
        let n_elems: usize = spec.shape.iter().product();
        let zeros = vec![0; 4 * n_elems];
        writer.write(&spec.name, &zeros).unwrap();
    }
    writer.commit().unwrap();
    let error = Model::from_checkpoint(&Checkpoint::open(&path).unwrap()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("odd.gguf"), "{error}");
    error
}

#[test]
fn gguf_files_that_contradict_themselves_are_refused_by_name() {
    let router = "blk.0.ffn_gate_inp.weight";
    let stacked = "blk.1.ffn_down_exps.weight";
    for (key, reshape, words) in [
        (
            Some(("qwen3moe.expert_count", 0)),
            None,
            vec!["ffn_gate.weight", "missing"],
        ),
        (
            Some(("qwen3moe.expert_count", u32::MAX)),
            None,
            vec!["number of experts", "4294967295", "65536"],
        ),
        (
            Some(("qwen3moe.expert_used_count", 7)),
            None,
            vec!["experts that a token uses", "7", "6"],
        ),
        (
            Some(("qwen3moe.expert_used_count", 0)),
            None,
            vec!["experts that a token uses", "0"],
        ),
        (
            Some(("qwen3moe.expert_feed_forward_length", 32)),
            None,
            vec!["blk.0.ffn_gate_exps.weight", "[6, 32, 40]", "[6, 24, 40]"],
        ),
        (
            Some(("qwen3moe.expert_gating_func", 9)),
            None,
            vec!["expert_gating_func", "9", "softmax"],
        ),
        (
            None,
            Some((router, &[6, 48][..])),
            vec![router, "[6, 40]", "[6, 48]"],
        ),
        (
            None,
            Some((router, &[5, 40][..])),
            vec![router, "[6, 40]", "[5, 40]"],
        ),
        (
            None,
            Some((stacked, &[6, 24, 40][..])),
            vec![stacked, "[6, 40, 24]", "[6, 24, 40]"],
        ),
        (
            None,
            Some((stacked, &[5, 40, 24][..])),
            vec![stacked, "[6, 40, 24]", "[5, 40, 24]"],
        ),
        (
            None,
            Some((stacked, &[240, 24][..])),
            vec![stacked, "[6, 40, 24]", "[240, 24]"],
        ),
    ] {
        let error = gguf_error("qwen3moe", key, reshape);
        for word in words {
            assert!(error.contains(word), "{key:?} {reshape:?}: {error}");
        }
    }
    let groups = ("deepseek2.expert_group_count", 3);
    let error = gguf_error("deepseek-v3", Some(groups), None);
    assert!(
        error.contains("groups of experts") && error.contains("n_groups: 3"),
        "{error}"
    );
    let latent = ("deepseek2.attention.kv_lora_rank", 40);
    let error = gguf_error("deepseek-v3", Some(latent), None);
    assert!(
        error.contains("attn_kv_a_mqa.weight") && error.contains("[48, 64]"),
        "{error}"
    );
}

/// A folder's golden with one tensor left out, of another shape or in another format.
fn folder_error(leave_out: Option<&str>, halved: Option<&str>) -> String {
    let golden = Golden::named("qwen3moe");
    let source = Checkpoint::open(golden.hf()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd");
    std::fs::create_dir(&path).unwrap();
    let mut specs: Vec<TensorSpec> = source.tensors().iter().map(TensorSpec::from).collect();
    specs.retain(|spec| Some(spec.name.as_str()) != leave_out);
    for spec in &mut specs {
        if Some(spec.name.as_str()) == halved {
            *spec = TensorSpec::new(spec.name.clone(), DType::F16, &spec.shape);
        }
    }
    let mut writer = ShardedWriter::create(&path, &BTreeMap::new(), &specs, 1 << 30).unwrap();
    for spec in &specs {
        let size = spec.tensor_type.size_bytes(&spec.shape).unwrap();
        writer.write(&spec.name, &vec![0; size]).unwrap();
    }
    writer.commit().unwrap();
    let config = golden.hf().with_file_name("config.json");
    let config = match golden.hf().is_dir() {
        true => golden.hf().join("config.json"),
        false => config,
    };
    std::fs::copy(config, path.join("config.json")).unwrap();
    let error = Model::from_checkpoint(&Checkpoint::open(&path).unwrap()).unwrap_err();
    error.to_string()
}

#[test]
fn folders_that_lack_an_expert_or_mix_formats_are_refused_by_name() {
    let expert = "model.layers.1.mlp.experts.3.up_proj.weight";
    let error = folder_error(Some(expert), None);
    for word in ["odd", expert, "missing", "[24, 40]"] {
        assert!(error.contains(word), "{error}");
    }
    let error = folder_error(None, Some(expert));
    for word in ["odd", expert, "f16", "f32, as of the experts before"] {
        assert!(error.contains(word), "{error}");
    }
}
