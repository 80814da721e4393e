//! The k-quants: packed into panels, or multiplied with a few tokens directly.
//!
//! A lane of a scale line holds the scale twice, as i16: it multiplies the two halves of a lane of sums.

use super::direct::through_panel;
use super::lines::{
    HALF_LINE, HALF_ROWS, field, load_f16, load_rows, load_u32, store, store_ps, widen_f16,
};
use super::tile_i8x256;
use super::{superblock_products, superblock_rows};
use crate::matmul::PanelLayout;
use crate::matmul::ahead::lines_a_step;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PackArgs, RowsArgs};
use millrace_quant::DType;
use std::arch::x86_64::*;

/// Lines of levels in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! functions_of_format {
    ($($name:ident $direct:ident $rows:ident $dtype:ident $layout:ident $half:ident $format:ident $tile:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($dtype), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $name(args: &PackArgs) {
            let source = &args.source;
            let mut ahead = source.ahead;
            for b in 0..source.k / 256 {
                for half in 0..2 {
                    ahead.fetch(lines_a_step(DType::$dtype, 2));
                    // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
                    unsafe {
                        let rows = source.base.add(half * HALF_ROWS * source.stride);
                        let block = rows.add(b * const { DType::$dtype.block_bytes() });
                        let unit = args.panel.add(b * PanelLayout::$layout.unit_bytes());
                        $half(block, source.stride, HalfSuperblock(unit.add(half * HALF_LINE)));
                    }
                }
            }
        }

        #[doc = concat!("Multiplies ", stringify!($dtype), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe { through_panel(args, PanelLayout::$layout, $name, tile_i8x256::$tile) }
        }

        #[doc = concat!("Multiplies ", stringify!($dtype), " with one token.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { superblock_rows::rows::<{ superblock_products::$format }>(args) }
        }
    )*};
}
functions_of_format!(
    q2_k direct_q2_k rows_q2_k Q2K Super16Min half_q2_k Q2_K tile_q2_k;
    q3_k direct_q3_k rows_q3_k Q3K Super16 half_q3_k Q3_K tile_q3_k;
    q4_k direct_q4_k rows_q4_k Q4K Super32Min half_q4_k Q4_K tile_q4_k;
    q5_k direct_q5_k rows_q5_k Q5K Super32Min half_q5_k Q5_K tile_q5_k;
    q6_k direct_q6_k rows_q6_k Q6K Super16 half_q6_k Q6_K tile_q6_k;
);

/// Half of the lines of one superblock in a panel.
#[derive(Clone, Copy)]
struct HalfSuperblock(*mut u8);

impl HalfSuperblock {
    /// # Safety
    /// The unit has a line `i`.
    #[inline]
    unsafe fn line(self, i: usize) -> *mut u8 {
        // SAFETY: forwarded.
        unsafe { self.0.add(i * LINE_BYTES) }
    }
}

/// Byte `j` of each lane, sign-extended if `SIGNED`, in both halves of the lane.
#[inline]
#[target_feature(enable = "avx2")]
fn twice<const SIGNED: bool>(v: __m256i, j: usize) -> __m256i {
    let v = _mm256_sllv_epi32(v, _mm256_set1_epi32(24 - 8 * j as i32));
    let v = if SIGNED {
        _mm256_srai_epi32::<24>(v)
    } else {
        _mm256_srli_epi32::<24>(v)
    };
    _mm256_or_si256(
        _mm256_slli_epi32::<16>(v),
        _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF)),
    )
}

/// Bytes 0 and 1 of each lane, and bytes 2 and 3, as pairs of i16.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(v: __m256i) -> [__m256i; 2] {
    let even = _mm256_and_si256(v, _mm256_set1_epi16(0xFF));
    let odd = _mm256_srli_epi16::<8>(v);
    [
        _mm256_blend_epi16::<0b10_10_10_10>(even, _mm256_slli_epi32::<16>(odd)),
        _mm256_blend_epi16::<0b10_10_10_10>(_mm256_srli_epi32::<16>(even), odd),
    ]
}

/// The header that Q4_K and Q5_K share: six-bit scales and minimums. The low four are whole; the upper
/// four are split between the third word and the top bits of the first two.
///
/// # Safety
/// `block` reaches eight rows; `unit` is half a unit of [`PanelLayout::Super32Min`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn header(block: *const u8, stride: usize, unit: HalfSuperblock) {
    // SAFETY: the header is 16 bytes; lines as the layout has them.
    unsafe {
        let [d_and_min, scales, mins, upper] = load_rows(block, stride);
        let join = |low, top| _mm256_or_si256(low, top);
        let words = [
            field::<0>(scales, 0x3F),
            join(field::<0>(upper, 0x0F), field::<2>(scales, 0x30)),
        ];
        let min_words = [
            field::<0>(mins, 0x3F),
            join(field::<4>(upper, 0x0F), field::<2>(mins, 0x30)),
        ];
        for (w, (scales, mins)) in words.into_iter().zip(min_words).enumerate() {
            for j in 0..4 {
                store(unit.line(BYTE_LINES + 4 * w + j), twice::<false>(scales, j));
            }
            let [low, high] = pairs(mins);
            store(unit.line(BYTE_LINES + 10 + 2 * w), low);
            store(unit.line(BYTE_LINES + 11 + 2 * w), high);
        }
        let d_min = widen_f16(_mm256_srli_epi32::<16>(d_and_min));
        store_ps(unit.line(BYTE_LINES + 8), widen_f16(d_and_min));
        store_ps(
            unit.line(BYTE_LINES + 9),
            _mm256_sub_ps(_mm256_set1_ps(-0.0), d_min),
        );
    }
}

/// # Safety
/// As [`header`], of [`PanelLayout::Super16Min`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn half_q2_k(block: *const u8, stride: usize, unit: HalfSuperblock) {
    // SAFETY: forwarded; a byte has levels of four groups of 32 columns.
    unsafe {
        for (i, v) in load_rows(block, stride).into_iter().enumerate() {
            for j in 0..4 {
                let scale = twice::<false>(field::<0>(v, 0x0F), j);
                store(unit.line(BYTE_LINES + 4 * i + j), scale);
            }
            let [low, high] = pairs(field::<4>(v, 0x0F));
            store(unit.line(BYTE_LINES + 18 + 2 * i), low);
            store(unit.line(BYTE_LINES + 19 + 2 * i), high);
        }
        let d_min = load_f16(block.add(82), stride);
        let minus_d_min = _mm256_sub_ps(_mm256_set1_ps(-0.0), d_min);
        store_ps(unit.line(BYTE_LINES + 16), load_f16(block.add(80), stride));
        store_ps(unit.line(BYTE_LINES + 17), minus_d_min);
        for part in 0..4 {
            let (half, side) = (part / 2, part % 2);
            let rows = load_rows(block.add(16 + 32 * half + 16 * side), stride);
            for (i, v) in rows.into_iter().enumerate() {
                let to = half * 32 + side * 4 + i;
                store(unit.line(to), field::<0>(v, 3));
                store(unit.line(to + 8), field::<2>(v, 3));
                store(unit.line(to + 16), field::<4>(v, 3));
                store(unit.line(to + 24), field::<6>(v, 3));
            }
        }
    }
}

/// Levels plus 4.
///
/// # Safety
/// As [`header`], of [`PanelLayout::Super16`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn half_q3_k(block: *const u8, stride: usize, unit: HalfSuperblock) {
    let third = |h| _mm256_and_si256(h, _mm256_set1_epi8(4));
    // SAFETY: forwarded; bit `g` of a byte of the third bits is that of the column in group `g`.
    unsafe {
        let low = [
            load_u32(block.add(96), stride),
            load_u32(block.add(100), stride),
        ];
        let upper = load_u32(block.add(104), stride);
        let words = [
            (field::<0>(low[0], 0x0F), _mm256_slli_epi16::<4>(upper)),
            (field::<0>(low[1], 0x0F), _mm256_slli_epi16::<2>(upper)),
            (field::<4>(low[0], 0x0F), upper),
            (field::<4>(low[1], 0x0F), _mm256_srli_epi16::<2>(upper)),
        ];
        for (i, (low, upper)) in words.into_iter().enumerate() {
            let six = _mm256_or_si256(low, field::<0>(upper, 0x30));
            let scales = _mm256_sub_epi8(six, _mm256_set1_epi8(32));
            for j in 0..4 {
                store(unit.line(BYTE_LINES + 4 * i + j), twice::<true>(scales, j));
            }
        }
        store_ps(unit.line(BYTE_LINES + 16), load_f16(block.add(108), stride));
        for side in 0..2 {
            let high = load_rows(block.add(16 * side), stride);
            for half in 0..2 {
                let rows = load_rows(block.add(32 + 32 * half + 16 * side), stride);
                for i in 0..4 {
                    let (v, to) = (rows[i], half * 32 + side * 4 + i);
                    // The bits of groups 0 to 3, or 4 to 7.
                    let h = if half == 0 {
                        high[i]
                    } else {
                        _mm256_srli_epi16::<4>(high[i])
                    };
                    let parts = [
                        (field::<0>(v, 3), _mm256_slli_epi16::<2>(h)),
                        (field::<2>(v, 3), _mm256_slli_epi16::<1>(h)),
                        (field::<4>(v, 3), h),
                        (field::<6>(v, 3), _mm256_srli_epi16::<1>(h)),
                    ];
                    for (g, (low, h)) in parts.into_iter().enumerate() {
                        store(unit.line(to + 8 * g), _mm256_or_si256(low, third(h)));
                    }
                }
            }
        }
    }
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn half_q4_k(block: *const u8, stride: usize, unit: HalfSuperblock) {
    // SAFETY: forwarded; 32 bytes hold two groups of 32 columns, in low and high nibbles.
    unsafe {
        header(block, stride, unit);
        for step in 0..8 {
            let rows = load_rows(block.add(16 + 16 * step), stride);
            let to = step / 2 * 16 + step % 2 * 4;
            for (i, v) in rows.into_iter().enumerate() {
                store(unit.line(to + i), field::<0>(v, 0x0F));
                store(unit.line(to + 8 + i), field::<4>(v, 0x0F));
            }
        }
    }
}

/// # Safety
/// As [`header`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn half_q5_k(block: *const u8, stride: usize, unit: HalfSuperblock) {
    let bit = _mm256_set1_epi8(0x10);
    // SAFETY: forwarded; bit `g` of a byte of the upper bits is that of the column in group `g`.
    unsafe {
        header(block, stride, unit);
        for side in 0..2 {
            let mut fifth = load_rows(block.add(16 + 16 * side), stride);
            for pair in 0..4 {
                let rows = load_rows(block.add(48 + 32 * pair + 16 * side), stride);
                let to = pair * 16 + side * 4;
                for (i, v) in rows.into_iter().enumerate() {
                    let low = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth[i]), bit);
                    let high = _mm256_and_si256(_mm256_slli_epi16::<3>(fifth[i]), bit);
                    store(unit.line(to + i), _mm256_or_si256(field::<0>(v, 0x0F), low));
                    store(
                        unit.line(to + 8 + i),
                        _mm256_or_si256(field::<4>(v, 0x0F), high),
                    );
                    fifth[i] = _mm256_srli_epi16::<2>(fifth[i]);
                }
            }
        }
    }
}

/// # Safety
/// As [`header`], of [`PanelLayout::Super16`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn half_q6_k(block: *const u8, stride: usize, unit: HalfSuperblock) {
    let upper = |v| _mm256_and_si256(v, _mm256_set1_epi8(0x30));
    // SAFETY: forwarded; a part is 16 columns of each of the four groups in half a superblock.
    unsafe {
        for (i, v) in load_rows(block.add(192), stride).into_iter().enumerate() {
            for j in 0..4 {
                store(unit.line(BYTE_LINES + 4 * i + j), twice::<true>(v, j));
            }
        }
        store_ps(unit.line(BYTE_LINES + 16), load_f16(block.add(208), stride));
        for part in 0..4 {
            let (half, side) = (part / 2, part % 2);
            let ql = block.add(64 * half + 16 * side);
            let (first, second) = (load_rows(ql, stride), load_rows(ql.add(32), stride));
            let high = load_rows(block.add(128 + 32 * half + 16 * side), stride);
            let to = half * 32 + side * 4;
            for i in 0..4 {
                let h = high[i];
                let g0 = upper(_mm256_slli_epi16::<4>(h));
                let g1 = upper(_mm256_slli_epi16::<2>(h));
                let g3 = upper(_mm256_srli_epi16::<2>(h));
                store(
                    unit.line(to + i),
                    _mm256_or_si256(field::<0>(first[i], 0x0F), g0),
                );
                store(
                    unit.line(to + 8 + i),
                    _mm256_or_si256(field::<0>(second[i], 0x0F), g1),
                );
                let g2 = upper(h);
                store(
                    unit.line(to + 16 + i),
                    _mm256_or_si256(field::<4>(first[i], 0x0F), g2),
                );
                store(
                    unit.line(to + 24 + i),
                    _mm256_or_si256(field::<4>(second[i], 0x0F), g3),
                );
            }
        }
    }
}
