//! BitNet's ternary matrices.

use millrace_quant::DType;
use serde_json::{Value, json};

use super::faults::{Fault, check};
use super::{StoredTensor, numbers, open, scales, stored};

/// 8 rows of 256 columns, of -1 and 0 in the even quarters and 1 and -1 in the odd ones, by the row within a quarter.
fn bitnet(class: &str) -> (Value, Vec<StoredTensor>) {
    let mut codes = stored("a.weight", "U8", &[2, 256], &[0b1000_1000]);
    codes.bytes[256..].fill(0b0001_0001);
    let tensors = vec![codes, scales("a.weight_scale", &[1], 4.0)];
    let config =
        json!({"quant_method": "bitnet", "linear_class": class, "quantization_mode": "offline"});
    (config, tensors)
}

#[test]
fn ternary_codes_are_unpacked_row_by_row() {
    let dir = tempfile::tempdir().unwrap();
    // Row 0 of a quarter has the codes 0, 2, 0, 2 from the first quarter on, row 1 the codes 1, 0, 1, 0.
    let rows = [-1.0, 0.0, 1.0, -1.0, -1.0, 0.0, 1.0, -1.0];
    for (class, factor) in [("autobitlinear", 4.0), ("bitlinear", 0.25)] {
        let (config, tensors) = bitnet(class);
        let checkpoint = open(dir.path(), &config, &tensors).unwrap();
        let names = checkpoint.tensors().iter().map(|info| info.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["a.weight", "a.scale"]);
        assert_eq!(checkpoint.factor_of("a.weight"), Some(factor), "{class}");
        let (dtype, found) = numbers(&checkpoint, "a.weight");
        assert_eq!(dtype, DType::Tq2_0);
        for (row, found) in rows.iter().zip(found.chunks(256)) {
            assert!(found.iter().all(|x| x == row), "{row}: {found:?}");
        }
    }
    // Codes follow the column's place in a block: 0, 1 and 2 in turn.
    let (config, mut tensors) = bitnet("autobitlinear");
    let turns = (0..512usize).map(|i| [0b00, 0b01, 0b10][i % 256 % 3]);
    tensors[0].bytes = turns.collect();
    let checkpoint = open(dir.path(), &config, &tensors).unwrap();
    let (_, found) = numbers(&checkpoint, "a.weight");
    for (i, x) in found[..256].iter().enumerate() {
        assert_eq!(*x, (i % 3) as f32 - 1.0, "element {i}");
    }
    // Rows that are not whole blocks.
    tensors[0] = stored("a.weight", "U8", &[2, 64], &[0b1010_1010]);
    let checkpoint = open(dir.path(), &config, &tensors).unwrap();
    assert_eq!(
        numbers(&checkpoint, "a.weight"),
        (DType::F16, vec![1.0; 512])
    );
}

#[test]
fn parts_of_ternary_matrices_that_do_not_fit_are_named() {
    let ours = || bitnet("autobitlinear");
    let faults: Vec<Fault> = vec![
        (
            ours(),
            |t| drop(t.remove(1)),
            &["a.weight_scale", "a number of the matrix", "no such tensor"],
        ),
        (
            ours(),
            |t| t[1] = scales("a.weight_scale", &[2], 1.0),
            &["a.weight_scale", "one positive number", "[1.0, 1.0]"],
        ),
        (
            ours(),
            |t| t[1] = scales("a.weight_scale", &[1], f32::NAN),
            &["a.weight_scale", "finite", "NaN at element 0"],
        ),
        (
            ours(),
            |t| t[0] = stored("a.weight", "U8", &[512], &[0]),
            &["a.weight", "a matrix", "[512]"],
        ),
        (
            ours(),
            |t| t.push(scales("a.bias", &[8], 1.0)),
            &["a.bias", "no bias", "[8]"],
        ),
        (
            ours(),
            |t| t.push(scales("a.scale", &[1], 1.0)),
            &["a.scale", "twice"],
        ),
    ];
    check(faults);
}
