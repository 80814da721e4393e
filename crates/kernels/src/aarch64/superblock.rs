//! The k-quants: packed into panels, or multiplied with one token four rows at a time.
//!
//! In [`PanelLayout::Super32Min`], the four lines of minimums hold eight times sixteen i16.

use super::lines::{
    QUARTER_LINE, QUARTER_ROWS, QUARTERS, add_across, four_rows, map, store_sixteen, store_some,
};
use super::products::{ByteProducts, DotProd, Widening};
use super::superblock_levels::*;
use crate::matmul::PanelLayout;
use crate::matmul::ahead::lines_a_step;
use crate::matmul::panel::{LINE_BYTES, PANEL_ROWS, PackArgs, RowsArgs, X256};
use std::arch::aarch64::*;

/// Lines of levels in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! functions_of_format {
    ($($pack:ident $pairs:ident $rows:ident $dot_rows:ident $format:ident;)*) => {$(
        #[doc = concat!("Packs ", stringify!($format), " for dot products.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        pub(crate) unsafe fn $pack(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format, false>(args) }
        }

        #[doc = concat!("Packs ", stringify!($format), " for FEAT_I8MM.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::PackFn`].
        pub(crate) unsafe fn $pairs(args: &PackArgs) {
            // SAFETY: forwarded.
            unsafe { pack::<$format, true>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { rows::<Widening, $format>(args) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), " with FEAT_DotProd.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = "neon,dotprod")]
        pub(crate) unsafe fn $dot_rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { rows::<DotProd, $format>(args) }
        }
    )*};
}
functions_of_format!(
    q4_k q4_k_pairs rows_q4_k dot_rows_q4_k Q4_K;
    q5_k q5_k_pairs rows_q5_k dot_rows_q5_k Q5_K;
    q6_k q6_k_pairs rows_q6_k dot_rows_q6_k Q6_K;
);

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline(always)]
unsafe fn pack<const FORMAT: u8, const PAIRS: bool>(args: &PackArgs) {
    let source = &args.source;
    let layout = if FORMAT == Q6_K {
        PanelLayout::Super16
    } else {
        PanelLayout::Super32Min
    };
    let mut ahead = source.ahead;
    for b in 0..source.k / 256 {
        for g in 0..QUARTERS {
            ahead.fetch(lines_a_step(dtype(FORMAT), QUARTERS));
            // SAFETY: superblock `b` of each row and unit `b` of the panel exist.
            unsafe {
                let rows = four_rows(source.base, source.stride, g * QUARTER_ROWS, PANEL_ROWS);
                let blocks = map(rows, |row| row.add(b * block_bytes(FORMAT)));
                let unit = args.panel.add(b * layout.unit_bytes());
                store_header::<FORMAT>(&header::<FORMAT>(blocks), unit, g);
                each_32::<FORMAT>(
                    blocks,
                    #[inline(always)]
                    |j, [a, b, c, d]| {
                        for s in 0..2 {
                            let line = unit.add((8 * j + 4 * s) * LINE_BYTES + g * QUARTER_LINE);
                            store_sixteen::<PAIRS>(line, [a[s], b[s], c[s], d[s]]);
                        }
                    },
                );
            }
        }
    }
}

/// # Safety
/// `unit` is one of the format's layout, `g` a quarter.
#[inline(always)]
unsafe fn store_header<const FORMAT: u8>(header: &SuperblockHeader, unit: *mut u8, g: usize) {
    let n_scales = 256 / sub_k(FORMAT);
    // SAFETY: forwarded.
    unsafe {
        let line = |i: usize| unit.add((BYTE_LINES + i) * LINE_BYTES);
        for (j, scale) in header.scales[..n_scales].iter().enumerate() {
            vst1q_s32(line(j).add(g * QUARTER_LINE).cast(), *scale);
        }
        vst1q_f32(line(n_scales).add(g * QUARTER_LINE).cast(), header.d);
        if FORMAT != Q6_K {
            let d_min = line(n_scales + 1).add(g * QUARTER_LINE);
            vst1q_f32(d_min.cast(), header.minus_d_min);
            for (j, min) in header.mins.iter().enumerate() {
                let half_line = line(n_scales + 2).add(j * LINE_BYTES / 2);
                vst1_s16(half_line.add(g * QUARTER_LINE / 2).cast(), vmovn_s32(*min));
            }
        }
    }
}

/// One token: lanes are columns until the whole-number sums are transposed so that a lane is a row. Those sums are exact, so the
/// accumulators receive the same bits as from the tiles.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline(always)]
unsafe fn rows<P: ByteProducts, const FORMAT: u8>(args: &RowsArgs) {
    for row in (0..args.n).step_by(QUARTER_ROWS) {
        // SAFETY: forwarded: rows of whole superblocks, a record for each.
        unsafe {
            let rows = four_rows(args.base, args.row_bytes, row, args.n);
            let mut acc = vdupq_n_f32(0.0);
            for b in 0..args.k / 256 {
                let blocks = map(rows, |row| row.add(b * block_bytes(FORMAT)));
                let x = &*args.x.cast::<X256>().add(b);
                let header = header::<FORMAT>(blocks);
                let sum = products::<P, FORMAT>(blocks, &header, x);
                acc = vfmaq_f32(acc, vcvtq_f32_s32(sum), vmulq_n_f32(header.d, x.d));
                if FORMAT != Q6_K {
                    let mut minimums = vdupq_n_s32(0);
                    for (min, sum) in header.mins.into_iter().zip(x.sums_32) {
                        minimums = vmlaq_n_s32(minimums, min, i32::from(sum));
                    }
                    let scale = vmulq_n_f32(header.minus_d_min, x.d);
                    acc = vfmaq_f32(acc, vcvtq_f32_s32(minimums), scale);
                }
            }
            store_some(args.out.add(row), acc, args.n - row);
        }
    }
}

/// Σ s·Σ w·q of a superblock of four rows.
///
/// # Safety
/// The CPU has the level; each of `blocks` is a superblock.
#[inline(always)]
unsafe fn products<P: ByteProducts, const FORMAT: u8>(
    blocks: [*const u8; 4],
    header: &SuperblockHeader,
    x: &X256,
) -> int32x4_t {
    // SAFETY: forwarded; 32 columns of the record.
    unsafe {
        let zero = vdupq_n_s32(0);
        let mut sum = zero;
        each_32::<FORMAT>(
            blocks,
            #[inline(always)]
            |j, levels| {
                let q = x.q.as_ptr().add(32 * j);
                let q = [vld1q_s8(q), vld1q_s8(q.add(16))];
                if FORMAT == Q6_K {
                    for s in 0..2 {
                        let dots = add_across(map(levels, |w| P::dot(zero, w[s], q[s])));
                        sum = vmlaq_s32(sum, dots, header.scales[2 * j + s]);
                    }
                } else {
                    let of_row = |w: [int8x16_t; 2]| P::dot(P::dot(zero, w[0], q[0]), w[1], q[1]);
                    let dots = add_across(map(levels, of_row));
                    sum = vmlaq_s32(sum, dots, header.scales[j]);
                }
            },
        );
        sum
    }
}
