//! Formats of 32-column blocks: packed into panels, or multiplied with one token row by row.

use super::block32_lines::*;
use super::direct::through_panel;
use super::lines::{HALF_LINE, HALF_ROWS, store, store_ps};
use super::reduce::{sum_i16, sum_i32};
use super::{tile_i8x32, tile_wide};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PANEL_ROWS, PackArgs, X32};
use std::arch::x86_64::*;

macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $format:ident $layout:ident $tile:path;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args, PanelLayout::$layout) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct_row::<$format>(args),
                    _ => through_panel(args, PanelLayout::$layout, $pack, $tile),
                }
            }
        }
    )*};
}
functions_of_format!(
    q4_0 direct_q4_0 Q4_0 Block32 tile_i8x32::tile_four;
    q4_1 direct_q4_1 Q4_1 Block32Min tile_i8x32::tile_four_min;
    q5_0 direct_q5_0 Q5_0 Block32 tile_i8x32::tile_five;
    q5_1 direct_q5_1 Q5_1 Block32Min tile_i8x32::tile_five_min;
    q8_0 direct_q8_0 Q8_0 Block32Wide tile_wide::tile;
    q8_1 direct_q8_1 Q8_1 Block32Wide tile_wide::tile;
    iq4_nl direct_iq4_nl IQ4_NL Block32Wide tile_wide::tile;
    iq4_xs direct_iq4_xs IQ4_XS Block32Wide tile_wide::tile;
    mxfp4 direct_mxfp4 MXFP4 Block32 tile_i8x32::tile_e2m1;
);

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs, layout: PanelLayout) {
    let source = &args.source;
    let lines = layout.unit_lines() - if has_min(FORMAT) { 2 } else { 1 };
    let mut ahead = source.ahead;
    for b in 0..source.k / 32 {
        ahead.fetch(lines_ahead(FORMAT));
        for half in 0..2 {
            // SAFETY: block `b` of each row and unit `b` of the panel exist.
            unsafe {
                let rows = source.base.add(half * HALF_ROWS * source.stride);
                let unit = args.panel.add(b * layout.unit_bytes() + half * HALF_LINE);
                let line = |i: usize| unit.add(i * LINE_BYTES);
                let (d, min) = scales::<FORMAT>(rows, b, source.stride);
                store_ps(line(lines), d);
                if has_min(FORMAT) {
                    store_ps(line(lines + 1), min);
                }
                let levels = half_lines::<FORMAT>(rows, b, source.stride);
                for (i, v) in levels.into_iter().enumerate() {
                    if is_signed(FORMAT) {
                        let [even, odd] = tile_wide::widen(v);
                        store(line(i), even);
                        store(line(8 + i), odd);
                    } else {
                        store(line(i), v);
                    }
                }
            }
        }
    }
}

/// One token: lanes are columns until the whole-number sums of a block are turned so that a lane is a row; those are exact, and
/// what is added to the accumulators is bit for bit what the tiles add.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn direct_row<const FORMAT: u8>(args: &DirectArgs) {
    let source = &args.source;
    let block_bytes = const { bytes_a_block(FORMAT) };
    // Blocks a line fetches.
    let step = if block_bytes > 32 { 1 } else { 2 };
    for first in (0..PANEL_ROWS).step_by(HALF_ROWS) {
        // SAFETY: forwarded: sixteen rows of the chunk's blocks, as many records, sixteen accumulators.
        unsafe {
            let rows = source.base.add(first * source.stride);
            let mut acc = _mm256_load_ps(args.acc.add(first));
            for b in 0..source.k / 32 {
                if b % step == 0 {
                    for r in 0..HALF_ROWS {
                        source.ahead.fetch_at(first + r, b * block_bytes);
                    }
                }
                let x = &*args.x.cast::<X32>().add(b);
                let products = products::<FORMAT>(rows, b, source.stride, x);
                let (d, min) = scales::<FORMAT>(rows, b, source.stride);
                let scale = _mm256_mul_ps(d, _mm256_set1_ps(x.d));
                acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale, acc);
                if has_min(FORMAT) {
                    acc = _mm256_fmadd_ps(min, _mm256_set1_ps(x.scaled_sum), acc);
                }
            }
            _mm256_store_ps(args.acc.add(first), acc);
        }
    }
}

/// Σ w·q of block `b` in each of eight rows.
///
/// # Safety
/// `row` reaches the block in eight rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn products<const FORMAT: u8>(row: *const u8, b: usize, stride: usize, x: &X32) -> __m256i {
    // SAFETY: forwarded.
    unsafe {
        let q = _mm256_loadu_si256(x.q.as_ptr().cast());
        let of_row = |r: usize| {
            let w = row_levels::<FORMAT>(row.add(r * stride), b);
            if is_signed(FORMAT) {
                // The weight's sign moves to the activation: 2 · 128 · 127 is below 2¹⁵.
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
                _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
            } else {
                _mm256_maddubs_epi16(w, q)
            }
        };
        let rows = [
            of_row(0),
            of_row(1),
            of_row(2),
            of_row(3),
            of_row(4),
            of_row(5),
            of_row(6),
            of_row(7),
        ];
        if is_signed(FORMAT) {
            return sum_i32(rows);
        }
        // Four times a pair of products of five bits: 8 · 31 · 127 is below 2¹⁵.
        let offset = (x.offset_128 / 128) * offset(FORMAT);
        _mm256_add_epi32(sum_i16(rows), _mm256_set1_epi32(offset))
    }
}
