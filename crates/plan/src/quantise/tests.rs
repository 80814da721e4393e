use super::*;
use half::f16;
use proptest::prelude::*;

/// Normal numbers of a fixed seed.
fn normal(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..n)
        .map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0)
        .collect()
}

fn product(a: &[f32], b: &[f32], k: usize) -> Vec<f32> {
    let mut out = Vec::new();
    for x in a.chunks_exact(k) {
        for y in b.chunks_exact(k) {
            let products = x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y));
            out.push(products.sum::<f64>() as f32);
        }
    }
    out
}

fn w8a8(a: &[f32], b: &[f32], k: usize, rotation: Rotation) -> Vec<f32> {
    let (m, n) = (a.len() / k, b.len() / k);
    let (mut qa, mut qb) = (vec![0; a.len()], vec![0; b.len()]);
    let (mut sa, mut sb) = (vec![0.0; m], vec![0.0; n]);
    quantise_rows(a, k, rotation, &mut qa, &mut sa);
    quantise_rows(b, k, rotation, &mut qb, &mut sb);
    let mut sums = Vec::new();
    for x in qa.chunks_exact(k) {
        for y in qb.chunks_exact(k) {
            let products = x.iter().zip(y).map(|(x, y)| i32::from(*x) * i32::from(*y));
            sums.push(products.sum());
        }
    }
    let mut out = vec![0.0; m * n];
    rescale(&sums, &sa, &sb, &mut out);
    out
}

fn in_fp16(a: &[f32]) -> Vec<f32> {
    a.iter().map(|x| f16::from_f32(*x).to_f32()).collect()
}

/// SNR of W8A8, W8A8 rotated and fp16, on activations with outliers of that factor.
fn table(outlier: f32) -> [f64; 3] {
    let (m, n, k) = (16, 64, 1152);
    let (mut a, b) = (normal(1, m * k), normal(2, n * k));
    // The same three channels of every token, as models have them.
    for row in a.chunks_exact_mut(k) {
        for channel in [7, 300, 901] {
            row[channel] *= outlier;
        }
    }
    let exact = product(&a, &b, k);
    let plain = w8a8(&a, &b, k, Rotation::NONE);
    let rotated = w8a8(&a, &b, k, Rotation::of(k as u32));
    let half = product(&in_fp16(&a), &in_fp16(&b), k);
    [plain, rotated, half].map(|found| snr_db(&exact, &found))
}

/// Loss of each strategy: rotation changes nothing without outliers, and keeps 8 bits usable with them.
#[test]
fn rotation_keeps_quality_where_activations_have_outliers() {
    eprintln!("outliers   W8A8  rotated   fp16   (SNR, dB)");
    let rows = [1.0, 10.0, 100.0].map(|outlier| {
        let row = table(outlier);
        eprintln!("{outlier:8} {:6.1} {:8.1} {:6.1}", row[0], row[1], row[2]);
        row
    });
    let [[plain, rotated, half], some, many] = rows;
    assert!(plain > 35.0 && (plain - rotated).abs() < 3.0);
    assert!(half > 60.0);
    // Outliers of ten times cost about the quality that rotation recovers.
    assert!(some[1] > some[0] + 5.0, "{some:?}");
    assert!(many[1] > many[0] + 10.0, "{many:?}");
}

/// Error in the columns that outliers do not dominate: those that do not read them.
#[test]
fn without_rotation_small_channels_drown() {
    let (m, n, k) = (8, 32, 1024);
    let (mut a, mut b) = (normal(3, m * k), normal(4, n * k));
    for row in a.chunks_exact_mut(k) {
        row[5] = 400.0;
    }
    for row in b.chunks_exact_mut(k) {
        row[5] = 0.0;
    }
    let exact = product(&a, &b, k);
    let plain = snr_db(&exact, &w8a8(&a, &b, k, Rotation::NONE));
    let rotated = snr_db(&exact, &w8a8(&a, &b, k, Rotation::of(k as u32)));
    assert!(plain < 5.0 && rotated > plain + 10.0, "{plain} {rotated}");
}

#[test]
fn rotations_are_of_the_largest_power_of_two() {
    for (k, block) in [
        (1, 1),
        (896, 128),
        (1152, 128),
        (2048, 2048),
        (8960, 256),
        (16384, 4096),
    ] {
        assert_eq!(Rotation::of(k).block(), block, "{k}");
    }
}

#[test]
fn rows_that_are_no_numbers_or_nothing_say_so() {
    let mut out = [9i8; 3];
    assert_eq!(quantise_row(&[0.0; 3], &mut out), 1.0);
    assert_eq!(out, [0; 3]);
    assert!(quantise_row(&[1.0, f32::NAN, 2.0], &mut out).is_nan());
    assert!(quantise_row(&[1.0, f32::INFINITY, 2.0], &mut out).is_nan());
    let tiny = quantise_row(&[1e-45, 0.0, -1e-45], &mut out);
    assert!(tiny.is_finite() && out == [0; 3]);
    let scale = quantise_row(&[2.54, -1.0, 0.02], &mut out);
    assert_eq!((out, scale), ([127, -50, 1], 0.02));
}

proptest! {
    #[test]
    fn a_rotation_is_its_own_inverse_and_keeps_products(seed in any::<u64>(), k in prop::sample::select(vec![1usize, 24, 64, 96, 256])) {
        let rotation = Rotation::of(k as u32);
        let (x, y) = (normal(seed, k), normal(seed ^ 77, k));
        let (mut rx, mut ry) = (x.clone(), y.clone());
        rotation.apply(&mut rx);
        rotation.apply(&mut ry);
        let dot = |x: &[f32], y: &[f32]| product(x, y, k)[0];
        prop_assert!((dot(&x, &y) - dot(&rx, &ry)).abs() < 1e-3 * (k as f32));
        rotation.apply(&mut rx);
        prop_assert!(rx.iter().zip(&x).all(|(a, b)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn quantising_errs_by_half_a_step(row in prop::collection::vec(-1e6f32..1e6, 1..50)) {
        let mut out = vec![0; row.len()];
        let scale = quantise_row(&row, &mut out);
        for (q, x) in out.iter().zip(&row) {
            prop_assert!((f32::from(*q) * scale - x).abs() <= scale * 0.5001);
        }
    }
}

#[test]
fn rounding_is_to_nearest_even() {
    for step in -130_000..=130_000 {
        let x = step as f32 / 1000.0;
        let expected = x.round_ties_even().clamp(-127.0, 127.0) as i8;
        assert_eq!(round_to_i8(x), expected, "{x}");
    }
    for half in -254..=254 {
        let x = half as f32 / 2.0;
        assert_eq!(f32::from(round_to_i8(x)), x.round_ties_even(), "{x}");
    }
}
