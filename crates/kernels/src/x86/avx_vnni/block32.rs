//! Formats of 32-column blocks: packed into panels, or multiplied with one token row by row.

use super::tile_i8x32::{tile_8, tile_12, tile_16, tile_128, tile_min};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PANEL_ROWS, PackArgs, PackFn, X32};
use crate::x86::avx2::block32 as panels;
use crate::x86::avx2::block32_lines::*;
use crate::x86::avx2::direct::through_panel;
use crate::x86::avx2::lines::{HALF_LINE, HALF_ROWS, store, store_ps};
use crate::x86::avx2::q4nx as tiled;
use crate::x86::avx2::reduce::sum_i32;
use std::arch::x86_64::*;

macro_rules! functions_of_signed_format {
    ($($pack:ident $format:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack_signed::<$format>(args) }
        }
    )*};
}
functions_of_signed_format!(
    q8_0 Q8_0;
    q8_1 Q8_1;
    iq4_nl IQ4_NL;
    iq4_xs IQ4_XS;
);

macro_rules! direct_of_format {
    ($($direct:ident $format:ident $layout:ident $pack:path, $tile:path;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
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
direct_of_format!(
    direct_q4_0 Q4_0 Block32 panels::q4_0, tile_8;
    direct_q4_1 Q4_1 Block32Min panels::q4_1, tile_min;
    direct_q5_0 Q5_0 Block32 panels::q5_0, tile_16;
    direct_q5_1 Q5_1 Block32Min panels::q5_1, tile_min;
    direct_q8_0 Q8_0 Block32 q8_0, tile_128;
    direct_q8_1 Q8_1 Block32 q8_1, tile_128;
    direct_iq4_nl IQ4_NL Block32 iq4_nl, tile_128;
    direct_iq4_xs IQ4_XS Block32 iq4_xs, tile_128;
    direct_mxfp4 MXFP4 Block32 panels::mxfp4, tile_12;
);

/// Multiplies the additive reading of Q4NX.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(crate) unsafe fn direct_q4nx(args: &DirectArgs) {
    // SAFETY: forwarded.
    unsafe { direct_tiled(args, tiled::direct_q4nx, tiled::q4nx) }
}

/// Multiplies the subtractive reading of Q4NX.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`].
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(crate) unsafe fn direct_q4nx_sub(args: &DirectArgs) {
    // SAFETY: forwarded.
    unsafe { direct_tiled(args, tiled::direct_q4nx_sub, tiled::q4nx_sub) }
}

/// One token waits for memory, so AVX2's function serves it.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`]; `pack` is that of the source's format.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn direct_tiled(args: &DirectArgs, one: unsafe fn(&DirectArgs), pack: PackFn) {
    // SAFETY: forwarded.
    unsafe {
        match args.m {
            1 => one(args),
            _ => through_panel(args, PanelLayout::Block32Min, pack, tile_min),
        }
    }
}

/// Packs signed bytes with 128 added.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack_signed<const FORMAT: u8>(args: &PackArgs) {
    const LAYOUT: PanelLayout = PanelLayout::Block32;
    let source = &args.source;
    let top_bit = _mm256_set1_epi8(i8::MIN);
    let mut ahead = source.ahead;
    for b in 0..source.k / 32 {
        ahead.fetch(lines_ahead(FORMAT));
        for half in 0..2 {
            // SAFETY: block `b` of each row and unit `b` of the panel exist.
            unsafe {
                let rows = source.base.add(half * HALF_ROWS * source.stride);
                let unit = args.panel.add(b * LAYOUT.unit_bytes() + half * HALF_LINE);
                let (d, _) = scales::<FORMAT>(rows, b, source.stride);
                store_ps(unit.add(8 * LINE_BYTES), d);
                let levels = half_lines::<FORMAT>(rows, b, source.stride);
                for (i, v) in levels.into_iter().enumerate() {
                    store(unit.add(i * LINE_BYTES), _mm256_xor_si256(v, top_bit));
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
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
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
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn products<const FORMAT: u8>(row: *const u8, b: usize, stride: usize, x: &X32) -> __m256i {
    let (zero, top_bit) = (_mm256_setzero_si256(), _mm256_set1_epi8(i8::MIN));
    // SAFETY: forwarded.
    let rows: [__m256i; HALF_ROWS] = std::array::from_fn(|r| unsafe {
        let q = _mm256_loadu_si256(x.q.as_ptr().cast());
        let w = row_levels::<FORMAT>(row.add(r * stride), b);
        let w = if is_signed(FORMAT) {
            _mm256_xor_si256(w, top_bit)
        } else {
            w
        };
        _mm256_dpbusd_avx_epi32(zero, w, q)
    });
    let taken_away = if is_signed(FORMAT) {
        128
    } else {
        offset(FORMAT)
    };
    let offset = x.offset_128 / 128 * taken_away;
    _mm256_add_epi32(sum_i32(rows), _mm256_set1_epi32(offset))
}
