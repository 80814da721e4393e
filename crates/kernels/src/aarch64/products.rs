//! Products of signed bytes, added in i32: with widening multiplications, FEAT_DotProd or FEAT_I8MM. All of them are exact.
//!
//! The last two have no stable intrinsics, so each is one instruction of assembly. Functions here and in the leaves are inlined into
//! functions that have a level's target features. Closures inside library functions might not be, so loops are spelled out.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::panel::LINE_BYTES;
use std::arch::aarch64::*;
use std::arch::asm;

/// How a level multiplies bytes. Pairs of products are added in i16 on the way: of two bytes one must be above −128, as quantised
/// activations are.
pub(super) trait ByteProducts {
    /// Lane `i`: `acc`'s, plus the dot product of bytes `4i..4i + 4` of `w` and `x`.
    ///
    /// # Safety
    /// The CPU has the level.
    unsafe fn dot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;

    /// Dot products of eight rows, half a panel, with `T` tokens over `16 · sixteens` columns. Each lane of a token's two vectors is a
    /// row.
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

impl ByteProducts for Widening {
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
        unsafe { by_lines::<Widening, T>(lines, sixteens, x) }
    }
}

impl DotLane for Widening {
    #[inline(always)]
    unsafe fn dot_lane<const LANE: i32>(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: every AArch64 has these.
        unsafe {
            let four = vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(x));
            Widening::dot(acc, w, vreinterpretq_s8_s32(four))
        }
    }
}

impl ByteProducts for DotProd {
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
        unsafe { by_lines::<DotProd, T>(lines, sixteens, x) }
    }
}

impl DotLane for DotProd {
    #[inline(always)]
    unsafe fn dot_lane<const LANE: i32>(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: forwarded.
        unsafe { sdot_lane::<LANE>(acc, w, x) }
    }
}

impl ByteProducts for I8mm {
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
            // Four pairs of rows for each pair of tokens.
            let mut sums = [[vdupq_n_s32(0); 4]; T];
            for c in 0..sixteens {
                let mut q = [[vdupq_n_s8(0); 2]; T];
                for i in 0..pairs {
                    let a = vreinterpretq_s64_s8(vld1q_s8(x[2 * i].add(16 * c)));
                    let b = vreinterpretq_s64_s8(vld1q_s8(x[(2 * i + 1).min(T - 1)].add(16 * c)));
                    q[i][0] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
                    q[i][1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
                }
                for eight in 0..2 {
                    let at = lines.add((4 * c + 2 * eight) * LINE_BYTES);
                    for j in 0..4 {
                        let w = vld1q_s8(at.add(j % 2 * LINE_BYTES + j / 2 * 16).cast());
                        for i in 0..pairs {
                            sums[i][j] = smmla(sums[i][j], w, q[i][eight]);
                        }
                    }
                }
            }
            let mut of_tokens = [[vdupq_n_s32(0); 2]; T];
            for i in 0..pairs {
                let [a, b, c, d] = sums[i];
                of_tokens[2 * i] = [vuzp1q_s32(a, b), vuzp1q_s32(c, d)];
                if 2 * i + 1 < T {
                    of_tokens[2 * i + 1] = [vuzp2q_s32(a, b), vuzp2q_s32(c, d)];
                }
            }
            of_tokens
        }
    }
}

/// How a level multiplies a vector of a panel, four columns of four rows.
trait DotLane {
    /// Lane `i`: `acc`'s, plus the dot product of bytes `4i..4i + 4` of `w` and `4 · LANE..` of `x`.
    ///
    /// # Safety
    /// The CPU has the level.
    unsafe fn dot_lane<const LANE: i32>(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;
}

/// [`ByteProducts::of_half`] by [`DotLane`].
///
/// # Safety
/// As [`ByteProducts::of_half`].
#[inline(always)]
unsafe fn by_lines<P: DotLane, const T: usize>(
    lines: *const u8,
    sixteens: usize,
    x: [*const i8; T],
) -> [[int32x4_t; 2]; T] {
    // SAFETY: forwarded.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); 2]; T];
        for c in 0..sixteens {
            let mut q = [vdupq_n_s8(0); T];
            for i in 0..T {
                q[i] = vld1q_s8(x[i].add(16 * c));
            }
            let lines = lines.add(4 * c * LINE_BYTES);
            by_line::<P, T, 0>(&mut sums, lines, &q);
            by_line::<P, T, 1>(&mut sums, lines.add(LINE_BYTES), &q);
            by_line::<P, T, 2>(&mut sums, lines.add(2 * LINE_BYTES), &q);
            by_line::<P, T, 3>(&mut sums, lines.add(3 * LINE_BYTES), &q);
        }
        sums
    }
}

/// # Safety
/// As [`ByteProducts::of_half`], for one line and four columns of sixteen.
#[inline(always)]
unsafe fn by_line<P: DotLane, const T: usize, const LANE: i32>(
    sums: &mut [[int32x4_t; 2]; T],
    line: *const u8,
    q: &[int8x16_t; T],
) {
    // SAFETY: forwarded.
    unsafe {
        let w = [vld1q_s8(line.cast()), vld1q_s8(line.add(16).cast())];
        for i in 0..T {
            sums[i][0] = P::dot_lane::<LANE>(sums[i][0], w[0], q[i]);
            sums[i][1] = P::dot_lane::<LANE>(sums[i][1], w[1], q[i]);
        }
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
fn sdot_lane<const LANE: i32>(mut acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
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
