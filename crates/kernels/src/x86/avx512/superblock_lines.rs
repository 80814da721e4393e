//! The k-quants, superblocks of 256 columns with integer scales, as lines.

use super::transpose::{load_f16, load_rows};
use crate::matmul::ahead::{Ahead, lines_a_step};
use crate::matmul::panel::LINE_BYTES;
use millrace_quant::DType;
use std::arch::x86_64::*;

/// Formats; the codes are const parameters.
pub(super) const Q2_K: u8 = 0;
pub(super) const Q3_K: u8 = 1;
pub(super) const Q4_K: u8 = 2;
pub(super) const Q5_K: u8 = 3;
pub(super) const Q6_K: u8 = 4;

/// The format of a code.
pub(super) const fn dtype(format: u8) -> DType {
    match format {
        Q2_K => DType::Q2K,
        Q3_K => DType::Q3K,
        Q4_K => DType::Q4K,
        Q5_K => DType::Q5K,
        _ => DType::Q6K,
    }
}

/// Lines of a unit from the scales on ([`crate::matmul::PanelLayout`]).
#[derive(Clone, Copy)]
struct Tail(*mut u8);

impl Tail {
    /// # Safety
    /// The tail has a line `i`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store(self, i: usize, v: __m512i) {
        // SAFETY: forwarded; tails start on a cache line.
        unsafe { _mm512_store_si512(self.0.add(i * LINE_BYTES).cast(), v) }
    }

    /// # Safety
    /// The tail has a line `i`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store_ps(self, i: usize, v: __m512) {
        // SAFETY: forwarded.
        unsafe { self.store(i, _mm512_castps_si512(v)) }
    }

    /// Stores the pairs of minimums in the bytes of `v`, 4 a lane, as pairs of i16 from line `i`.
    ///
    /// # Safety
    /// The unit has lines `i` and `i + 1`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store_pairs(self, i: usize, v: __m512i) {
        let low_byte = _mm512_set1_epi16(0xFF);
        let (even, odd) = (_mm512_and_si512(v, low_byte), _mm512_srli_epi16::<8>(v));
        let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
        let low = _mm512_or_si512(
            _mm512_andnot_si512(upper, even),
            _mm512_slli_epi32::<16>(odd),
        );
        let high = _mm512_or_si512(_mm512_srli_epi32::<16>(even), _mm512_and_si512(odd, upper));
        // SAFETY: forwarded.
        unsafe {
            self.store(i, low);
            self.store(i + 1, high);
        }
    }
}

/// Byte `j` of each lane, zero-extended.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn byte_of(v: __m512i, j: usize) -> __m512i {
    let v = _mm512_srlv_epi32(v, _mm512_set1_epi32(8 * j as i32));
    _mm512_and_si512(v, _mm512_set1_epi32(0xFF))
}

/// Byte `j` of each lane, sign-extended.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn signed_byte_of(v: __m512i, j: usize) -> __m512i {
    _mm512_srai_epi32::<24>(_mm512_sllv_epi32(v, _mm512_set1_epi32(24 - 8 * j as i32)))
}

/// `(v >> shift) & mask` on bytes; `mask` must drop the bits that the shift carries over from neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn field<const SHIFT: u32>(v: __m512i, mask: i8) -> __m512i {
    _mm512_and_si512(_mm512_srli_epi16::<SHIFT>(v), _mm512_set1_epi8(mask))
}

/// Scales and minimums of Q4_K and Q5_K, 4 bytes a lane: scales 0–3, 4–7, minimums 0–3, 4–7. Six bits
/// each in 12 bytes: the low ones whole, the upper four split between the third word and the top
/// bits of the first two.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn six_bit_scales(words: [__m512i; 3]) -> [__m512i; 4] {
    let [scales, mins, upper] = words;
    [
        field::<0>(scales, 0x3F),
        _mm512_or_si512(field::<0>(upper, 0x0F), field::<2>(scales, 0x30)),
        field::<0>(mins, 0x3F),
        _mm512_or_si512(field::<4>(upper, 0x0F), field::<2>(mins, 0x30)),
    ]
}

/// Scales of Q3_K, 4 bytes a lane, biased by 32: the low four bits of 16 scales in two words' nibbles,
/// the upper two in the third word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn split_scales(first: __m512i, second: __m512i, upper: __m512i) -> [__m512i; 4] {
    let top = |v| _mm512_and_si512(v, _mm512_set1_epi8(0x30));
    [
        _mm512_or_si512(field::<0>(first, 0x0F), top(_mm512_slli_epi16::<4>(upper))),
        _mm512_or_si512(field::<0>(second, 0x0F), top(_mm512_slli_epi16::<2>(upper))),
        _mm512_or_si512(field::<4>(first, 0x0F), top(upper)),
        _mm512_or_si512(field::<4>(second, 0x0F), top(_mm512_srli_epi16::<2>(upper))),
    ]
}

/// Writes the scales and minimums of a superblock of the 16 rows: `tail` gets the lines of its layout from the scales on.
///
/// # Safety
/// `block` reaches sixteen rows, `stride` apart; `tail` starts on a cache line and is the caller's.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn header<const FORMAT: u8>(block: *const u8, stride: usize, tail: *mut u8) {
    let tail = Tail(tail);
    // SAFETY: forwarded.
    unsafe {
        match FORMAT {
            Q2_K => header_q2_k(block, stride, tail),
            Q3_K => header_q3_k(block, stride, tail),
            Q4_K | Q5_K => header_q45_k(block, stride, tail),
            _ => header_q6_k(block, stride, tail),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn negated(v: __m512) -> __m512 {
    _mm512_sub_ps(_mm512_set1_ps(-0.0), v)
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn header_q45_k(block: *const u8, stride: usize, tail: Tail) {
    // SAFETY: forwarded.
    unsafe {
        let [d_and_min, words @ ..] = load_rows(block, stride);
        let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d_and_min));
        let d_min = _mm512_srli_epi32::<16>(d_and_min);
        let d_min = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d_min));
        let [low, high, min_low, min_high] = six_bit_scales(words);
        for j in 0..4 {
            tail.store(j, byte_of(low, j));
            tail.store(4 + j, byte_of(high, j));
        }
        tail.store_ps(8, d);
        tail.store_ps(9, negated(d_min));
        tail.store_pairs(10, min_low);
        tail.store_pairs(12, min_high);
    }
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn header_q6_k(block: *const u8, stride: usize, tail: Tail) {
    // SAFETY: forwarded.
    unsafe {
        for (i, v) in load_rows(block.add(192), stride).into_iter().enumerate() {
            for j in 0..4 {
                tail.store(4 * i + j, signed_byte_of(v, j));
            }
        }
        tail.store_ps(16, load_f16(block.add(208), stride));
    }
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn header_q3_k(block: *const u8, stride: usize, tail: Tail) {
    // SAFETY: forwarded.
    unsafe {
        let [_, low, middle, high] = load_rows(block.add(92), stride);
        for (i, v) in split_scales(low, middle, high).into_iter().enumerate() {
            for j in 0..4 {
                tail.store(
                    4 * i + j,
                    _mm512_sub_epi32(byte_of(v, j), _mm512_set1_epi32(32)),
                );
            }
        }
        let d = load_f16(block.add(108), stride);
        tail.store_ps(16, _mm512_mul_ps(d, _mm512_set1_ps(0.125)));
    }
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn header_q2_k(block: *const u8, stride: usize, tail: Tail) {
    // SAFETY: forwarded.
    unsafe {
        for (i, v) in load_rows(block, stride).into_iter().enumerate() {
            let scales = field::<0>(v, 0x0F);
            for j in 0..4 {
                tail.store(4 * i + j, byte_of(scales, j));
            }
            tail.store_pairs(18 + 2 * i, field::<4>(v, 0x0F));
        }
        tail.store_ps(16, load_f16(block.add(80), stride));
        tail.store_ps(17, negated(load_f16(block.add(82), stride)));
    }
}

/// Calls `take` with the levels of a superblock of the 16 rows, 16 columns at a time: their index among
/// the superblock's sixteen, and four lines.
///
/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn levels<const FORMAT: u8>(
    block: *const u8,
    stride: usize,
    ahead: &mut Ahead,
    mut take: impl FnMut(usize, [__m512i; 4]),
) {
    let steps = if matches!(FORMAT, Q4_K | Q5_K) { 8 } else { 4 };
    let lines_a_run = lines_a_step(dtype(FORMAT), 4);
    let mut fifth = [_mm512_setzero_si512(); 4];
    for step in 0..steps {
        ahead.fetch_in_runs((step + 1) * lines_a_run / steps - step * lines_a_run / steps);
        // SAFETY: forwarded; fields are where ggml's `block_*` structures have them.
        unsafe {
            match FORMAT {
                Q2_K => levels_q2_k(block, stride, step, &mut take),
                Q3_K => levels_q3_k(block, stride, step, &mut take),
                Q4_K => levels_q4_k(block, stride, step, &mut take),
                Q5_K => levels_q5_k(block, stride, step, &mut fifth, &mut take),
                _ => levels_q6_k(block, stride, step, &mut take),
            }
        }
    }
}

/// 32 bytes hold two groups of 32 columns, in low and high nibbles; a step is half of them.
///
/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn levels_q4_k(
    block: *const u8,
    stride: usize,
    step: usize,
    take: &mut impl FnMut(usize, [__m512i; 4]),
) {
    // SAFETY: forwarded.
    let rows = unsafe { load_rows(block.add(16 + 16 * step), stride) };
    let to = step / 2 * 4 + step % 2;
    take(to, rows.map(|v| field::<0>(v, 0x0F)));
    take(to + 2, rows.map(|v| field::<4>(v, 0x0F)));
}

/// As Q4_K, first one half of each 32 columns and then the other; bit `g` of a byte of the upper bits is that of the column in group
/// `g`. `fifth` keeps the remaining bits from step to step.
///
/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn levels_q5_k(
    block: *const u8,
    stride: usize,
    step: usize,
    fifth: &mut [__m512i; 4],
    take: &mut impl FnMut(usize, [__m512i; 4]),
) {
    let (side, pair) = (step / 4, step % 4);
    // SAFETY: forwarded.
    let rows = unsafe {
        if pair == 0 {
            *fifth = load_rows(block.add(16 + 16 * side), stride);
        }
        load_rows(block.add(48 + 32 * pair + 16 * side), stride)
    };
    let bit = _mm512_set1_epi8(0x10);
    let (mut low, mut high) = (rows, rows);
    for i in 0..4 {
        let in_low = _mm512_and_si512(_mm512_slli_epi16::<4>(fifth[i]), bit);
        let in_high = _mm512_and_si512(_mm512_slli_epi16::<3>(fifth[i]), bit);
        low[i] = _mm512_or_si512(field::<0>(rows[i], 0x0F), in_low);
        high[i] = _mm512_or_si512(field::<4>(rows[i], 0x0F), in_high);
        fifth[i] = _mm512_srli_epi16::<2>(fifth[i]);
    }
    let to = 4 * pair + side;
    take(to, low);
    take(to + 2, high);
}

/// A step is 16 columns of each of the four groups in half a superblock.
///
/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn levels_q6_k(
    block: *const u8,
    stride: usize,
    step: usize,
    take: &mut impl FnMut(usize, [__m512i; 4]),
) {
    let (half, side) = (step / 2, step % 2);
    // SAFETY: forwarded.
    let (first, second, high) = unsafe {
        let ql = block.add(64 * half + 16 * side);
        let high = load_rows(block.add(128 + 32 * half + 16 * side), stride);
        (load_rows(ql, stride), load_rows(ql.add(32), stride), high)
    };
    let to = 8 * half + side;
    let upper = |v| _mm512_and_si512(v, _mm512_set1_epi8(0x30));
    let join = |low: __m512i, high: __m512i| _mm512_or_si512(low, upper(high));
    take(
        to,
        std::array::from_fn(|i| join(field::<0>(first[i], 0x0F), _mm512_slli_epi16::<4>(high[i]))),
    );
    take(
        to + 2,
        std::array::from_fn(|i| join(field::<0>(second[i], 0x0F), _mm512_slli_epi16::<2>(high[i]))),
    );
    take(
        to + 4,
        std::array::from_fn(|i| join(field::<4>(first[i], 0x0F), high[i])),
    );
    take(
        to + 6,
        std::array::from_fn(|i| join(field::<4>(second[i], 0x0F), _mm512_srli_epi16::<2>(high[i]))),
    );
}

/// Three-bit elements go to bits 3–5, so that the offset is Q6_K's 32 and the scale an eighth. A step is
/// as Q6_K's.
///
/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn levels_q3_k(
    block: *const u8,
    stride: usize,
    step: usize,
    take: &mut impl FnMut(usize, [__m512i; 4]),
) {
    let (half, side) = (step / 2, step % 2);
    // SAFETY: forwarded.
    let (mut low, mut high) = unsafe {
        let low = load_rows(block.add(32 + 16 * step), stride);
        (low, load_rows(block.add(16 * side), stride))
    };
    let first_bit = _mm_cvtsi32_si128(4 * half as i32);
    high = high.map(|v| _mm512_srl_epi16(v, first_bit));
    for group in 0..4 {
        let v = std::array::from_fn(|i| {
            let l = _mm512_and_si512(_mm512_slli_epi16::<3>(low[i]), _mm512_set1_epi8(0x18));
            let h = _mm512_and_si512(_mm512_slli_epi16::<5>(high[i]), _mm512_set1_epi8(0x20));
            _mm512_or_si512(l, h)
        });
        take(8 * half + side + 2 * group, v);
        low = low.map(|v| _mm512_srli_epi16::<2>(v));
        high = high.map(|v| _mm512_srli_epi16::<1>(v));
    }
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn levels_q2_k(
    block: *const u8,
    stride: usize,
    step: usize,
    take: &mut impl FnMut(usize, [__m512i; 4]),
) {
    // SAFETY: forwarded.
    let rows = unsafe { load_rows(block.add(16 + 16 * step), stride) };
    let to = step / 2 * 8 + step % 2;
    take(to, rows.map(|v| field::<0>(v, 3)));
    take(to + 2, rows.map(|v| field::<2>(v, 3)));
    take(to + 4, rows.map(|v| field::<4>(v, 3)));
    take(to + 6, rows.map(|v| field::<6>(v, 3)));
}
