//! Separate factors of weights in a GGUF file, for a tensor or for each expert.

use std::path::Path;
use std::sync::Arc;

use millrace_format::{Checkpoint, TensorSpec, gguf};
use millrace_model::convert::OutputContainer;
use millrace_quant::DType;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, LoadedModel, LogitsFor,
};
use millrace_testkit::compare::assert_logits_within;
use millrace_testkit::golden::{Golden, GoldenMatrix};

use crate::converted::convert;

fn logits(path: &Path, tokens: &[u32]) -> Vec<f32> {
    let model = Arc::new(LoadedModel::open(path).unwrap_or_else(|error| panic!("{error}")));
    let options = EngineOptions {
        kv_type: KvType::F32,
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(model, options).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    engine.compute(&[item]).unwrap().logits(0).to_vec()
}

fn bytes_of(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.flat_map(f32::to_le_bytes).collect()
}

/// The factor of expert `expert`; a power of two, so that nothing is rounded.
fn factor(expert: usize) -> f32 {
    [2.0, 4.0, 0.5][expert % 3]
}

/// Matrices divided by their factors, with the factors stored separately.
pub(crate) fn with_scales(source: &Path, out: &Path) {
    let checkpoint = Checkpoint::open(source).unwrap();
    let mut tensors: Vec<(TensorSpec, Vec<u8>)> = Vec::new();
    for tensor in checkpoint.iter() {
        let name = tensor.info.name.as_str();
        let is_scaled = name.ends_with("attn_q.weight") || name.ends_with("ffn_down_exps.weight");
        if !is_scaled {
            tensors.push((TensorSpec::from(tensor.info), tensor.bytes.to_vec()));
            continue;
        }
        let n_matrices = match tensor.info.shape[..] {
            [n_experts, _, _] => n_experts,
            _ => 1,
        };
        let size = tensor.bytes.len() / 4 / n_matrices;
        let (numbers, _) = tensor.bytes.as_chunks::<4>();
        let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let divided = numbers.enumerate().map(|(i, x)| x / factor(i / size));
        tensors.push((TensorSpec::from(tensor.info), bytes_of(divided)));
        let scale = name.replace(".weight", ".scale");
        let spec = TensorSpec::new(scale, DType::F32, &[n_matrices]);
        tensors.push((spec, bytes_of((0..n_matrices).map(factor))));
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
    let mut writer = gguf::Writer::create(out, checkpoint.gguf().unwrap(), &specs).unwrap();
    for (spec, bytes) in &tensors {
        writer.write(&spec.name, bytes).unwrap();
    }
    writer.commit().unwrap();
}

#[test]
fn a_scale_beside_a_weight_multiplies_its_products() {
    let golden = Golden::named("qwen3moe");
    let source = golden.gguf().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scaled.gguf");
    with_scales(&source, &path);
    let tokens = &golden.expected().tokens;
    let (found, expected) = (logits(&path, tokens), logits(&source, tokens));
    assert_eq!(found, expected);
    // The scales are read: without them it is another model.
    let model = LoadedModel::open(&path).unwrap();
    let n_scales = model
        .model()
        .graph
        .weights
        .iter()
        .filter(|w| w.name.ends_with(".scale"))
        .count();
    assert_eq!(n_scales, 2 * model.model().config.n_layers);
}

/// BitNet's files have one for each matrix. A folder has no place for it: it is multiplied into the matrix.
#[test]
fn a_scale_is_within_the_matrix_of_a_folder() {
    for name in ["bitnet", "qwen3moe", "mixtral"] {
        let golden = Golden::named(name);
        let dir = tempfile::tempdir().unwrap();
        let scaled = dir.path().join("scaled.gguf");
        let convert_first = || convert(golden.hf(), dir.path(), OutputContainer::Gguf, "F32");
        let source = golden.gguf().unwrap_or_else(convert_first);
        with_scales(&source, &scaled);
        let expected = golden.expected();
        let folder = convert(&scaled, dir.path(), OutputContainer::Safetensors, "F32");
        for path in [&scaled, &folder] {
            let found = GoldenMatrix {
                width: expected.logits.width,
                data: logits(path, &expected.tokens),
            };
            let what = format!("{name}: {}", path.display());
            assert_logits_within(1e-4, &found, &expected.logits, &what);
        }
        let written = Checkpoint::open(&folder).unwrap();
        let is_scale = |name: &str| name.ends_with(".scale");
        assert!(!written.tensors().iter().any(|info| is_scale(&info.name)));
        // Between files of one kind it stays separate.
        let again = convert(&scaled, dir.path(), OutputContainer::Gguf, "F16");
        let again = Checkpoint::open(&again).unwrap();
        assert!(again.tensors().iter().any(|info| is_scale(&info.name)));
    }
}

/// A matrix has one factor, or as many as experts; any other number is refused with the tensor's name.
#[test]
fn a_scale_of_another_shape_is_refused() {
    let golden = Golden::named("qwen3moe");
    let dir = tempfile::tempdir().unwrap();
    for (matrix, shape) in [("attn_q", vec![2]), ("ffn_down_exps", vec![5])] {
        let source = Checkpoint::open(&golden.gguf().unwrap()).unwrap();
        let path = dir.path().join("wrong.gguf");
        let scale = format!("blk.1.{matrix}.scale");
        let mut specs: Vec<TensorSpec> = source.iter().map(|t| TensorSpec::from(t.info)).collect();
        specs.push(TensorSpec::new(scale.clone(), DType::F32, &shape));
        let mut writer = gguf::Writer::create(&path, source.gguf().unwrap(), &specs).unwrap();
        for tensor in source.iter() {
            writer.write(&tensor.info.name, tensor.bytes).unwrap();
        }
        let ones = bytes_of(std::iter::repeat_n(1.0, shape[0]));
        writer.write(&scale, &ones).unwrap();
        writer.commit().unwrap();
        let error = LoadedModel::open(&path).err().expect("refused").to_string();
        for word in ["wrong.gguf", &scale, &format!("{shape:?}")] {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
    }
}
