//! Kernels for formats of 32-column blocks: packed into panels, or multiplied with a few tokens directly.

use super::block32_lines::*;
use super::block32_rows;
use super::q4nx;
use super::tile_i8x32::add_block;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{
    DIRECT_TOKENS, DirectArgs, GROUP_ROWS, LINE_BYTES, PackArgs, RowsArgs, X32, slot,
};
use std::arch::x86_64::*;

macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $format:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::DirectFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
        pub(crate) unsafe fn $direct(args: &DirectArgs) {
            // SAFETY: forwarded.
            unsafe {
                match args.m {
                    1 => direct::<$format, 1>(args),
                    2 => direct::<$format, 2>(args),
                    3 | 4 => direct::<$format, 4>(args),
                    _ => direct::<$format, DIRECT_TOKENS>(args),
                }
            }
        }
    )*};
}
functions_of_format!(
    q4_0 direct_q4_0 Q4_0;
    q4_1 direct_q4_1 Q4_1;
    q5_0 direct_q5_0 Q5_0;
    q5_1 direct_q5_1 Q5_1;
    q8_0 direct_q8_0 Q8_0;
    q8_1 direct_q8_1 Q8_1;
    iq4_nl direct_iq4_nl IQ4_NL;
    iq4_xs direct_iq4_xs IQ4_XS;
    mxfp4 direct_mxfp4 MXFP4;
    q4nx direct_q4nx Q4NX;
    q4nx_sub direct_q4nx_sub Q4NX_SUB;
);

macro_rules! rows_of_format {
    ($($rows:ident $format:ident;)*) => {$(
        #[doc = concat!("Multiplies ", stringify!($format), " with one token.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { block32_rows::rows::<$format>(args) }
        }
    )*};
}
rows_of_format!(
    rows_q4_0 Q4_0;
    rows_q4_1 Q4_1;
    rows_q5_0 Q5_0;
    rows_q8_0 Q8_0;
    rows_iq4_nl IQ4_NL;
    rows_iq4_xs IQ4_XS;
    rows_mxfp4 MXFP4;
);

/// Multiplies Q4NX with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(crate) unsafe fn rows_q4nx(args: &RowsArgs) {
    // SAFETY: forwarded.
    unsafe { q4nx::rows(args, false) }
}

/// As [`rows_q4nx`], with zero points.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(crate) unsafe fn rows_q4nx_sub(args: &RowsArgs) {
    // SAFETY: forwarded.
    unsafe { q4nx::rows(args, true) }
}

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn pack<const FORMAT: u8>(args: &PackArgs) {
    let layout = if has_min(FORMAT) {
        PanelLayout::Block32Min
    } else {
        PanelLayout::Block32
    };
    let mut ahead = args.source.ahead;
    for b in 0..args.source.k / 32 {
        ahead.fetch(lines_ahead(FORMAT));
        // SAFETY: block `b` of each row and unit `b` of the panel exist.
        unsafe {
            let line = |i: usize| args.panel.add(b * layout.unit_bytes() + i * LINE_BYTES);
            let (d, min) = scales::<FORMAT>(&args.source, b);
            for (i, v) in lines::<FORMAT>(&args.source, b).into_iter().enumerate() {
                _mm512_store_si512(line(i).cast(), v);
            }
            _mm512_store_ps(line(8).cast(), d);
            if has_min(FORMAT) {
                _mm512_store_ps(line(9).cast(), min);
            }
        }
    }
}

/// # Safety
/// As [`crate::matmul::panel::DirectFn`], for at most `T` tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn direct<const FORMAT: u8, const T: usize>(args: &DirectArgs) {
    // SAFETY: tokens below `m` have a record for each block; accumulators have a row for each token.
    unsafe {
        let x: [*const X32; T] =
            std::array::from_fn(|t| args.x.add(slot(t, args.m) * args.x_stride).cast());
        let mut acc: [__m512; T] =
            std::array::from_fn(|t| _mm512_load_ps(args.acc.add(slot(t, args.m) * GROUP_ROWS)));
        let mut ahead = args.source.ahead;
        for b in 0..args.source.k / 32 {
            ahead.fetch(lines_ahead(FORMAT));
            let (d, min) = scales::<FORMAT>(&args.source, b);
            let lines = lines::<FORMAT>(&args.source, b);
            for t in 0..T {
                let x = &*x[t].add(b);
                let start = if has_min(FORMAT) { 0 } else { x.offset_128 };
                // Two chains: a single one would take longer than unpacking.
                let mut dot = [_mm512_set1_epi32(start), _mm512_setzero_si512()];
                for (i, line) in lines.iter().enumerate() {
                    let q = x.q.as_ptr().add(4 * i).cast::<i32>().read_unaligned();
                    dot[i / 4] = _mm512_dpbusd_epi32(dot[i / 4], *line, _mm512_set1_epi32(q));
                }
                let dot = _mm512_add_epi32(dot[0], dot[1]);
                acc[t] = add_block(acc[t], dot, d, x);
                if has_min(FORMAT) {
                    acc[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(x.scaled_sum), acc[t]);
                }
            }
        }
        for (t, acc) in acc.into_iter().enumerate().take(args.m) {
            _mm512_store_ps(args.acc.add(t * GROUP_ROWS), acc);
        }
    }
}
