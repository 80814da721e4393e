//! Rounding, and the two transcendental functions that AIE2P's vector unit has: `exp2` and `tanh`
//! with bf16 results (AMD's manual AM027).
//!
//! The hardware's tables are not public. The model is the best result a bf16 unit can give: the
//! exact value rounded to f32, then to bf16. Only additions, multiplications, divisions and square
//! roots of IEEE binary64 are used, so the bits do not depend on the machine's C library.

use bytemuck::{cast_slice, cast_slice_mut};
use half::bf16;
use std::sync::OnceLock;

/// Lowest finite bf16: where running maxima begin, so that `max − max` is never `∞ − ∞`.
pub(super) const LOWEST: bf16 = bf16::MIN;

/// Rounds to nearest, ties to even; NaN becomes canonical.
#[inline]
pub(super) fn round(x: f32) -> bf16 {
    if x.is_nan() {
        return bf16::from_bits(0x7fc0);
    }
    let bits = x.to_bits();
    bf16::from_bits(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
}

/// Towards zero; not-a-number becomes canonical.
#[inline]
pub(super) fn truncate(x: f32) -> bf16 {
    if x.is_nan() {
        return bf16::from_bits(0x7fc0);
    }
    bf16::from_bits((x.to_bits() >> 16) as u16)
}

/// The value, exactly.
#[inline]
pub(super) fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// `round` after an f32 product.
#[inline]
pub(super) fn mul(a: bf16, b: bf16) -> bf16 {
    round(widen(a) * widen(b))
}

/// `round` after an f32 sum.
#[inline]
pub(super) fn add(a: bf16, b: bf16) -> bf16 {
    round(widen(a) + widen(b))
}

/// Steps of 2^f, 0 ≤ f < 1, that the table of [`exp2_f64`] has.
const STEPS: usize = 256;

/// 2^(j/256), from square roots of two, which IEEE rounds correctly.
fn steps() -> &'static [f64; STEPS] {
    static TABLE: OnceLock<[f64; STEPS]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = [1.0; STEPS];
        let (mut root, mut bit) = (2.0_f64, STEPS);
        while bit > 1 {
            root = root.sqrt();
            bit /= 2;
            for (j, value) in table.iter_mut().enumerate() {
                if j & bit != 0 {
                    *value *= root;
                }
            }
        }
        table
    })
}

/// 2^x for |x| ≤ 1000, relative error below 1e-12.
fn exp2_f64(x: f64, steps: &[f64; STEPS]) -> f64 {
    let scaled = (x * STEPS as f64).floor();
    let rest = (x - scaled / STEPS as f64) * std::f64::consts::LN_2;
    let step = scaled as i64;
    let series = 1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0 + rest / 24.0)));
    let whole = step.div_euclid(STEPS as i64);
    let scale = f64::from_bits(((whole + 1023) as u64) << 52);
    steps[step.rem_euclid(STEPS as i64) as usize] * series * scale
}

/// 2^x with a table fetched once for many calls.
pub(super) struct Exp2(&'static [f64; STEPS]);

impl Exp2 {
    pub(super) fn new() -> Exp2 {
        Exp2(steps())
    }

    /// 2^x, rounded to f32 and then to bf16; 0 below 2^-150, infinite from 2^128.
    #[inline]
    pub(super) fn of(&self, x: f32) -> bf16 {
        if x.is_nan() {
            return round(x);
        }
        let x = f64::from(x).clamp(-160.0, 160.0);
        round(exp2_f64(x, self.0) as f32)
    }
}

fn tanh_f64(x: f64) -> f64 {
    let magnitude = x.abs();
    let value = if magnitude < 0.01 {
        let square = magnitude * magnitude;
        magnitude * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * 17.0 / 315.0)))
    } else if magnitude < 20.0 {
        let power = exp2_f64(2.0 * magnitude * std::f64::consts::LOG2_E, steps());
        1.0 - 2.0 / (power + 1.0)
    } else {
        1.0
    };
    value.copysign(x)
}

/// tanh of every bf16.
pub(super) struct Tanh(&'static [bf16]);

impl Tanh {
    pub(super) fn new() -> Tanh {
        static TABLE: OnceLock<Vec<bf16>> = OnceLock::new();
        Tanh(TABLE.get_or_init(|| {
            let of = |bits: u16| {
                let x = widen(bf16::from_bits(bits));
                if x.is_nan() {
                    return round(x);
                }
                round(tanh_f64(f64::from(x)) as f32)
            };
            (0..=u16::MAX).map(of).collect()
        }))
    }

    /// tanh(x), rounded to f32 and then to bf16.
    #[inline]
    pub(super) fn of(&self, x: bf16) -> bf16 {
        self.0[usize::from(x.to_bits())]
    }
}

/// Bytes as bf16. The buffer is aligned and whole (checked before a kernel runs).
pub(super) fn bf16s(bytes: &[u8]) -> &[bf16] {
    cast_slice(bytes)
}

/// Bytes as bf16, to write.
pub(super) fn bf16s_mut(bytes: &mut [u8]) -> &mut [bf16] {
    cast_slice_mut(bytes)
}

/// Bytes as f32.
pub(super) fn f32s(bytes: &[u8]) -> &[f32] {
    cast_slice(bytes)
}

/// Bytes as f32, to write.
pub(super) fn f32s_mut(bytes: &mut [u8]) -> &mut [f32] {
    cast_slice_mut(bytes)
}
