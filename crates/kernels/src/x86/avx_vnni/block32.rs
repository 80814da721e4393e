//! Formats of 32-column blocks in panels. One token waits for memory, so AVX2's functions serve it: they add the same, bit for bit.

use super::tile_i8x32::{tile_8, tile_12, tile_16, tile_128, tile_min};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PackArgs, PackFn};
use crate::x86::avx2::block32 as panels;
use crate::x86::avx2::block32_lines::*;
use crate::x86::avx2::direct::through_panel;
use crate::x86::avx2::lines::{HALF_LINE, HALF_ROWS, store, store_ps};
use crate::x86::avx2::q4nx as tiled;
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
    ($($direct:ident $format:literal $layout:ident $pack:path, $tile:path;)*) => {$(
        #[doc = concat!("Multiplies ", $format, ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe { through_panel(args, PanelLayout::$layout, $pack, $tile) }
        }
    )*};
}
direct_of_format!(
    direct_q4_0 "Q4_0" Block32 panels::q4_0, tile_8;
    direct_q4_1 "Q4_1" Block32Min panels::q4_1, tile_min;
    direct_q5_0 "Q5_0" Block32 panels::q5_0, tile_16;
    direct_q5_1 "Q5_1" Block32Min panels::q5_1, tile_min;
    direct_q8_0 "Q8_0" Block32 q8_0, tile_128;
    direct_q8_1 "Q8_1" Block32 q8_1, tile_128;
    direct_iq4_nl "IQ4_NL" Block32 iq4_nl, tile_128;
    direct_iq4_xs "IQ4_XS" Block32 iq4_xs, tile_128;
    direct_mxfp4 "MXFP4" Block32 panels::mxfp4, tile_12;
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
