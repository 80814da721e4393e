//! Properties for any bytes and any numbers.

use millrace_quant::{DType, MAX_MAGNITUDE, decode_rows, encode_matrix};
use proptest::prelude::*;

use crate::data::Rng;

fn any_dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::all().collect::<Vec<_>>())
}

/// A matrix of one tile of the largest block shape.
const N_ROWS: usize = 32;
const K: usize = 256;

fn round_trip(dtype: DType, x: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0xA5; dtype.size_bytes(N_ROWS, K).unwrap()];
    encode_matrix(dtype, x, N_ROWS, K, &mut bytes).unwrap();
    let mut out = vec![0.0; x.len()];
    decode_rows(dtype, &bytes, N_ROWS, K, 0..N_ROWS, &mut out).unwrap();
    (bytes, out)
}

/// Numbers of the kinds that break encoders, mixed at random within a row.
fn odd_numbers(seed: u64) -> Vec<f32> {
    const ODD: [f32; 14] = [
        0.0,
        -0.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-40,
        1e-12,
        65504.0,
        70000.0,
        -1.0,
    ];
    let mut rng = Rng(seed);
    let normal = rng.normal(N_ROWS * K);
    let mut x = Vec::with_capacity(normal.len());
    for row in normal.chunks_exact(K) {
        // Each row draws from only two of them, so that rows of tiny, of huge and of equal numbers occur.
        let kinds: [usize; 2] = std::array::from_fn(|_| rng.next_u64() as usize % (ODD.len() + 1));
        for v in row {
            let kind = kinds[rng.next_u64() as usize % 2];
            x.push(*ODD.get(kind).unwrap_or(v));
        }
    }
    x
}

/// The largest magnitude that blocks hold: for NVFP4, whose scales end at 448, six times that.
fn largest_of(dtype: DType) -> f32 {
    if dtype == DType::Nvfp4 {
        6.0 * 448.0
    } else {
        MAX_MAGNITUDE
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_of_the_right_size_decode(dtype in any_dtype(), seed: u64) {
        let mut rng = Rng(seed);
        let mut bytes = vec![0; dtype.size_bytes(N_ROWS, K).unwrap()];
        bytes.fill_with(|| rng.next_u64() as u8);
        let mut out = vec![0.0; N_ROWS * K];
        decode_rows(dtype, &bytes, N_ROWS, K, 0..N_ROWS, &mut out).unwrap();
    }

    #[test]
    fn any_wrong_size_is_an_error(
        dtype in any_dtype(),
        n_rows in 0usize..70,
        k in 0usize..600,
        n_bytes in 0usize..6000,
        n_elems in 0usize..9000,
    ) {
        let mut out = vec![0.0; n_elems];
        let fits = dtype.size_bytes(n_rows, k) == Some(n_bytes) && n_rows * k == n_elems;
        let result = decode_rows(dtype, &vec![0; n_bytes], n_rows, k, 0..n_rows, &mut out);
        prop_assert_eq!(result.is_ok(), fits);
        let result = encode_matrix(dtype, &out, n_rows, k, &mut vec![0; n_bytes]);
        prop_assert_eq!(result.is_ok(), fits);
    }

    #[test]
    fn odd_numbers_give_finite_blocks_near_them(dtype in any_dtype(), seed: u64) {
        let x = odd_numbers(seed);
        let (bytes, out) = round_trip(dtype, &x);
        prop_assert!(bytes == round_trip(dtype, &x).0, "{} is not deterministic", dtype);
        if dtype.is_float() {
            return Ok(());
        }
        for (x, out) in x.chunks_exact(K).zip(out.chunks_exact(K)) {
            let most = largest_of(dtype);
            let kept: Vec<f32> = x
                .iter()
                .map(|v| if v.is_nan() { 0.0 } else { v.clamp(-most, most) })
                .collect();
            let largest = kept.iter().fold(0f32, |a, v| a.max(v.abs()));
            for (kept, out) in kept.iter().zip(out) {
                prop_assert!(out.is_finite(), "{} gave {}", dtype, out);
                // Two-bit levels miss by at most a third of a range of two largest magnitudes. Single bits, ternary levels,
                // points that no codebook has and an eighth sign that follows from seven others miss by up to two magnitudes. 1e-5 is where
                // f16 scales end, 2e-3 where those of NVFP4 do.
                let is_coarse = dtype.bits_per_element() < 2.6 || dtype == DType::Iq3Xxs;
                let share = if is_coarse { 2.01 } else { 0.7 };
                let least = if dtype == DType::Nvfp4 { 2e-3 } else { 1e-5 };
                let near = (kept - out).abs() <= share * largest + least;
                prop_assert!(near, "{}: {} became {}", dtype, kept, out);
            }
        }
    }
}

#[test]
fn plain_formats_keep_special_numbers() {
    let specials = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1.0, -2.5];
    for dtype in DType::all().filter(|d| d.is_float()) {
        let mut x = vec![f32::NAN; N_ROWS * K];
        x[..6].copy_from_slice(&specials);
        let (_, out) = round_trip(dtype, &x);
        for (a, b) in specials.iter().zip(&out) {
            assert_eq!(a.to_bits(), b.to_bits(), "{dtype}");
        }
        assert!(out[6..].iter().all(|v| v.is_nan()), "{dtype}");
    }
    let (_, out) = round_trip(DType::F16, &[70000.0; N_ROWS * K]);
    assert_eq!(out[0], f32::INFINITY);
}

#[test]
fn equal_numbers_are_kept_well() {
    for dtype in DType::all() {
        for v in [0.7f32, -3.0, 100.1, 1.0] {
            let (_, out) = round_trip(dtype, &[v; N_ROWS * K]);
            // Levels are far from a number that only a separate scale would fit.
            let tolerance = if dtype.has_coarse_scales() { 0.2 } else { 0.02 };
            assert!(
                (out[0] - v).abs() <= tolerance * v.abs(),
                "{dtype}: {v} became {}",
                out[0]
            );
        }
    }
}
