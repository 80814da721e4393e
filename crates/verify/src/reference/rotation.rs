//! Rows of operands as integers with a scale for each row, rotated before: [`QuantisedRows`], by its definition.
//!
//! Written for checking: none of a target's own conversion is used here.

use millrace_plan::QuantisedRows;

/// Converts a row of operands in place, in f64 from its f32 values. It stays rotated: the product of two converted rows
/// is the device's result. A row with NaN becomes NaN.
pub(crate) fn convert(row: &mut [f32], rule: &QuantisedRows) {
    let rotated = rotated(row, rule.block);
    let step = step(&rotated, rule);
    for (out, x) in row.iter_mut().zip(&rotated) {
        *out = ((x / step).round_ties_even() * step) as f32;
    }
}

/// The distance between two values that an element of a rotated row can have; 1 for a row of zeros.
pub(crate) fn step(rotated: &[f64], rule: &QuantisedRows) -> f64 {
    if rotated.iter().any(|x| !x.is_finite()) {
        return f64::NAN;
    }
    let largest = rotated.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    if largest > 0.0 {
        largest / f64::from(rule.levels)
    } else {
        1.0
    }
}

/// A row multiplied, block by block, by the Walsh–Hadamard matrix. Elements after the last whole block stay.
pub(crate) fn rotated(row: &[f32], block: usize) -> Vec<f64> {
    let mut row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
    for block in row.chunks_exact_mut(block.max(1)) {
        let n = block.len();
        for bit in (0..n.ilog2()).map(|bit| 1 << bit) {
            for i in (0..n).filter(|i| i & bit == 0) {
                let (a, b) = (block[i], block[i | bit]);
                (block[i], block[i | bit]) = (a + b, a - b);
            }
        }
        let scale = 1.0 / (n as f64).sqrt();
        block.iter_mut().for_each(|x| *x *= scale);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the matrix, element by element.
    #[test]
    fn rotation_is_the_matrix() {
        let x: Vec<f32> = (0..24)
            .map(|i| ((i * 37 % 11) as f32 - 5.0) / 3.0)
            .collect();
        let found = rotated(&x, 8);
        for (i, found) in found.iter().enumerate() {
            let block = &x[i / 8 * 8..][..8];
            let sign = |j: usize| {
                if ((i % 8) & j).count_ones().is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                }
            };
            let sum: f64 = (0..8).map(|j| sign(j) * f64::from(block[j])).sum();
            assert!((found - sum / 8.0_f64.sqrt()).abs() < 1e-12, "{i}");
        }
        assert_eq!(
            rotated(&x, 1),
            x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn rows_have_as_many_levels_as_are_said() {
        let rule = QuantisedRows {
            levels: 127,
            block: 1,
        };
        let mut x = [1.27, 0.004, 0.0151, -0.3, 0.0];
        convert(&mut x, &rule);
        let expected = [1.27, 0.0, 0.02, -0.3, 0.0];
        assert!(
            x.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
            "{x:?}"
        );
        let mut zeros = [0.0; 3];
        convert(&mut zeros, &rule);
        assert_eq!(zeros, [0.0; 3]);
        let mut odd = [1.0, f32::INFINITY];
        convert(&mut odd, &rule);
        assert!(odd.iter().all(|x| x.is_nan()));
    }

    /// One large element, which makes the steps of all others coarse, is spread.
    #[test]
    fn rotation_spreads_an_outlier() {
        let mut x: Vec<f32> = (0..64)
            .map(|i| ((i * 29 % 64) as f32 - 31.5) / 32.0)
            .collect();
        x[5] = 100.0;
        let noise = |block| {
            let rule = QuantisedRows { levels: 127, block };
            let mut converted = x.clone();
            convert(&mut converted, &rule);
            let exact = rotated(&x, block);
            let square = |(a, b): (&f32, &f64)| (f64::from(*a) - b).powi(2);
            converted.iter().zip(&exact).map(square).sum::<f64>()
        };
        assert!(noise(64) < 0.2 * noise(1), "{} {}", noise(64), noise(1));
    }
}
