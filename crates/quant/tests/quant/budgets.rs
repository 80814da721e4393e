//! Encoders against their error budgets, and round trips.

use millrace_quant::{DType, decode_rows, encode_matrix};

use crate::data::{Rng, relative_rms};

const N_ROWS: usize = 64;
const K: usize = 512;

fn round_trip(dtype: DType, x: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0; dtype.size_bytes(N_ROWS, K).unwrap()];
    encode_matrix(dtype, x, N_ROWS, K, &mut bytes).unwrap();
    let mut out = vec![0.0; x.len()];
    decode_rows(dtype, &bytes, N_ROWS, K, 0..N_ROWS, &mut out).unwrap();
    out
}

#[test]
fn errors_stay_within_budget_and_budgets_stay_tight() {
    let x = Rng(1).normal(N_ROWS * K);
    for dtype in DType::all() {
        let error = relative_rms(&x, &round_trip(dtype, &x));
        let budget = dtype.error_budget();
        assert!(error <= budget, "{dtype}: {error} over the budget {budget}");
        assert!(
            error >= 0.9 * budget,
            "{dtype}: {error}, the budget {budget} is slack"
        );
    }
}

#[test]
fn relative_error_does_not_depend_on_the_size_of_the_numbers() {
    let x = Rng(2).normal(N_ROWS * K);
    for scale in [0.02, 300.0] {
        let x: Vec<f32> = x.iter().map(|v| v * scale).collect();
        for dtype in DType::all().filter(|dtype| !dtype.has_coarse_scales()) {
            let error = relative_rms(&x, &round_trip(dtype, &x));
            // Weights of 0.02 leave the two-level scales of the k-quants in f16's subnormal range.
            let budget = 1.05 * dtype.error_budget();
            assert!(error <= budget, "{dtype} at {scale}: {error} over {budget}");
        }
    }
}

#[test]
fn numbers_on_the_grid_survive() {
    let x = Rng(3).normal(N_ROWS * K);
    for dtype in DType::all() {
        let grid = round_trip(dtype, &x);
        let again = round_trip(dtype, &grid);
        let error = relative_rms(&grid, &again);
        assert!(error <= 0.15 * dtype.error_budget(), "{dtype}: {error}");
    }
}
