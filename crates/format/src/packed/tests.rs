mod faults;
mod floats;
mod ternary;

use std::fs;
use std::path::Path;

use millrace_quant::{DType, decode_blocks};
use serde_json::{Map, Value, json};

use super::Packing;
use crate::{Checkpoint, Error, TensorType};

/// A tensor of a folder: name, type as headers spell it, shape, bytes.
#[derive(Clone)]
struct StoredTensor {
    name: &'static str,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// A tensor whose elements all have these bytes.
fn stored(
    name: &'static str,
    dtype: &'static str,
    shape: &[usize],
    element: &[u8],
) -> StoredTensor {
    let n: usize = shape.iter().product();
    StoredTensor {
        name,
        dtype,
        shape: shape.to_vec(),
        bytes: element.repeat(n),
    }
}

fn words(name: &'static str, shape: &[usize], word: u32) -> StoredTensor {
    stored(name, "I32", shape, &word.to_le_bytes())
}

fn scales(name: &'static str, shape: &[usize], scale: f32) -> StoredTensor {
    stored(name, "F32", shape, &scale.to_le_bytes())
}

fn open(dir: &Path, config: &Value, tensors: &[StoredTensor]) -> Result<Checkpoint, Error> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for tensor in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.bytes);
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, data.len()]});
        header.insert(tensor.name.to_owned(), entry);
    }
    let header = Value::from(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    fs::write(dir.join("model.safetensors"), file).unwrap();
    let config = json!({ "quantization_config": config });
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    Checkpoint::open(dir)
}

/// A linear layer of 32 rows and 64 columns in groups of 32, as GPTQ packs it: all codes 9, zero points 8.
fn gptq() -> (Value, Vec<StoredTensor>) {
    let tensors = vec![
        words("a.qweight", &[8, 32], 0x9999_9999),
        words("a.qzeros", &[2, 4], 0x7777_7777),
        scales("a.scales", &[2, 32], 0.5),
    ];
    (json!({"quant_method": "gptq", "bits": 4}), tensors)
}

/// The same as AWQ packs it.
fn awq() -> (Value, Vec<StoredTensor>) {
    let tensors = vec![
        words("a.qweight", &[64, 4], 0x9999_9999),
        words("a.qzeros", &[2, 4], 0x8888_8888),
        scales("a.scales", &[2, 32], 0.5),
    ];
    (json!({"quant_method": "awq"}), tensors)
}

/// The same as compressed-tensors packs it.
fn compressed() -> (Value, Vec<StoredTensor>) {
    let mut shape = stored("a.weight_shape", "I64", &[2], &32i64.to_le_bytes());
    shape.bytes[8..].copy_from_slice(&64i64.to_le_bytes());
    let tensors = vec![
        words("a.weight_packed", &[32, 8], 0x9999_9999),
        scales("a.weight_scale", &[32, 2], 0.5),
        shape,
    ];
    (
        json!({"quant_method": "compressed-tensors", "format": "pack-quantized"}),
        tensors,
    )
}

/// FP8 of all ones, blocks of 128 by 128.
fn fp8() -> (Value, Vec<StoredTensor>) {
    let tensors = vec![
        stored("a.weight", "F8_E4M3", &[160, 64], &[0x38]),
        scales("a.weight_scale_inv", &[2, 1], 0.5),
    ];
    (json!({"quant_method": "fp8"}), tensors)
}

fn numbers(checkpoint: &Checkpoint, name: &str) -> (DType, Vec<f32>) {
    let tensor = checkpoint.require(name).unwrap();
    let TensorType::Weights(dtype) = tensor.info.tensor_type else {
        panic!("{}", tensor.info.tensor_type);
    };
    let mut out = vec![0.0; tensor.info.n_elems()];
    decode_blocks(dtype, tensor.bytes, &mut out).unwrap();
    (dtype, out)
}

#[test]
fn one_step_above_the_zero_point_is_one_scale() {
    let dir = tempfile::tempdir().unwrap();
    for (layout, dtype) in [
        (gptq(), DType::Q4_0),
        (awq(), DType::Q4_0),
        (compressed(), DType::Q4_0),
        (fp8(), DType::BF16),
    ] {
        let (config, tensors) = layout;
        let checkpoint = open(dir.path(), &config, &tensors).unwrap();
        assert_eq!(checkpoint.tensors().len(), 1, "{config}");
        assert!(checkpoint.is_packed("a.weight"));
        let (found_type, found) = numbers(&checkpoint, "a.weight");
        assert_eq!(found_type, dtype, "{config}");
        assert!(found.iter().all(|x| *x == 0.5), "{config}: {found:?}");
    }
}

#[test]
fn formats_follow_scales_and_zero_points() {
    let dir = tempfile::tempdir().unwrap();
    let dtype_of = |layout: (Value, Vec<StoredTensor>), change: &dyn Fn(&mut Vec<StoredTensor>)| {
        let (config, mut tensors) = layout;
        change(&mut tensors);
        let checkpoint = open(dir.path(), &config, &tensors).unwrap();
        numbers(&checkpoint, "a.weight")
    };
    let zeros =
        |tensors: &mut Vec<StoredTensor>| tensors[1] = words("a.qzeros", &[2, 4], 0x2222_2222);
    assert_eq!(dtype_of(gptq(), &zeros), (DType::Q5_0, vec![3.0; 2048]));
    // Stored 15 is zero point 0, not 16.
    let wrapped =
        |tensors: &mut Vec<StoredTensor>| tensors[1] = words("a.qzeros", &[2, 4], u32::MAX);
    assert_eq!(dtype_of(gptq(), &wrapped), (DType::Q5_0, vec![4.5; 2048]));
    // F16 holds neither 15 steps of this size nor anything that small.
    for scale in [8192.0, 2f32.powi(-20)] {
        let change =
            |tensors: &mut Vec<StoredTensor>| tensors[2] = scales("a.scales", &[2, 32], scale);
        assert_eq!(dtype_of(gptq(), &change), (DType::BF16, vec![scale; 2048]));
    }
    for (scale, dtype) in [(0.3, DType::F16), (300.0, DType::BF16), (1e-7, DType::BF16)] {
        let change = |tensors: &mut Vec<StoredTensor>| {
            tensors[1] = scales("a.weight_scale_inv", &[2, 1], scale);
        };
        let (found, numbers) = dtype_of(fp8(), &change);
        assert_eq!(found, dtype, "{scale}");
        assert!(
            (numbers[0] - scale).abs() <= scale / 256.0,
            "{scale}: {}",
            numbers[0]
        );
    }
}

/// Rows beyond one tile of the decoder, codes that differ by row or by column, zero points 0.
#[test]
fn codes_lie_in_words_as_each_layout_says() {
    let dir = tempfile::tempdir().unwrap();
    let by_column = 0x7654_3210;
    let mut gptq = [
        words("a.qweight", &[8, 136], by_column),
        words("a.qzeros", &[2, 17], u32::MAX),
        scales("a.scales", &[2, 136], 1.0),
    ];
    // A row of the second tile has another scale in its first group.
    gptq[2].bytes[4 * 100..][..4].copy_from_slice(&2f32.to_le_bytes());
    let mut awq = [
        // Of neighbours 0 to 7 the even ones come first.
        words("a.qweight", &[64, 17], 0x7531_6420),
        words("a.qzeros", &[2, 17], 0),
        scales("a.scales", &[2, 136], 1.0),
    ];
    // Eight rows of the second tile have other codes in the first column.
    awq[0].bytes[4 * 8..][..4].fill(0);
    let mut shape = stored("a.weight_shape", "I64", &[2], &136i64.to_le_bytes());
    shape.bytes[8..].copy_from_slice(&64i64.to_le_bytes());
    let compressed = [
        words("a.weight_packed", &[136, 8], by_column),
        scales("a.weight_scale", &[136, 2], 1.0),
        // A zero point a row, eight rows a word.
        words("a.weight_zero_point", &[17, 2], by_column),
        shape,
    ];
    type Code = fn(usize, usize) -> f32;
    let cases: [(Value, &[StoredTensor], Code); 3] = [
        (self::gptq().0, &gptq, |row, column| {
            let scale = if row == 100 && column < 32 { 2.0 } else { 1.0 };
            scale * (column % 8) as f32
        }),
        (self::awq().0, &awq, |row, column| match (row, column) {
            (64..72, 0) => 0.0,
            _ => (row % 8) as f32,
        }),
        (self::compressed().0, &compressed, |row, column| {
            (column % 8) as f32 - (row % 8) as f32
        }),
    ];
    for (config, tensors, code) in cases {
        let checkpoint = open(dir.path(), &config, tensors).unwrap();
        let (dtype, found) = numbers(&checkpoint, "a.weight");
        assert_eq!(dtype, DType::Q5_0, "{config}");
        for (i, found) in found.into_iter().enumerate() {
            let (row, column) = (i / 64, i % 64);
            assert_eq!(
                found,
                code(row, column),
                "{config}: row {row}, column {column}"
            );
        }
    }
}

#[test]
fn a_list_of_groups_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (config, mut tensors) = gptq();
    let second: Vec<u8> = 2f32.to_le_bytes().repeat(32);
    tensors[2].bytes[4 * 32..].copy_from_slice(&second);
    let list = |list: &dyn Fn(usize) -> u32| {
        let mut part = words("a.g_idx", &[64], 0);
        part.bytes = (0..64).flat_map(|i| list(i).to_le_bytes()).collect();
        part
    };
    let even = [tensors.clone(), vec![list(&|i| i as u32 / 32)]].concat();
    let checkpoint = open(dir.path(), &config, &even).unwrap();
    assert_eq!(numbers(&checkpoint, "a.weight").0, DType::Q4_0);
    let turns = [tensors, vec![list(&|i| i as u32 % 2)]].concat();
    let checkpoint = open(dir.path(), &config, &turns).unwrap();
    let (dtype, numbers) = numbers(&checkpoint, "a.weight");
    assert_eq!(
        (dtype, &numbers[..4]),
        (DType::F16, &[0.5, 2.0, 0.5, 2.0][..])
    );
}

#[test]
fn experts_of_a_layer_have_one_format() {
    let dir = tempfile::tempdir().unwrap();
    let names = [
        [
            "m.experts.0.u.qweight",
            "m.experts.0.u.qzeros",
            "m.experts.0.u.scales",
        ],
        [
            "m.experts.1.u.qweight",
            "m.experts.1.u.qzeros",
            "m.experts.1.u.scales",
        ],
        [
            "m.experts.0.d.qweight",
            "m.experts.0.d.qzeros",
            "m.experts.0.d.scales",
        ],
    ];
    let mut all = Vec::new();
    for ([qweight, qzeros, scale], zero) in names.into_iter().zip([0x77, 0x22, 0x77]) {
        all.push(words(qweight, &[8, 32], 0x9999_9999));
        all.push(stored(qzeros, "I32", &[2, 4], &[zero; 4]));
        all.push(scales(scale, &[2, 32], 0.5));
    }
    let checkpoint = open(dir.path(), &gptq().0, &all).unwrap();
    for (name, dtype, value) in [
        ("m.experts.0.u.weight", DType::Q5_0, 0.5),
        ("m.experts.1.u.weight", DType::Q5_0, 3.0),
        ("m.experts.0.d.weight", DType::Q4_0, 0.5),
    ] {
        assert_eq!(
            numbers(&checkpoint, name),
            (dtype, vec![value; 2048]),
            "{name}"
        );
    }
}
