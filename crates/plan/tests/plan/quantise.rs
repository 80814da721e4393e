//! Products of 8-bit integers: the error of rounding, and the properties that it must keep.

use millrace_plan::quantise::{MAX, Rotation, quantise_row, quantise_rows, rescale, snr_db};
use proptest::prelude::*;

fn rows() -> impl Strategy<Value = (usize, Vec<f32>)> {
    (1..5_usize, prop::sample::select(vec![1, 2, 6, 16, 24, 64])).prop_flat_map(|(n, k)| {
        let values = prop::collection::vec(-100.0_f32..100.0, n * k);
        (Just(k), values)
    })
}

fn quantised(row: &[f32]) -> (f32, Vec<i8>) {
    let mut out = vec![0; row.len()];
    (quantise_row(row, &mut out), out)
}

fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter()
        .zip(y)
        .map(|(x, y)| f64::from(*x) * f64::from(*y))
        .sum()
}

proptest! {
    /// The largest magnitude takes the largest level, and -128 is never used.
    #[test]
    fn the_largest_number_takes_the_last_level((_, row) in rows()) {
        let (scale, levels) = quantised(&row);
        let largest = row.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        prop_assume!(largest > 0.0);
        prop_assert!((scale * MAX - largest).abs() <= largest * 1e-6);
        let most = levels.iter().map(|q| i32::from(*q).abs()).max();
        prop_assert_eq!(most, Some(127));
    }

    /// Numbers in order stay in order, and a number's negative takes the negative level.
    #[test]
    fn quantising_keeps_order_and_sign((_, row) in rows()) {
        let (scale, levels) = quantised(&row);
        for (x, q) in row.iter().zip(&levels) {
            for (y, p) in row.iter().zip(&levels) {
                prop_assert!(x > y || q <= p);
            }
        }
        let negative: Vec<f32> = row.iter().map(|x| -x).collect();
        let (same, opposite) = quantised(&negative);
        prop_assert_eq!(same, scale);
        prop_assert!(levels.iter().zip(&opposite).all(|(q, p)| *q == -p));
    }

    /// A power of two times a row is that power of two times its scale, at the same levels.
    #[test]
    fn levels_do_not_depend_on_a_rows_size((_, row) in rows(), power in -20..20_i32) {
        let (scale, levels) = quantised(&row);
        prop_assume!(row.iter().any(|x| *x != 0.0));
        let factor = 2.0_f32.powi(power);
        let scaled: Vec<f32> = row.iter().map(|x| x * factor).collect();
        prop_assert_eq!(quantised(&scaled), (scale * factor, levels));
    }

    /// Rotations keep lengths: an orthonormal matrix.
    #[test]
    fn rotations_keep_lengths((k, values) in rows()) {
        let rotation = Rotation::of(k as u32);
        for row in values.chunks_exact(k) {
            let mut rotated = row.to_vec();
            rotation.apply(&mut rotated);
            let (before, after) = (dot(row, row), dot(&rotated, &rotated));
            prop_assert!((before - after).abs() <= 1e-4 * before.max(1.0), "{before} {after}");
        }
    }

    /// A rotation is linear: the rotation of a sum is the sum of rotations.
    #[test]
    fn rotations_are_linear((k, values) in rows()) {
        let rotation = Rotation::of(k as u32);
        let x = &values[..k];
        let y: Vec<f32> = x.iter().rev().copied().collect();
        let apply = |row: &[f32]| {
            let mut row = row.to_vec();
            rotation.apply(&mut row);
            row
        };
        let both: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        for ((x, y), both) in apply(x).iter().zip(apply(&y)).zip(apply(&both)) {
            prop_assert!((x + y - both).abs() <= 1e-3);
        }
    }

    /// The block divides k, and is the largest power of two that does, up to 4,096.
    #[test]
    fn blocks_divide_rows(k in 1..1_000_000_u32) {
        let block = Rotation::of(k).block();
        prop_assert!(block.is_power_of_two() && k.is_multiple_of(block));
        prop_assert!(block == 4096 || !k.is_multiple_of(2 * block));
    }

    /// Each row is quantised as if it were alone.
    #[test]
    fn rows_do_not_know_each_other((k, values) in rows(), is_rotated: bool) {
        let rotation = if is_rotated { Rotation::of(k as u32) } else { Rotation::NONE };
        let n = values.len() / k;
        let (mut levels, mut scales) = (vec![0; values.len()], vec![0.0; n]);
        quantise_rows(&values, k, rotation, &mut levels, &mut scales);
        for (i, row) in values.chunks_exact(k).enumerate() {
            let mut alone = row.to_vec();
            rotation.apply(&mut alone);
            let (scale, expected) = quantised(&alone);
            prop_assert_eq!(scales[i], scale);
            prop_assert_eq!(&levels[i * k..][..k], &expected[..]);
        }
    }

    /// The whole product errs by no more than half a step of each factor explains.
    #[test]
    fn products_err_by_what_steps_explain((k, values) in rows(), is_rotated: bool) {
        let rotation = if is_rotated { Rotation::of(k as u32) } else { Rotation::NONE };
        let n = values.len() / k;
        let (mut levels, mut scales) = (vec![0; values.len()], vec![0.0; n]);
        quantise_rows(&values, k, rotation, &mut levels, &mut scales);
        let rows: Vec<&[i8]> = levels.chunks_exact(k).collect();
        let mut sums = Vec::new();
        for x in &rows {
            for y in &rows {
                sums.push(x.iter().zip(*y).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum());
            }
        }
        let mut found = vec![0.0; n * n];
        rescale(&sums, &scales, &scales, &mut found);
        let exact: Vec<&[f32]> = values.chunks_exact(k).collect();
        for (i, x) in exact.iter().enumerate() {
            for (j, y) in exact.iter().enumerate() {
                // Cauchy-Schwarz over errors of at most half a step each.
                let root = (k as f64).sqrt();
                let half = |scale: f32| 0.501 * f64::from(scale) * root;
                let (dx, dy) = (half(scales[i]), half(scales[j]));
                let (x2, y2) = (dot(x, x).sqrt(), dot(y, y).sqrt());
                let most = dx * y2 + dy * x2 + dx * dy + 1e-3 * (1.0 + x2 * y2);
                let off = (f64::from(found[i * n + j]) - dot(x, y)).abs();
                prop_assert!(off <= most, "{off} of {most}");
            }
        }
    }
}

#[test]
fn one_that_is_no_number_spoils_its_own_row_alone() {
    let values = [1.0, 2.0, f32::NAN, 4.0, 5.0, -6.0];
    let (mut levels, mut scales) = ([0; 6], [0.0; 3]);
    quantise_rows(&values, 2, Rotation::NONE, &mut levels, &mut scales);
    assert!(scales[1].is_nan());
    assert_eq!(levels, [64, 127, 0, 0, 106, -127]);
    let mut out = [0.0; 3];
    rescale(&[10, 10, 10], &scales, &[1.0], &mut out);
    assert!(out[1].is_nan() && out[0] > 0.0 && out[2] > 0.0);
}

#[test]
fn signal_over_noise_counts_decibels() {
    let reference = [3.0, 4.0];
    assert!((snr_db(&reference, &[3.0, 4.5]) - 20.0).abs() < 1e-9);
    assert!((snr_db(&reference, &[3.0, 9.0]) - 0.0).abs() < 1e-9);
    assert_eq!(snr_db(&reference, &reference), f64::INFINITY);
}

#[test]
#[should_panic(expected = "6 in blocks of 4")]
fn a_row_that_is_no_whole_blocks_is_a_mistake_of_the_caller() {
    Rotation::of(4).apply(&mut [0.0; 6]);
}
