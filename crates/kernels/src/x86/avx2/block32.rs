//! Formats of 32-column blocks: packed into panels, or multiplied with one token by [`super::block32_rows`].

use super::block32_lines::*;
use super::block32_rows;
use super::direct::through_panel;
use super::lines::{HALF_LINE, HALF_ROWS, store, store_ps};
use super::{tile_i8x32, tile_wide};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PackArgs, RowsArgs};

macro_rules! functions_of_format {
    ($($pack:ident $direct:ident $rows:ident $format:ident $layout:ident $tile:path;)*) => {$(
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
            unsafe { through_panel(args, PanelLayout::$layout, $pack, $tile) }
        }

        #[doc = concat!("Multiplies ", stringify!($format), " with one token.")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::RowsFn`].
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(crate) unsafe fn $rows(args: &RowsArgs) {
            // SAFETY: forwarded.
            unsafe { block32_rows::rows::<$format>(args) }
        }
    )*};
}
functions_of_format!(
    q4_0 direct_q4_0 rows_q4_0 Q4_0 Block32 tile_i8x32::tile_four;
    q4_1 direct_q4_1 rows_q4_1 Q4_1 Block32Min tile_i8x32::tile_four_min;
    q5_0 direct_q5_0 rows_q5_0 Q5_0 Block32 tile_i8x32::tile_five;
    q5_1 direct_q5_1 rows_q5_1 Q5_1 Block32Min tile_i8x32::tile_five_min;
    q8_0 direct_q8_0 rows_q8_0 Q8_0 Block32Wide tile_wide::tile;
    q8_1 direct_q8_1 rows_q8_1 Q8_1 Block32Wide tile_wide::tile;
    iq4_nl direct_iq4_nl rows_iq4_nl IQ4_NL Block32Wide tile_wide::tile;
    iq4_xs direct_iq4_xs rows_iq4_xs IQ4_XS Block32Wide tile_wide::tile;
    mxfp4 direct_mxfp4 rows_mxfp4 MXFP4 Block32 tile_i8x32::tile_e2m1;
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
