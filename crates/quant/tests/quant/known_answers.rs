//! Bytes and numbers made by the reference implementation (`tools/make_quant_fixtures.py`).

use std::path::Path;

use millrace_quant::{DType, decode_rows, encode_matrix};

struct Fixture {
    encoded: Vec<u8>,
    numbers: Vec<f32>,
}

fn load(folder: &str, dtype: DType) -> Option<Fixture> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(folder)
        .join(format!("{dtype}.bin"));
    let data = std::fs::read(path).ok()?;
    let (head, rest) = data.split_first_chunk::<4>().unwrap();
    let (encoded, numbers) = rest.split_at(u32::from_le_bytes(*head) as usize);
    Some(Fixture {
        encoded: encoded.to_vec(),
        numbers: numbers
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect(),
    })
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

/// The fixture as a matrix of as few rows as the format allows.
fn shape(dtype: DType, n_elems: usize) -> (usize, usize) {
    (dtype.block_rows(), n_elems / dtype.block_rows())
}

#[test]
fn every_format_has_known_answers() {
    let without = DType::all().filter(|dtype| load("decode", *dtype).is_none());
    let without: Vec<String> = without.map(|dtype| format!("decode/{dtype}.bin")).collect();
    assert!(
        without.is_empty(),
        "tests/fixtures lacks {}; tools/make_quant_fixtures.py writes them",
        without.join(", ")
    );
}

#[test]
fn every_format_decodes_to_the_reference_bits() {
    for dtype in DType::all() {
        let Some(fixture) = load("decode", dtype) else {
            continue;
        };
        let (n_rows, k) = shape(dtype, fixture.numbers.len());
        let mut out = vec![0.0; fixture.numbers.len()];
        decode_rows(dtype, &fixture.encoded, n_rows, k, 0..n_rows, &mut out).unwrap();
        assert!(bits(&out) == bits(&fixture.numbers), "{dtype}");
    }
}

#[test]
fn formats_that_the_reference_encodes_get_its_bytes() {
    let mut checked = Vec::new();
    for dtype in DType::all() {
        let Some(fixture) = load("encode", dtype) else {
            continue;
        };
        let mut out = vec![0; fixture.encoded.len()];
        encode_matrix(dtype, &fixture.numbers, 1, fixture.numbers.len(), &mut out).unwrap();
        for (i, (found, expected)) in out
            .chunks(dtype.block_bytes())
            .zip(fixture.encoded.chunks(dtype.block_bytes()))
            .enumerate()
        {
            assert_eq!(found, expected, "{dtype} block {i}");
        }
        checked.push(dtype.name());
    }
    let encoded_by_gguf = [
        "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4",
    ];
    for name in encoded_by_gguf {
        assert!(checked.contains(&name), "no fixture encode/{name}.bin");
    }
}
