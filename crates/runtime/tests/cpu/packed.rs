//! Folders with matrices packed by quantisers. They are compared with the matrices unpacked by their own rules, and
//! with the logits that transformers computes from those: `testdata/packed`, of `tools/make_packed_goldens.py`.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_format::{Checkpoint, TensorType};
use millrace_model::convert::OutputContainer;
use millrace_quant::{DType, decode_blocks};
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, Level, LoadedModel, LogitsFor,
};
use millrace_testkit::compare::{assert_logits_within, assert_top5};
use millrace_testkit::golden::GoldenMatrix;

use crate::converted::convert;

/// A fixture, the format that its matrices become, and the largest error of a number, as a share of the matrix' largest.
const FIXTURES: [(&str, DType, f32); 21] = [
    // Eleven bits; if scales are powers of two, nothing is lost.
    ("fp8-block", DType::F16, 1.0 / 2048.0),
    ("fp8-power", DType::BF16, 0.0),
    ("fp8-tensor", DType::F16, 1.0 / 2048.0),
    ("fp8-channel", DType::F16, 1.0 / 2048.0),
    ("pack-int4", DType::Q4_0, 0.0),
    ("pack-int4-zeros", DType::Q5_0, 0.0),
    ("pack-int4-order", DType::F16, 1.0 / 2048.0),
    ("pack-int8", DType::Q8_0, 0.0),
    ("int8", DType::Q8_0, 0.0),
    // Only the factor is rounded; the last matrices of these have rows that are not whole blocks.
    ("nvfp4", DType::Nvfp4, 1.0 / 2048.0),
    ("nvfp4-bias", DType::Nvfp4, 1.0 / 2048.0),
    ("nvfp4-experts", DType::Nvfp4, 1.0 / 2048.0),
    ("nvfp4-modelopt", DType::Nvfp4, 1.0 / 2048.0),
    ("mxfp4", DType::Mxfp4, 0.0),
    ("mxfp8", DType::BF16, 0.0),
    // Three values, with a separate factor.
    ("bitnet", DType::Tq2_0, 0.0),
    ("gptq", DType::Q4_0, 0.0),
    ("gptq-zeros", DType::Q5_0, 0.0),
    ("gptq-order", DType::F16, 1.0 / 2048.0),
    ("gptq-8", DType::Q8_0, 0.0),
    ("awq", DType::Q5_0, 0.0),
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/packed")
        .join(name)
}

fn numbers(checkpoint: &Checkpoint, name: &str) -> (DType, Vec<f32>) {
    let tensor = checkpoint.require(name).unwrap();
    let TensorType::Weights(dtype) = tensor.info.tensor_type else {
        panic!("{name} is of type {}", tensor.info.tensor_type);
    };
    let mut out = vec![0.0; tensor.info.n_elems()];
    decode_blocks(dtype, tensor.bytes, &mut out).unwrap();
    (dtype, out)
}

/// Tokens and logits of a fixture.
fn expected(file: &Checkpoint) -> (Vec<u32>, GoldenMatrix) {
    let tokens = file.require("tokens").unwrap().bytes.as_chunks::<8>().0;
    let tokens = tokens.iter().map(|id| i64::from_le_bytes(*id) as u32);
    let logits = GoldenMatrix {
        width: file.info("logits").unwrap().shape[1],
        data: numbers(file, "logits").1,
    };
    (tokens.collect(), logits)
}

fn logits(model: LoadedModel, level: Option<Level>, tokens: &[u32]) -> GoldenMatrix {
    let options = EngineOptions {
        level,
        kv_type: KvType::F32,
        ..EngineOptions::default()
    };
    let width = model.model().config.vocab_size;
    let mut engine = CpuEngine::new(Arc::new(model), options).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    let data = engine.compute(&[item]).unwrap().logits(0).to_vec();
    GoldenMatrix { width, data }
}

#[test]
fn packed_matrices_are_what_their_quantisers_unpack() {
    for (name, dtype, tolerance) in FIXTURES {
        let model = Checkpoint::open(&folder(name)).unwrap();
        let golden = Checkpoint::open(&folder(name).join("expected.safetensors")).unwrap();
        let mut n_compared = 0;
        for info in golden.tensors() {
            let Some(weight) = info.name.strip_prefix("weight.") else {
                continue;
            };
            let (_, expected) = numbers(&golden, &info.name);
            assert!(model.is_packed(weight), "{name}: {weight}");
            // A single read returns the same bytes as the kept matrix.
            let once = model.read(weight).unwrap().into_owned();
            let (found_type, found) = numbers(&model, weight);
            assert_eq!(
                once,
                model.require(weight).unwrap().bytes,
                "{name}: {weight}"
            );
            assert_eq!(model.info(weight).unwrap().shape, info.shape);
            let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
            // Blocks do not divide the columns of an expert's last matrix, nor blocks of 64 all others.
            if info.shape[1].is_multiple_of(dtype.block_elems().max(32)) {
                assert_eq!(found_type, dtype, "{name}: {weight}");
            }
            let factor = model.factor_of(weight).unwrap_or(1.0);
            let has_factor = found_type == DType::Nvfp4 || name == "bitnet";
            assert_eq!(model.factor_of(weight).is_some(), has_factor);
            // Nothing is rounded in blocks.
            let tolerance = match found_type {
                DType::Nvfp4 => 2f32.powi(-20),
                _ => tolerance,
            };
            let found: Vec<f32> = found.iter().map(|x| x * factor).collect();
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let error = (found - expected).abs() / largest;
                assert!(
                    error <= tolerance,
                    "{name}: {weight}, element {i}: {found} where {expected} is expected"
                );
            }
            n_compared += 1;
        }
        assert!(n_compared >= 2, "{name}: {n_compared} matrices");
        // No packed parts are left over, and other tensors stay unchanged.
        let parts = [
            "qweight",
            "qzeros",
            "scales",
            "g_idx",
            "_scale",
            "_packed",
            "_scale_inv",
            "_scale_2",
        ];
        for info in model.tensors() {
            assert!(
                !parts.iter().any(|part| info.name.ends_with(part)),
                "{name}: {}",
                info.name
            );
        }
        assert!(!model.is_packed("lm_head.weight"));
    }
}

#[test]
fn packed_folders_compute_what_transformers_does() {
    for (name, ..) in FIXTURES {
        let golden = Checkpoint::open(&folder(name).join("expected.safetensors")).unwrap();
        let (tokens, expected) = expected(&golden);
        for level in Level::supported() {
            let model = LoadedModel::open(&folder(name)).unwrap();
            let found = logits(model, Some(level), &tokens);
            let what = format!("{name} at {level}");
            // Kernels of blocks round activations to 8 bits.
            assert_logits_within(4e-2, &found, &expected, &what);
            assert_top5(&found, &expected, &what);
        }
    }
}

/// In float32, where only the rounding of unpacking is left.
#[test]
fn packed_folders_convert() {
    for (name, _, tolerance) in FIXTURES {
        let golden = Checkpoint::open(&folder(name).join("expected.safetensors")).unwrap();
        let (tokens, expected) = expected(&golden);
        let bound = if tolerance == 0.0 { 1e-4 } else { 1e-3 };
        for container in [OutputContainer::Gguf, OutputContainer::Safetensors] {
            let dir = tempfile::tempdir().unwrap();
            let path = convert(&folder(name), dir.path(), container, "F32");
            let model = LoadedModel::open(&path).unwrap();
            assert!(
                !model
                    .checkpoint()
                    .tensors()
                    .iter()
                    .any(|info| model.checkpoint().is_packed(&info.name))
            );
            let found = logits(model, None, &tokens);
            assert_logits_within(
                bound,
                &found,
                &expected,
                &format!("{name} as {container:?}"),
            );
        }
    }
}
