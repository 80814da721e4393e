//! Formats of 32-column blocks: packed into panels, or multiplied with one token four rows at a time.

use super::block32_levels::*;
use super::lines::{
    QUARTER_LINE, QUARTER_ROWS, QUARTERS, add_across, four_rows, map, store_sixteen, store_some,
};
use super::products::{ByteProducts, DotProd, Widening};
use crate::matmul::PanelLayout;
use crate::matmul::ahead::lines_a_step;
use crate::matmul::panel::{LINE_BYTES, PANEL_ROWS, PackArgs, RowsArgs, X32};
use std::arch::aarch64::*;

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
    q4_0 q4_0_pairs rows_q4_0 dot_rows_q4_0 Q4_0;
    q4_1 q4_1_pairs rows_q4_1 dot_rows_q4_1 Q4_1;
    q5_0 q5_0_pairs rows_q5_0 dot_rows_q5_0 Q5_0;
    q5_1 q5_1_pairs rows_q5_1 dot_rows_q5_1 Q5_1;
    q8_0 q8_0_pairs rows_q8_0 dot_rows_q8_0 Q8_0;
    q8_1 q8_1_pairs rows_q8_1 dot_rows_q8_1 Q8_1;
    iq4_nl iq4_nl_pairs rows_iq4_nl dot_rows_iq4_nl IQ4_NL;
    mxfp4 mxfp4_pairs rows_mxfp4 dot_rows_mxfp4 MXFP4;
);

/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline(always)]
unsafe fn pack<const FORMAT: u8, const PAIRS: bool>(args: &PackArgs) {
    let source = &args.source;
    let layout = if has_min(FORMAT) {
        PanelLayout::Block32Min
    } else {
        PanelLayout::Block32
    };
    let mut ahead = source.ahead;
    for b in 0..source.k / 32 {
        ahead.fetch(lines_a_step(dtype(FORMAT), 1));
        for g in 0..QUARTERS {
            // SAFETY: block `b` of each row and unit `b` of the panel exist.
            unsafe {
                let rows = four_rows(source.base, source.stride, g * QUARTER_ROWS, PANEL_ROWS);
                let blocks = map(rows, |row| row.add(b * block_bytes(FORMAT)));
                let unit = args.panel.add(b * layout.unit_bytes() + g * QUARTER_LINE);
                let (d, min) = scales::<FORMAT>(blocks);
                vst1q_f32(unit.add(8 * LINE_BYTES).cast(), d);
                if has_min(FORMAT) {
                    vst1q_f32(unit.add(9 * LINE_BYTES).cast(), min);
                }
                let [a, b, c, d] = map(blocks, |block| levels::<FORMAT>(block));
                for s in 0..2 {
                    let line = unit.add(4 * s * LINE_BYTES);
                    store_sixteen::<PAIRS>(line, [a[s], b[s], c[s], d[s]]);
                }
            }
        }
    }
}

/// One token: lanes are columns until the whole-number sums of a block are transposed so that a lane is a row. Those sums are
/// exact, so the accumulators receive the same bits as from the tiles.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline(always)]
unsafe fn rows<P: ByteProducts, const FORMAT: u8>(args: &RowsArgs) {
    for row in (0..args.n).step_by(QUARTER_ROWS) {
        // SAFETY: forwarded: rows of whole blocks, a record for each.
        unsafe {
            let rows = four_rows(args.base, args.row_bytes, row, args.n);
            let mut acc = vdupq_n_f32(0.0);
            for b in 0..args.k / 32 {
                let blocks = map(rows, |row| row.add(b * block_bytes(FORMAT)));
                let x = &*args.x.cast::<X32>().add(b);
                let q = [vld1q_s8(x.q.as_ptr()), vld1q_s8(x.q.as_ptr().add(16))];
                let products = add_across(map(blocks, |block| {
                    let w = levels::<FORMAT>(block);
                    P::dot(P::dot(vdupq_n_s32(0), w[0], q[0]), w[1], q[1])
                }));
                let (d, min) = scales::<FORMAT>(blocks);
                let scale = vmulq_n_f32(d, x.d);
                acc = vfmaq_f32(acc, vcvtq_f32_s32(products), scale);
                if has_min(FORMAT) {
                    acc = vfmaq_f32(acc, min, vdupq_n_f32(x.scaled_sum));
                }
            }
            store_some(args.out.add(row), acc, args.n - row);
        }
    }
}
