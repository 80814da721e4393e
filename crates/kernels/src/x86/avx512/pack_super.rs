//! Packs the k-quants: superblocks of 256 columns with integer scales.

use super::transpose::{load_f16, load_rows};
use crate::matmul::Layout;
use crate::matmul::panel::{LINE_BYTES, PackArgs, lines_a_step};
use millrace_quant::DType;
use std::arch::x86_64::*;

/// Lines of bytes in a unit; scales follow.
const BYTE_LINES: usize = 64;

/// The lines of one superblock in a panel.
#[derive(Clone, Copy)]
struct Unit(*mut u8);

impl Unit {
    /// # Safety
    /// The unit has a line `i`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store(self, i: usize, v: __m512i) {
        // SAFETY: forwarded; units start on a cache line.
        unsafe { _mm512_store_si512(self.0.add(i * LINE_BYTES).cast(), v) }
    }

    /// # Safety
    /// The unit has a line `i`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn store_ps(self, i: usize, v: __m512) {
        // SAFETY: forwarded; units start on a cache line.
        unsafe { _mm512_store_ps(self.0.add(i * LINE_BYTES).cast(), v) }
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
        let high = _mm512_or_si512(
            _mm512_srli_epi32::<16>(even),
            _mm512_and_si512(odd, upper),
        );
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

/// `(v >> shift) & mask` on bytes; `mask` must drop what the shift carries over from neighbours.
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

/// The header that Q4_K and Q5_K share.
///
/// # Safety
/// `block` reaches sixteen rows; `unit` is a unit of [`Layout::Super32Min`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn pack_header(block: *const u8, stride: usize, unit: Unit) {
    // SAFETY: the header is 16 bytes; lines as [`Layout::Super32Min`] has them.
    unsafe {
        let [d_and_min, words @ ..] = load_rows(block, stride);
        let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d_and_min));
        let d_min = _mm512_srli_epi32::<16>(d_and_min);
        let d_min = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d_min));
        let [low, high, min_low, min_high] = six_bit_scales(words);
        for j in 0..4 {
            unit.store(BYTE_LINES + j, byte_of(low, j));
            unit.store(BYTE_LINES + 4 + j, byte_of(high, j));
        }
        unit.store_ps(BYTE_LINES + 8, d);
        unit.store_ps(BYTE_LINES + 9, _mm512_sub_ps(_mm512_set1_ps(-0.0), d_min));
        unit.store_pairs(BYTE_LINES + 10, min_low);
        unit.store_pairs(BYTE_LINES + 12, min_high);
    }
}

/// Packs Q4_K.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(crate) unsafe fn q4_k(args: &PackArgs) {
    let mut ahead = args.ahead;
    for b in 0..args.k / 256 {
        // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
        unsafe {
            let block = args.base.add(b * DType::Q4K.block_bytes());
            let unit = Unit(args.panel.add(b * Layout::Super32Min.unit_bytes()));
            pack_header(block, args.stride, unit);
            for half in 0..8 {
                ahead.fetch(lines_a_step(DType::Q4K, 8));
                let rows = load_rows(block.add(16 + 16 * half), args.stride);
                // 32 bytes hold two groups of 32 columns, in low and high nibbles.
                let to = half / 2 * 16 + half % 2 * 4;
                for (i, v) in rows.into_iter().enumerate() {
                    unit.store(to + i, field::<0>(v, 0x0F));
                    unit.store(to + 8 + i, field::<4>(v, 0x0F));
                }
            }
        }
    }
}

/// Packs Q5_K.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(crate) unsafe fn q5_k(args: &PackArgs) {
    let mut ahead = args.ahead;
    for b in 0..args.k / 256 {
        // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
        unsafe {
            let block = args.base.add(b * DType::Q5K.block_bytes());
            let unit = Unit(args.panel.add(b * Layout::Super32Min.unit_bytes()));
            pack_header(block, args.stride, unit);
            for side in 0..2 {
                // Bit g of a byte is the fifth bit of that column in group g.
                let mut fifth = load_rows(block.add(16 + 16 * side), args.stride);
                for pair in 0..4 {
                    ahead.fetch(lines_a_step(DType::Q5K, 8));
                    let qs = block.add(48 + 32 * pair + 16 * side);
                    let rows = load_rows(qs, args.stride);
                    let to = pair * 16 + side * 4;
                    for (i, v) in rows.into_iter().enumerate() {
                        let low = _mm512_slli_epi16::<4>(fifth[i]);
                        let high = _mm512_slli_epi16::<3>(fifth[i]);
                        let bit = _mm512_set1_epi8(0x10);
                        let low = _mm512_and_si512(low, bit);
                        let high = _mm512_and_si512(high, bit);
                        unit.store(to + i, _mm512_or_si512(field::<0>(v, 0x0F), low));
                        unit.store(to + 8 + i, _mm512_or_si512(field::<4>(v, 0x0F), high));
                        fifth[i] = _mm512_srli_epi16::<2>(fifth[i]);
                    }
                }
            }
        }
    }
}

/// Packs Q6_K.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(crate) unsafe fn q6_k(args: &PackArgs) {
    let mut ahead = args.ahead;
    for b in 0..args.k / 256 {
        // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
        unsafe {
            let block = args.base.add(b * DType::Q6K.block_bytes());
            let unit = Unit(args.panel.add(b * Layout::Super16.unit_bytes()));
            for (i, v) in load_rows(block.add(192), args.stride).into_iter().enumerate() {
                for j in 0..4 {
                    unit.store(BYTE_LINES + 4 * i + j, signed_byte_of(v, j));
                }
            }
            unit.store_ps(BYTE_LINES + 16, load_f16(block.add(208), args.stride));
            for part in 0..4 {
                ahead.fetch(lines_a_step(DType::Q6K, 4));
                // Half a superblock's 32 columns × 4 groups, 16 columns at a time.
                let (half, side) = (part / 2, part % 2);
                let ql = block.add(64 * half + 16 * side);
                let first = load_rows(ql, args.stride);
                let second = load_rows(ql.add(32), args.stride);
                let high = load_rows(block.add(128 + 32 * half + 16 * side), args.stride);
                let to = half * 32 + side * 4;
                for i in 0..4 {
                    let h = high[i];
                    let two = _mm512_set1_epi8(0x30);
                    let g0 = _mm512_and_si512(_mm512_slli_epi16::<4>(h), two);
                    let g1 = _mm512_and_si512(_mm512_slli_epi16::<2>(h), two);
                    let g2 = _mm512_and_si512(h, two);
                    let g3 = field::<2>(h, 0x30);
                    unit.store(to + i, _mm512_or_si512(field::<0>(first[i], 0x0F), g0));
                    unit.store(to + 8 + i, _mm512_or_si512(field::<0>(second[i], 0x0F), g1));
                    unit.store(to + 16 + i, _mm512_or_si512(field::<4>(first[i], 0x0F), g2));
                    unit.store(to + 24 + i, _mm512_or_si512(field::<4>(second[i], 0x0F), g3));
                }
            }
        }
    }
}

/// Packs Q3_K. Three-bit elements go to bits 3–5, so that the offset is Q6_K's 32 and the scale an
/// eighth.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(crate) unsafe fn q3_k(args: &PackArgs) {
    let mut ahead = args.ahead;
    for b in 0..args.k / 256 {
        // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
        unsafe {
            let block = args.base.add(b * DType::Q3K.block_bytes());
            let unit = Unit(args.panel.add(b * Layout::Super16.unit_bytes()));
            let [_, low, middle, high] = load_rows(block.add(92), args.stride);
            for (i, v) in split_scales(low, middle, high).into_iter().enumerate() {
                for j in 0..4 {
                    let scale = _mm512_sub_epi32(byte_of(v, j), _mm512_set1_epi32(32));
                    unit.store(BYTE_LINES + 4 * i + j, scale);
                }
            }
            let d = load_f16(block.add(108), args.stride);
            unit.store_ps(BYTE_LINES + 16, _mm512_mul_ps(d, _mm512_set1_ps(0.125)));
            for side in 0..2 {
                let mut high = load_rows(block.add(16 * side), args.stride);
                for half in 0..2 {
                    ahead.fetch(lines_a_step(DType::Q3K, 4));
                    let qs = block.add(32 + 32 * half + 16 * side);
                    let mut low = load_rows(qs, args.stride);
                    for group in 0..4 {
                        for i in 0..4 {
                            let l = _mm512_slli_epi16::<3>(low[i]);
                            let l = _mm512_and_si512(l, _mm512_set1_epi8(0x18));
                            let h = _mm512_slli_epi16::<5>(high[i]);
                            let h = _mm512_and_si512(h, _mm512_set1_epi8(0x20));
                            let to = half * 32 + group * 8 + side * 4 + i;
                            unit.store(to, _mm512_or_si512(l, h));
                            low[i] = _mm512_srli_epi16::<2>(low[i]);
                            high[i] = _mm512_srli_epi16::<1>(high[i]);
                        }
                    }
                }
            }
        }
    }
}

/// Packs Q2_K.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(crate) unsafe fn q2_k(args: &PackArgs) {
    let mut ahead = args.ahead;
    for b in 0..args.k / 256 {
        // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
        unsafe {
            let block = args.base.add(b * DType::Q2K.block_bytes());
            let unit = Unit(args.panel.add(b * Layout::Super16Min.unit_bytes()));
            for (i, v) in load_rows(block, args.stride).into_iter().enumerate() {
                let scales = field::<0>(v, 0x0F);
                for j in 0..4 {
                    unit.store(BYTE_LINES + 4 * i + j, byte_of(scales, j));
                }
                unit.store_pairs(BYTE_LINES + 18 + 2 * i, field::<4>(v, 0x0F));
            }
            unit.store_ps(BYTE_LINES + 16, load_f16(block.add(80), args.stride));
            let d_min = load_f16(block.add(82), args.stride);
            unit.store_ps(BYTE_LINES + 17, _mm512_sub_ps(_mm512_set1_ps(-0.0), d_min));
            for part in 0..4 {
                let (half, side) = (part / 2, part % 2);
                ahead.fetch(lines_a_step(DType::Q2K, 4));
                let qs = block.add(16 + 32 * half + 16 * side);
                let to = half * 32 + side * 4;
                for (i, v) in load_rows(qs, args.stride).into_iter().enumerate() {
                    unit.store(to + i, field::<0>(v, 3));
                    unit.store(to + 8 + i, field::<2>(v, 3));
                    unit.store(to + 16 + i, field::<4>(v, 3));
                    unit.store(to + 24 + i, field::<6>(v, 3));
                }
            }
        }
    }
}
