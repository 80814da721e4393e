//! Rows of bytes into lanes, four rows at a time: a quarter of a panel line.
//!
//! Sixteen columns of sixteen rows take four lines. Quarter `g` of a line is rows `4g..4g + 4`. For levels with dot products it
//! holds four columns of each row; for FEAT_I8MM, eight columns of two rows.

use crate::matmul::panel::LINE_BYTES;
use std::arch::aarch64::*;

/// Rows of a quarter of a panel.
pub(super) const QUARTER_ROWS: usize = 4;

/// Quarters of a panel.
pub(super) const QUARTERS: usize = 4;

/// Bytes of a quarter of a line.
pub(super) const QUARTER_LINE: usize = 16;

/// As the method of arrays, always inlined if `f` is.
#[inline(always)]
pub(super) fn map<T: Copy, U: Copy, const N: usize>(
    from: [T; N],
    mut f: impl FnMut(T) -> U,
) -> [U; N] {
    let mut to = [f(from[0]); N];
    for i in 1..N {
        to[i] = f(from[i]);
    }
    to
}

/// Lane `r` of vector `i` is lane `i` of vector `r`.
#[inline(always)]
pub(super) fn transpose(rows: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
    // SAFETY: every AArch64 has these.
    unsafe {
        let [a, b, c, d] = rows;
        let wide = |v| vreinterpretq_u64_u32(v);
        let narrow = |v| vreinterpretq_u32_u64(v);
        let (ab_even, ab_odd) = (wide(vtrn1q_u32(a, b)), wide(vtrn2q_u32(a, b)));
        let (cd_even, cd_odd) = (wide(vtrn1q_u32(c, d)), wide(vtrn2q_u32(c, d)));
        [
            narrow(vtrn1q_u64(ab_even, cd_even)),
            narrow(vtrn1q_u64(ab_odd, cd_odd)),
            narrow(vtrn2q_u64(ab_even, cd_even)),
            narrow(vtrn2q_u64(ab_odd, cd_odd)),
        ]
    }
}

/// Stores sixteen columns of four rows in a quarter of four lines; `PAIRS` is the order for FEAT_I8MM.
///
/// # Safety
/// `line` is the quarter's part of the first of four writable lines.
#[inline(always)]
pub(super) unsafe fn store_sixteen<const PAIRS: bool>(line: *mut u8, rows: [int8x16_t; 4]) {
    // SAFETY: forwarded.
    unsafe {
        let vectors = if PAIRS {
            let [a, b, c, d] = map(rows, |row| vreinterpretq_u64_s8(row));
            let pairs = [
                vtrn1q_u64(a, b),
                vtrn1q_u64(c, d),
                vtrn2q_u64(a, b),
                vtrn2q_u64(c, d),
            ];
            map(pairs, |v| vreinterpretq_u32_u64(v))
        } else {
            transpose(map(rows, |row| vreinterpretq_u32_s8(row)))
        };
        for (i, v) in vectors.into_iter().enumerate() {
            vst1q_u32(line.add(i * LINE_BYTES).cast(), v);
        }
    }
}

/// Lane `r` is the sum of the lanes of vector `r`.
#[inline(always)]
pub(super) fn add_across(rows: [int32x4_t; 4]) -> int32x4_t {
    // SAFETY: every AArch64 has these.
    unsafe { vpaddq_s32(vpaddq_s32(rows[0], rows[1]), vpaddq_s32(rows[2], rows[3])) }
}

/// Four f16, widened.
#[inline(always)]
pub(super) fn widen_f16(bits: uint16x4_t) -> float32x4_t {
    // SAFETY: every AArch64 has these.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(bits)) }
}

/// The f16 at each of four addresses, widened.
///
/// # Safety
/// Two bytes are readable at each.
#[inline(always)]
pub(super) unsafe fn load_f16(at: [*const u8; 4]) -> float32x4_t {
    // SAFETY: forwarded; four numbers.
    unsafe {
        let bits = map(at, |at| at.cast::<u16>().read_unaligned());
        widen_f16(vld1_u16(bits.as_ptr()))
    }
}

/// The address of each of four rows from `row` on, the last of `n` repeated beyond.
///
/// # Safety
/// There are `n` rows, `stride` bytes apart.
#[inline(always)]
pub(super) unsafe fn four_rows(
    base: *const u8,
    stride: usize,
    row: usize,
    n: usize,
) -> [*const u8; QUARTER_ROWS] {
    // SAFETY: forwarded.
    map([0, 1, 2, 3], |i| unsafe {
        base.add((row + i).min(n - 1) * stride)
    })
}

/// Stores the first `n` lanes, all if there are more than four.
///
/// # Safety
/// As many numbers are writable.
#[inline(always)]
pub(super) unsafe fn store_some(to: *mut f32, v: float32x4_t, n: usize) {
    // SAFETY: forwarded.
    unsafe {
        if n >= QUARTER_ROWS {
            vst1q_f32(to, v);
        } else {
            let mut lanes = [0.0_f32; QUARTER_ROWS];
            vst1q_f32(lanes.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n);
        }
    }
}
