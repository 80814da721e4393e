//! Bodies without intrinsics, compiled for several instruction sets.
//!
//! They are for data where neither subnormal numbers nor separate rounding of product and sum
//! change anything ([`is_tame`]). All practical data is like that.

use super::{BLOCK, BLOCK_ELEMENTS, LANES, MatmulShape};
use half::bf16;

/// Least and largest exponent field of the numbers that are not zero; (255, 0) where all are.
#[inline(always)]
fn exponents(x: &[bf16]) -> (u16, u16) {
    let (mut least, mut largest) = (u16::MAX, 0);
    for x in x {
        // Without the sign; zero less one wraps to the top.
        let doubled = x.to_bits() << 1;
        largest = doubled.max(largest);
        least = doubled.wrapping_sub(1).min(least);
    }
    // At the top for zeros alone: the exponent of an infinite number.
    (least.saturating_add(1) >> 8, largest >> 8)
}

/// Whether products are exact in f32, and no sum of them and of C can come near the subnormal
/// numbers. All are then multiples of a number that is not subnormal. Infinite and NaN elements of
/// C stay so in any order.
pub(super) fn is_tame(a: &[bf16], b: &[bf16], c: &[f32]) -> bool {
    are_tame(a, b) && !has_small(c)
}

/// Whether an element is not zero and too small to be tame.
pub(super) fn has_small(c: &[f32]) -> bool {
    (c.iter()).any(|c| (c.to_bits() << 1).wrapping_sub(1) < LEAST - 1)
}

/// Twice the bits of the smallest nonzero element of C that is tame: the last bit of an f32 is 23
/// below its exponent.
pub(super) const LEAST: u32 = (f32::MIN_POSITIVE.to_bits() + (24 << 23)) << 1;

/// The part of [`is_tame`] that concerns A and B.
#[inline(always)]
pub(super) fn are_tame(a: &[bf16], b: &[bf16]) -> bool {
    const BIAS: u16 = 127;
    const INFINITE: u16 = 255;
    let ((a_least, a_largest), (b_least, b_largest)) = (exponents(a), exponents(b));
    // The last bit of a product is 14 below the sum of the exponents; the product reaches 2 above.
    let exact = a_least + b_least >= 2 * BIAS - 126 + 14 && a_largest + b_largest <= 3 * BIAS - 2;
    let normal = a_least > 0 && b_least > 0 && a_largest < INFINITE && b_largest < INFINITE;
    exact && normal
}

/// `C += A · B` of tame data. `FUSED` where the instruction set has fused multiply-adds.
#[inline(always)]
pub(super) fn matmul_tame<const FUSED: bool>(
    shape: MatmulShape,
    a: &[bf16],
    b: &[bf16],
    c: &mut [f32],
) {
    let (row_blocks, k_blocks) = (shape.m / BLOCK, shape.k / BLOCK);
    let (a, _) = a.as_chunks::<BLOCK_ELEMENTS>();
    let (b, _) = b.as_chunks::<BLOCK_ELEMENTS>();
    let (c, _) = c.as_chunks_mut::<BLOCK_ELEMENTS>();
    for (at, c) in c.iter_mut().enumerate() {
        let (col_block, row_block) = (at / row_blocks, at % row_blocks);
        let mut sums = [[0.0_f32; BLOCK]; BLOCK];
        for (sums, c) in sums.iter_mut().zip(c.as_chunks::<BLOCK>().0) {
            *sums = *c;
        }
        for i in 0..k_blocks {
            let a = &a[i * row_blocks + row_block];
            let b = &b[col_block * k_blocks + i];
            for step in 0..BLOCK {
                let i = step ^ 1;
                let b: [f32; BLOCK] = std::array::from_fn(|col| widen(b[i * BLOCK + col]));
                for row in 0..BLOCK {
                    let a = widen(a[row * BLOCK + i]);
                    for col in 0..BLOCK {
                        sums[row][col] = if FUSED {
                            a.mul_add(b[col], sums[row][col])
                        } else {
                            a * b[col] + sums[row][col]
                        };
                    }
                }
            }
        }
        for (sums, c) in sums.iter().zip(c.as_chunks_mut::<BLOCK>().0) {
            *c = *sums;
        }
    }
}

/// The value, exactly.
#[inline(always)]
fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// `y = W · x` in 64 partial sums.
#[inline(always)]
pub(super) fn matvec(w: &[bf16], x: &[bf16], y: &mut [f32]) {
    if x.is_empty() {
        return y.fill(0.0);
    }
    let (whole_x, rest_x) = x.as_chunks::<LANES>();
    for (w, y) in w.chunks_exact(x.len()).zip(y) {
        let (whole_w, rest_w) = w.as_chunks::<LANES>();
        let mut sums = [0.0_f32; LANES];
        for (w, x) in whole_w.iter().zip(whole_x) {
            for l in 0..LANES {
                sums[l] += widen(w[l]) * widen(x[l]);
            }
        }
        for (sum, (&w, &x)) in sums.iter_mut().zip(rest_w.iter().zip(rest_x)) {
            *sum += widen(w) * widen(x);
        }
        *y = halves(sums);
    }
}

/// Sums added in halves: 32 apart, 16, … 1.
#[inline(always)]
fn halves(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = sums.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        width /= 2;
    }
    sums[0]
}

/// Every not-a-number as the canonical one.
pub(super) fn canonical(values: &mut [f32]) {
    for value in values {
        if value.is_nan() {
            *value = f32::NAN;
        }
    }
}
