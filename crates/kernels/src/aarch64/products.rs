//! Products of signed bytes, added in i32: with widening multiplications, FEAT_DotProd or FEAT_I8MM. All of them are exact.
//!
//! The last two have no stable intrinsics, hence assembly of one instruction each.

use crate::matmul::panel::LINE_BYTES;
use std::arch::aarch64::*;
use std::arch::asm;

/// How a level multiplies bytes. Pairs of products are added in i16 on the way: of two bytes one must be above −128, as quantised
/// activations are.
pub(super) trait Products {
    /// Lane `i`: `acc`'s, plus the dot product of bytes `4i..4i + 4` of `w` and `x`.
    ///
    /// # Safety
    /// The CPU has the level.
    unsafe fn dot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;

    /// Dot products of eight rows, half a panel, with `T` tokens over `16 · sixteens` columns: a lane of the two vectors of a token is
    /// a row.
    ///
    /// # Safety
    /// The CPU has the level; `lines` is the half's part of the first line of as many columns, in the level's order
    /// ([`super::lines`]), and each of `x` is the first of as many bytes.
    unsafe fn of_half<const T: usize>(
        lines: *const u8,
        sixteens: usize,
        x: [*const i8; T],
    ) -> [[int32x4_t; 2]; T];
}

/// [`crate::Level::Neon`].
pub(super) struct Widening;

/// [`crate::Level::DotProd`].
pub(super) struct DotProd;

/// [`crate::Level::I8mm`].
pub(super) struct I8mm;

impl Products for Widening {
    #[inline(always)]
    unsafe fn dot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: every AArch64 has these.
        unsafe {
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
            let high = vmull_high_s8(w, x);
            vpadalq_s16(acc, vpaddq_s16(low, high))
        }
    }

    #[inline(always)]
    unsafe fn of_half<const T: usize>(
        lines: *const u8,
        sixteens: usize,
        x: [*const i8; T],
    ) -> [[int32x4_t; 2]; T] {
        // SAFETY: forwarded.
        unsafe {
            by_lines::<T, _>(
                lines,
                sixteens,
                x,
                #[inline(always)]
                |acc, w, x, lane| {
                    let x = vreinterpretq_s32_s8(x);
                    let x = match lane {
                        0 => vdupq_laneq_s32::<0>(x),
                        1 => vdupq_laneq_s32::<1>(x),
                        2 => vdupq_laneq_s32::<2>(x),
                        _ => vdupq_laneq_s32::<3>(x),
                    };
                    Widening::dot(acc, w, vreinterpretq_s8_s32(x))
                },
            )
        }
    }
}

impl Products for DotProd {
    #[inline(always)]
    unsafe fn dot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: forwarded.
        unsafe { sdot(acc, w, x) }
    }

    #[inline(always)]
    unsafe fn of_half<const T: usize>(
        lines: *const u8,
        sixteens: usize,
        x: [*const i8; T],
    ) -> [[int32x4_t; 2]; T] {
        // SAFETY: forwarded.
        unsafe {
            by_lines::<T, _>(
                lines,
                sixteens,
                x,
                #[inline(always)]
                |acc, w, x, lane| match lane {
                    0 => sdot_lane::<0>(acc, w, x),
                    1 => sdot_lane::<1>(acc, w, x),
                    2 => sdot_lane::<2>(acc, w, x),
                    _ => sdot_lane::<3>(acc, w, x),
                },
            )
        }
    }
}

impl Products for I8mm {
    #[inline(always)]
    unsafe fn dot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the level includes FEAT_DotProd.
        unsafe { sdot(acc, w, x) }
    }

    /// A vector of a panel is eight columns of two rows, that of activations eight columns of two tokens.
    #[inline(always)]
    unsafe fn of_half<const T: usize>(
        lines: *const u8,
        sixteens: usize,
        x: [*const i8; T],
    ) -> [[int32x4_t; 2]; T] {
        let pairs = T.div_ceil(2);
        // SAFETY: forwarded; a last odd token is its own partner.
        unsafe {
            // Of each pair of tokens, four pairs of rows.
            let mut sums = [[vdupq_n_s32(0); 4]; T];
            for c in 0..sixteens {
                let mut q = [[vdupq_n_s8(0); 2]; T];
                for (i, q) in q.iter_mut().enumerate().take(pairs) {
                    let a = vreinterpretq_s64_s8(vld1q_s8(x[2 * i].add(16 * c)));
                    let b = vreinterpretq_s64_s8(vld1q_s8(x[(2 * i + 1).min(T - 1)].add(16 * c)));
                    *q = [
                        vreinterpretq_s8_s64(vzip1q_s64(a, b)),
                        vreinterpretq_s8_s64(vzip2q_s64(a, b)),
                    ];
                }
                for eight in 0..2 {
                    let at = lines.add((4 * c + 2 * eight) * LINE_BYTES);
                    let w: [int8x16_t; 4] = std::array::from_fn(|j| {
                        vld1q_s8(at.add(j % 2 * LINE_BYTES + j / 2 * 16).cast())
                    });
                    for i in 0..pairs {
                        for (sum, w) in sums[i].iter_mut().zip(w) {
                            *sum = smmla(*sum, w, q[i][eight]);
                        }
                    }
                }
            }
            std::array::from_fn(|t| {
                let of = |a, b| {
                    if t % 2 == 0 {
                        vuzp1q_s32(a, b)
                    } else {
                        vuzp2q_s32(a, b)
                    }
                };
                let [a, b, c, d] = sums[t / 2];
                [of(a, b), of(c, d)]
            })
        }
    }
}

/// [`Products::of_half`] of panels whose vectors are four columns of four rows: `dot` multiplies one with four bytes of a token,
/// number `lane` of four.
///
/// # Safety
/// As [`Products::of_half`].
#[inline(always)]
unsafe fn by_lines<const T: usize, F>(
    lines: *const u8,
    sixteens: usize,
    x: [*const i8; T],
    dot: F,
) -> [[int32x4_t; 2]; T]
where
    F: Fn(int32x4_t, int8x16_t, int8x16_t, usize) -> int32x4_t,
{
    // SAFETY: forwarded.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); 2]; T];
        for c in 0..sixteens {
            let q = x.map(|x| vld1q_s8(x.add(16 * c)));
            for lane in 0..4 {
                let line: *const i8 = lines.add((4 * c + lane) * LINE_BYTES).cast();
                let w = [vld1q_s8(line), vld1q_s8(line.add(16))];
                for (sums, q) in sums.iter_mut().zip(q) {
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = dot(*sum, w, q, lane);
                    }
                }
            }
        }
        sums
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: an instruction on registers, which the target feature has.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {w:v}.16b, {x:v}.16b",
            acc = inout(vreg) acc, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_lane<const LANE: usize>(mut acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: as above.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            acc = inout(vreg) acc, w = in(vreg) w, x = in(vreg) x, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// Lane `2i + j`: `acc`'s, plus the dot product of bytes `8i..8i + 8` of `w` and `8j..8j + 8` of `x`.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(super) fn smmla(mut acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: as above.
    unsafe {
        asm!(
            "smmla {acc:v}.4s, {w:v}.16b, {x:v}.16b",
            acc = inout(vreg) acc, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}
