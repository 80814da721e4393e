//! Floats of 4 and 8 bits.

use millrace_quant::DType;
use serde_json::{Value, json};

use super::super::float8;
use super::faults::{Fault, check};
use super::{StoredTensor, numbers, open, scales, stored};

/// 32 rows and 64 columns of ones in E2M1 with scales of a half, as compressed-tensors packs NVFP4.
fn nvfp4() -> (Value, Vec<StoredTensor>) {
    let tensors = vec![
        stored("a.weight_packed", "U8", &[32, 32], &[0x22]),
        stored("a.weight_scale", "F8_E4M3", &[32, 4], &[0x38]),
        scales("a.weight_global_scale", &[1], 2.0),
    ];
    (
        json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}),
        tensors,
    )
}

/// The same as MXFP4.
fn mxfp4() -> (Value, Vec<StoredTensor>) {
    let tensors = vec![
        stored("a.weight_packed", "U8", &[32, 32], &[0x22]),
        stored("a.weight_scale", "U8", &[32, 2], &[126]),
    ];
    (
        json!({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}),
        tensors,
    )
}

#[test]
fn pairs_of_floats_keep_their_codes() {
    let dir = tempfile::tempdir().unwrap();
    let read = |(config, tensors): (Value, Vec<StoredTensor>)| {
        let checkpoint = open(dir.path(), &config, &tensors).unwrap();
        let names = checkpoint.tensors().iter().map(|info| info.name.clone());
        let names: Vec<String> = names.collect();
        let (dtype, found) = numbers(&checkpoint, "a.weight");
        (names, dtype, found, checkpoint.factor_of("a.weight"))
    };
    // The column's number determines its code: 0 to 6 in turn, the last of eight negative.
    let turns: Vec<u8> = [0x10, 0x32, 0x54, 0xf6].repeat(8);
    let levels = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, -6.0].repeat(8);
    let (config, mut tensors) = nvfp4();
    tensors[0].bytes = turns.repeat(32);
    // Scales of 1 and of 2 alternate.
    tensors[1].bytes = [0x38, 0x40].repeat(64);
    let (names, dtype, found, factor) = read((config, tensors));
    assert_eq!(names, ["a.weight", "a.scale"]);
    assert_eq!((dtype, factor), (DType::Nvfp4, Some(0.5)));
    let scale = |i: usize| [1.0, 2.0][i / 16 % 2];
    for (i, x) in found.iter().enumerate() {
        assert_eq!(*x, levels[i % 64] * scale(i), "element {i}");
    }
    let (config, mut tensors) = mxfp4();
    tensors[0].bytes = turns.repeat(32);
    let (names, dtype, found, factor) = read((config, tensors));
    assert_eq!((names.len(), dtype, factor), (1, DType::Mxfp4, None));
    for (i, x) in found.iter().enumerate() {
        assert_eq!(*x, levels[i % 64] * 0.5, "element {i}");
    }
    // Half a block a row: the factor is in the numbers.
    let (config, mut tensors) = nvfp4();
    tensors[0] = stored("a.weight_packed", "U8", &[32, 16], &[0x22]);
    tensors[1] = stored("a.weight_scale", "F8_E4M3", &[32, 2], &[0x38]);
    assert_eq!(
        read((config, tensors)),
        (vec!["a.weight".into()], DType::F16, vec![0.5; 1024], None)
    );
    // ModelOpt's number is a factor.
    let tensors = vec![
        stored("a.weight", "U8", &[32, 32], &[0x22]),
        stored("a.weight_scale", "F8_E4M3", &[32, 4], &[0x38]),
        scales("a.weight_scale_2", &[], 2.0),
    ];
    let config = json!({"quant_method": "modelopt", "quant_algo": "NVFP4"});
    let (names, dtype, found, factor) = read((config, tensors));
    assert_eq!((names.len(), dtype, factor), (2, DType::Nvfp4, Some(2.0)));
    assert_eq!(found, vec![1.0; 2048]);
}

#[test]
fn floats_of_eight_bits_in_groups_of_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = vec![
        stored("a.weight", "F8_E4M3", &[32, 64], &[0x38]),
        stored("a.weight_scale", "U8", &[32, 2], &[126]),
    ];
    tensors[1].bytes = [126, 128].repeat(32);
    let config = json!({"quant_method": "compressed-tensors", "format": "mxfp8-quantized"});
    let checkpoint = open(dir.path(), &config, &tensors).unwrap();
    let (dtype, found) = numbers(&checkpoint, "a.weight");
    assert_eq!(dtype, DType::BF16);
    assert_eq!(found[..64], [[0.5; 32], [2.0; 32]].concat());
    tensors[1] = scales("a.weight_scale", &[32, 1], 0.5);
    let config = json!({"quant_method": "fbgemm_fp8"});
    tensors.push(scales("a.input_scale_ub", &[1], 1200.0));
    let checkpoint = open(dir.path(), &config, &tensors).unwrap();
    assert_eq!(checkpoint.tensors().len(), 1);
    assert_eq!(numbers(&checkpoint, "a.weight").1, vec![0.5; 2048]);
}

#[test]
fn codes_of_float8_are_those_of_the_standard() {
    // OCP 8-bit Floating Point Specification, revision 1.0, table 1.
    let known = [
        (0x00, 0.0),
        (0x01, 0.001_953_125),
        (0x07, 0.013_671_875),
        (0x08, 0.015_625),
        (0x38, 1.0),
        (0x3c, 1.5),
        (0x7e, 448.0),
        (0xfe, -448.0),
    ];
    for (code, expected) in known {
        assert_eq!(float8::value(code), expected, "{code:#x}");
    }
    assert!(float8::value(0x7f).is_nan() && float8::value(0xff).is_nan());
}

#[test]
fn parts_of_pairs_that_do_not_fit_are_named() {
    let faults: Vec<Fault> = vec![
        (
            nvfp4(),
            |t| drop(t.remove(2)),
            &["a.weight_global_scale", "a number", "no such tensor"],
        ),
        (
            nvfp4(),
            |t| t[2] = scales("a.weight_global_scale", &[1], 0.0),
            &["a.weight_global_scale", "one positive", "[0.0]"],
        ),
        (
            nvfp4(),
            |t| t[2] = scales("a.weight_global_scale", &[2], 1.0),
            &["a.weight_global_scale", "one positive", "[1.0, 1.0]"],
        ),
        (
            nvfp4(),
            |t| t.push(scales("a.scale", &[1], 1.0)),
            &["a.scale", "twice"],
        ),
        (
            nvfp4(),
            |t| t[1].bytes[5] = 0x7f,
            &["a.weight_scale", "without sign", "0x7f at element 5"],
        ),
        (
            nvfp4(),
            |t| t[1] = stored("a.weight_scale", "F8_E4M3", &[32, 2], &[0x38]),
            &["a.weight_scale", "[32, 4]", "[32, 2]"],
        ),
        (
            nvfp4(),
            |t| t[0] = stored("a.weight_packed", "U8", &[32, 30], &[0]),
            &["a.weight_packed", "multiple of 16", "30 bytes"],
        ),
        (
            nvfp4(),
            |t| t.push(stored("a.weight_zero_point", "U8", &[32, 4], &[0])),
            &["a.weight_zero_point", "no zero points"],
        ),
        (
            mxfp4(),
            |t| t[1].bytes[0] = 255,
            &["a.weight_scale", "below 255", "0xff at element 0"],
        ),
        (
            mxfp4(),
            |t| t[1] = scales("a.weight_scale", &[32, 2], 1.0),
            &["a.weight_scale", "U8 or F8_E8M0", "type f32"],
        ),
    ];
    check(faults);
}
