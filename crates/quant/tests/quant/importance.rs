//! Encoding with the importance of columns.

use millrace_quant::{DType, Error, decode_rows, encode_matrix, encode_rows};

use crate::data::{Rng, relative_rms};

const N_ROWS: usize = 32;
const K: usize = 512;

fn encoded(dtype: DType, x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut bytes = vec![0; dtype.size_bytes(N_ROWS, K).unwrap()];
    encode_rows(dtype, x, N_ROWS, K, importance, &mut bytes).unwrap();
    bytes
}

/// The numbers of every fourth column.
fn fourths(x: &[f32]) -> Vec<f32> {
    x.iter().copied().step_by(4).collect()
}

/// Formats whose encoders search. The bytes of others do not change.
#[test]
fn important_columns_are_kept_better() {
    let x = Rng(7).normal(N_ROWS * K);
    let importance: Vec<f32> = (0..K)
        .map(|i| if i % 4 == 0 { 30.0 } else { 0.3 })
        .collect();
    let mut searched = Vec::new();
    for dtype in DType::all() {
        let (plain, weighted) = (
            encoded(dtype, &x, None),
            encoded(dtype, &x, Some(&importance)),
        );
        if plain == weighted {
            continue;
        }
        let error = |bytes: &[u8]| {
            let mut out = vec![0.0; x.len()];
            decode_rows(dtype, bytes, N_ROWS, K, 0..N_ROWS, &mut out).unwrap();
            relative_rms(&fourths(&x), &fourths(&out))
        };
        let (before, after) = (error(&plain), error(&weighted));
        // With one or three levels, there is little choice.
        let most = match dtype {
            DType::Q1_0 => 1.0,
            DType::Tq1_0 | DType::Tq2_0 => 0.99,
            _ => 0.98,
        };
        assert!(after < most * before, "{dtype}: {before} became {after}");
        searched.push(dtype.name());
    }
    let expected = [
        "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq3_xxs", "iq3_s", "iq2_xxs",
        "iq2_xs", "iq2_s", "iq1_s", "iq1_m", "tq1_0", "tq2_0", "q1_0", "q2_0", "nvfp4",
    ];
    assert_eq!(searched, expected);
}

#[test]
fn only_the_ratios_of_importances_count() {
    let x = Rng(8).normal(N_ROWS * K);
    let importance: Vec<f32> = (0..K).map(|i| 1.0 + (i % 7) as f32).collect();
    let scaled = |by: f32| importance.iter().map(|v| v * by).collect::<Vec<f32>>();
    for dtype in [DType::Q4K, DType::Iq4Nl, DType::Iq2Xxs] {
        let expected = encoded(dtype, &x, Some(&importance));
        // Powers of two, so that the ratios are the same to the last bit.
        for by in [2f32.powi(-90), 2f32.powi(90)] {
            assert!(
                encoded(dtype, &x, Some(&scaled(by))) == expected,
                "{dtype} {by}"
            );
        }
        let plain = encoded(dtype, &x, None);
        assert!(encoded(dtype, &x, Some(&[0.0; K])) == plain, "{dtype}");
        let mut by_matrix = vec![0; plain.len()];
        encode_matrix(dtype, &x, N_ROWS, K, &mut by_matrix).unwrap();
        assert!(by_matrix == plain, "{dtype}");
    }
}

#[test]
fn importances_that_are_none_are_named_errors() {
    let x = vec![0.5; K];
    let mut bytes = vec![0; DType::Q4K.size_bytes(1, K).unwrap()];
    let mut wrong = vec![1.0; K];
    for (value, shown) in [(-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        wrong[17] = value;
        let error = encode_rows(DType::Q4K, &x, 1, K, Some(&wrong), &mut bytes).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("number 17") && text.contains(shown), "{text}");
    }
    let error = encode_rows(DType::Q4K, &x, 1, K, Some(&[1.0; 3]), &mut bytes).unwrap_err();
    assert!(
        matches!(error, Error::Importance { k: K, found: 3, .. }),
        "{error}"
    );
    encode_rows(DType::Q4K, &[], 5, 0, Some(&[]), &mut []).unwrap();
    // Zeros and a single important column are valid importances.
    let mut one = vec![0.0; K];
    one[3] = f32::MAX;
    let x = Rng(9).normal(K);
    for dtype in DType::all().filter(|dtype| !dtype.is_tiled()) {
        let mut bytes = vec![0; dtype.size_bytes(1, K).unwrap()];
        encode_rows(dtype, &x, 1, K, Some(&one), &mut bytes).unwrap();
        let mut out = vec![0.0; K];
        decode_rows(dtype, &bytes, 1, K, 0..1, &mut out).unwrap();
        assert!(out.iter().all(|v| v.is_finite()), "{dtype}");
    }
}
