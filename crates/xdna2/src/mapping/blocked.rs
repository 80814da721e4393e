//! Block floating point by its definition, for references: it is independent of the tile kernels.

/// Values that share an exponent.
pub(super) const BLOCK: usize = 8;

/// Eight values as their block represents them: multiples of 1/64 of the largest one's power of two, to
/// nearest, ties to even, at most 127 of them; if one would be more, multiples of 1/32. All are exact in
/// f32.
pub(super) fn represented(values: [f32; BLOCK]) -> [f32; BLOCK] {
    let largest = values.iter().fold(0.0_f32, |max, v| max.max(v.abs()));
    if largest < f32::MIN_POSITIVE {
        return [0.0; BLOCK];
    }
    let mut power = 2.0_f64.powi(-126);
    while 2.0 * power <= f64::from(largest) {
        power *= 2.0;
    }
    let steps = |step: f64| values.map(|v| (f64::from(v) / step).round_ties_even());
    let mut step = power / 64.0;
    if steps(step).iter().any(|&n| n > 127.0) {
        step *= 2.0;
    }
    steps(step).map(|n| (n * step) as f32)
}

/// The rows of a matrix of rows of `k`, block by block.
pub(super) fn represented_rows(matrix: &[f32]) -> Vec<f32> {
    let blocks = matrix.chunks_exact(BLOCK);
    let of = |block: &[f32]| represented(std::array::from_fn(|i| block[i]));
    blocks.flat_map(of).collect()
}

/// `sum` with the products of represented values, block by block: the eight of a block are exact.
pub(super) fn dot(sum: f32, a: &[f32], b: &[f32]) -> f32 {
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
    blocks.fold(sum, |sum, (a, b)| {
        let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
        sum + products.sum::<f64>() as f32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_by_hand() {
        // The largest is 1.5 · 2: steps of 1/32.
        let found = represented([3.0, -3.0, 1.0, 0.5, 1.0 / 32.0, 1.0 / 64.0, 3.0 / 64.0, 0.0]);
        let ties = [0.0, 1.0 / 16.0];
        assert_eq!(found[..5], [3.0, -3.0, 1.0, 0.5, 1.0 / 32.0]);
        assert_eq!(found[5..7], ties, "ties go to even");
        // 1.9921875 is 127.5 steps of 1/64, so 128: the exponent rises and steps are 1/32.
        let mut values = [1.0 / 64.0; BLOCK];
        values[0] = 1.992_187_5;
        let found = represented(values);
        assert_eq!((found[0], found[1]), (2.0, 0.0));
        // −128 steps are a mantissa.
        values[0] = -1.992_187_5;
        assert_eq!(represented(values)[..2], [-2.0, 1.0 / 64.0]);
    }
}
