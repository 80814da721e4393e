//! Blocks of eight values with one exponent, as matrix units that emulate bf16 products convert both
//! operands (`bfp16ebs8`): 8-bit mantissas in two's complement, in steps of 2^(e − 6) of the largest
//! value's exponent e, rounded to nearest, ties to even. A mantissa that would round to 128 raises e.
//!
//! Written for checking: none of a target's own conversion is used here.

/// Values that share an exponent.
pub(crate) const BLOCK: usize = 8;

/// Half a step, relative to the power of two of a block's largest value. It is the most that conversion moves a value.
/// In a block whose exponent was raised, it is twice that.
pub(crate) const HALF_STEP: f64 = 1.0 / 128.0;

/// Converts every eight values of `x` in place; the last block may be shorter. Every result is a bf16
/// number. Blocks with an infinity or NaN become NaN.
pub(crate) fn convert(x: &mut [f32]) {
    x.chunks_mut(BLOCK).for_each(convert_block);
}

/// Converts the columns of a matrix with rows of `n_cols`: eight rows have a column's block.
pub(crate) fn convert_columns(w: &mut [f32], n_cols: usize) {
    let mut column = Vec::new();
    for start in 0..n_cols {
        column.clear();
        column.extend(w.iter().skip(start).step_by(n_cols));
        convert(&mut column);
        let to = w.iter_mut().skip(start).step_by(n_cols);
        to.zip(&column).for_each(|(to, x)| *to = *x);
    }
}

fn convert_block(block: &mut [f32]) {
    let largest = block.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    if !block.iter().all(|x| x.is_finite()) {
        return block.fill(f32::NAN);
    }
    if largest < f32::MIN_POSITIVE {
        return block.fill(0.0);
    }
    let exponent = (largest.to_bits() >> 23) as i32 - 127;
    let step = |exponent: i32| 2.0_f64.powi(exponent - 6);
    let mantissa = |x: f32, exponent| (f64::from(x) / step(exponent)).round_ties_even();
    let fits = |x: &f32| mantissa(*x, exponent) <= 127.0;
    let exponent = exponent + i32::from(!block.iter().all(fits));
    for x in block {
        *x = (mantissa(*x, exponent) * step(exponent)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn the_largest_value_sets_the_step() {
        let mut x = [
            1.0,
            0.5,
            1.0 / 64.0,
            1.0 / 128.0,
            3.0 / 128.0,
            -1.0,
            0.0,
            1e-40,
        ];
        convert(&mut x);
        // Ties go to the even mantissa: half a step to none, one and a half to two.
        assert_eq!(x, [1.0, 0.5, 1.0 / 64.0, 0.0, 2.0 / 64.0, -1.0, 0.0, 0.0]);
        // 127.5 steps do not fit eight bits; with the next exponent they are 64.
        let mut x = [255.0 / 128.0, 1.0 / 64.0, 3.0 / 64.0];
        convert(&mut x);
        assert_eq!(x, [2.0, 0.0, 2.0 / 32.0]);
        // Below, −128 does.
        let mut x = [-2.0 + 1.0 / 512.0, 0.0];
        convert(&mut x);
        assert_eq!(x, [-2.0, 0.0]);
        let mut x = [f32::INFINITY, 1.0];
        convert(&mut x);
        assert!(x.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn no_value_moves_further_than_stated() {
        let mut state = 7_u32;
        for _ in 0..2000 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bf16::from_f32((state >> 8) as f32 / 8_388_608.0 - 1.0).to_f32()
            };
            let x: Vec<f32> = (0..BLOCK)
                .map(|i| next() * 2.0_f32.powi(-(i as i32)))
                .collect();
            let mut converted = x.clone();
            convert(&mut converted);
            let largest = x.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
            let power = 2.0_f64.powi(largest.log2().floor() as i32);
            for (x, y) in x.iter().zip(&converted) {
                let moved = f64::from((x - y).abs());
                assert!(moved <= 2.0 * HALF_STEP * power, "{x}: {y}");
                assert_eq!(bf16::from_f32(*y).to_f32(), *y);
            }
        }
    }
}
