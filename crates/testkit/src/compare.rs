//! Differences between two results, and bounds on them.

use crate::golden::GoldenMatrix;

/// Largest logit error, as a share of the logits' range, that a pass in float32 may have at any position.
pub const F32_LOGIT_TOLERANCE: f32 = 1e-4;

/// The same where activations are rounded to bf16: weights in BF16 at level avx512bf16, whose instruction multiplies pairs of bf16. A
/// rounding moves a number by up to 2⁻⁹ of it, and random weights multiply that from layer to layer. The worst of the goldens has
/// 1.3e-2.
pub const BF16_LOGIT_TOLERANCE: f32 = 2e-2;

/// How well a matrix agrees with a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Largest absolute difference, divided by the reference's range (maximum - minimum).
    pub max_abs_over_range: f32,
    /// Row of the largest difference.
    pub worst_row: usize,
    /// Column of the largest difference.
    pub worst_column: usize,
    /// Sum of squared differences over the reference's sum of squares.
    pub nmse: f64,
    /// Smallest cosine between corresponding rows.
    pub min_cosine: f64,
    /// Share of rows whose largest elements are in the same place.
    pub same_argmax: f64,
}

impl Agreement {
    /// Compares `found` with `expected`. A value that is not a number differs infinitely.
    ///
    /// # Panics
    /// If the shapes differ or there are no elements.
    pub fn of(found: &GoldenMatrix, expected: &GoldenMatrix) -> Agreement {
        assert_eq!(
            (found.n(), found.width),
            (expected.n(), expected.width),
            "shapes differ"
        );
        assert!(!expected.data.is_empty(), "nothing to compare");
        let fold =
            |pick: fn(f32, f32) -> f32, start: f32| expected.data.iter().copied().fold(start, pick);
        let range = fold(f32::max, f32::MIN) - fold(f32::min, f32::MAX);
        let difference = |(a, b): (&f32, &f32)| {
            let d = (a - b).abs();
            if d.is_nan() { f32::INFINITY } else { d }
        };
        let differences: Vec<f32> = found
            .data
            .iter()
            .zip(&expected.data)
            .map(difference)
            .collect();
        let worst = index_of_max(&differences);
        let squares = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        let n = expected.n();
        let same = (0..n).filter(|&i| index_of_max(found.row(i)) == index_of_max(expected.row(i)));
        Agreement {
            max_abs_over_range: differences[worst] / range.max(f32::MIN_POSITIVE),
            worst_row: worst / expected.width,
            worst_column: worst % expected.width,
            nmse: squares(&differences) / squares(&expected.data).max(f64::MIN_POSITIVE),
            min_cosine: (0..n)
                .map(|i| cosine(found.row(i), expected.row(i)))
                .fold(f64::INFINITY, f64::min),
            same_argmax: same.count() as f64 / n as f64,
        }
    }
}

/// The cosine of the angle between two vectors; 0 if one is zero or not a number.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum::<f64>()
    };
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    if cosine.is_nan() { 0.0 } else { cosine }
}

/// Index of the largest element, the first of equals.
///
/// # Panics
/// If there are no elements.
pub fn index_of_max(x: &[f32]) -> usize {
    assert!(!x.is_empty(), "no elements");
    (1..x.len()).fold(0, |best, i| if x[i] > x[best] { i } else { best })
}

/// Indices of the `k` largest elements, largest first.
pub fn top_k(x: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(a.cmp(&b)));
    order.truncate(k);
    order
}

/// Asserts the float32 bound ([`F32_LOGIT_TOLERANCE`]) at every position.
///
/// # Panics
/// With the place and size of the largest difference if it is above the bound.
pub fn assert_logits_close(found: &GoldenMatrix, expected: &GoldenMatrix, what: &str) {
    assert_logits_within(F32_LOGIT_TOLERANCE, found, expected, what);
}

/// Asserts that no logit at any position is off by more than `tolerance` of the logits' range.
///
/// # Panics
/// With the place and size of the largest difference if it is above the bound.
pub fn assert_logits_within(
    tolerance: f32,
    found: &GoldenMatrix,
    expected: &GoldenMatrix,
    what: &str,
) {
    let agreement = Agreement::of(found, expected);
    let Agreement {
        worst_row,
        worst_column,
        ..
    } = agreement;
    assert!(
        agreement.max_abs_over_range <= tolerance,
        "{what}: position {worst_row}, token {worst_column}: {} where {} is expected; {agreement:?}",
        found.row(worst_row)[worst_column],
        expected.row(worst_row)[worst_column],
    );
}

/// Asserts the bound for lower precisions: where the two choose different tokens, each one's choice
/// is among the other's five best.
///
/// # Panics
/// With the first position that fails.
pub fn assert_top5(found: &GoldenMatrix, expected: &GoldenMatrix, what: &str) {
    assert_eq!(
        (found.n(), found.width),
        (expected.n(), expected.width),
        "{what}: shapes differ"
    );
    for i in 0..expected.n() {
        let (ours, theirs) = (top_k(found.row(i), 5), top_k(expected.row(i), 5));
        assert!(
            theirs.contains(&ours[0]) && ours.contains(&theirs[0]),
            "{what}: position {i}: best five {ours:?}, expected {theirs:?}"
        );
    }
}

/// The rows that [`assert_top5`] would refuse.
pub fn rows_beyond_top5(found: &GoldenMatrix, expected: &GoldenMatrix) -> usize {
    let is_beyond = |row: &usize| {
        let (ours, theirs) = (top_k(found.row(*row), 5), top_k(expected.row(*row), 5));
        !(theirs.contains(&ours[0]) && ours.contains(&theirs[0]))
    };
    (0..expected.n()).filter(is_beyond).count()
}

/// The rows in which a logit is off by more than `tolerance` of the logits' range.
pub fn rows_beyond(tolerance: f32, found: &GoldenMatrix, expected: &GoldenMatrix) -> usize {
    let (least, most) = expected
        .data
        .iter()
        .fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
    let bound = tolerance * (most - least);
    let is_beyond = |row: &usize| {
        let pairs = found.row(*row).iter().zip(expected.row(*row));
        pairs.into_iter().any(|(a, b)| (a - b).abs() > bound)
    };
    (0..expected.n()).filter(is_beyond).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(data: &[f32]) -> GoldenMatrix {
        GoldenMatrix {
            width: 4,
            data: data.to_vec(),
        }
    }

    const X: [f32; 8] = [0.0, 1.0, 2.0, 3.0, 9.0, -1.0, 4.0, 5.0];

    #[test]
    fn equal_data_agree_fully() {
        let agreement = Agreement::of(&rows(&X), &rows(&X));
        assert_eq!(agreement.max_abs_over_range, 0.0);
        assert_eq!(agreement.nmse, 0.0);
        assert_eq!(agreement.same_argmax, 1.0);
        assert!((agreement.min_cosine - 1.0).abs() < 1e-12);
    }

    #[test]
    fn one_difference_is_found_and_scaled() {
        let mut other = X;
        other[5] = 0.0;
        let agreement = Agreement::of(&rows(&other), &rows(&X));
        assert!((agreement.max_abs_over_range - 0.1).abs() < 1e-6);
        assert_eq!((agreement.worst_row, agreement.worst_column), (1, 1));
    }

    #[test]
    #[should_panic(expected = "position 1, token 0")]
    fn not_a_number_is_never_close() {
        let mut other = X;
        other[4] = f32::NAN;
        assert_logits_close(&rows(&other), &rows(&X), "test");
    }

    #[test]
    fn top_k_is_ordered() {
        assert_eq!(top_k(&[1.0, 5.0, 3.0, 5.0], 3), [1, 3, 2]);
        assert_eq!(top_k(&[1.0], 3), [0]);
    }

    #[test]
    #[should_panic(expected = "position 0")]
    fn top5_gate_fails_on_a_stranger() {
        let expected = GoldenMatrix {
            width: 8,
            data: (0..8).map(|i| i as f32).collect(),
        };
        let found = GoldenMatrix {
            width: 8,
            data: (0..8).map(|i| -(i as f32)).collect(),
        };
        assert_top5(&found, &expected, "test");
    }
}
