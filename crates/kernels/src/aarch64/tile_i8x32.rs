//! Tiles over panels of 32-column blocks.

use super::lines::map;
use super::products::{ByteProducts, DotProd, I8mm, Widening};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, slot, tile_tokens};
use std::arch::aarch64::*;

/// Most tokens of a register tile of eight rows: sixteen sums of 32 registers.
const TOKENS: usize = 8;

macro_rules! tile_of_level {
    ($($name:ident $name_min:ident $products:ident $features:literal;)*) => {$(
        #[doc = concat!("The tile of [`Layout::Block32`] by [`", stringify!($products), "`].")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile::<$products, false>(args) }
        }

        #[doc = concat!("The tile of [`Layout::Block32Min`] by [`", stringify!($products), "`].")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name_min(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile::<$products, true>(args) }
        }
    )*};
}
tile_of_level!(
    neon neon_min Widening "neon";
    dotprod dotprod_min DotProd "neon,dotprod";
    i8mm i8mm_min I8mm "neon,dotprod,i8mm";
);

/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[inline(always)]
unsafe fn tile<P: ByteProducts, const MIN: bool>(args: &TileArgs) {
    for p in 0..args.n_panels {
        for h in 0..2 {
            let mut t = 0;
            while t < args.m {
                let tokens = tile_tokens(args.m - t, TOKENS);
                // SAFETY: forwarded, for tokens below `m`.
                unsafe {
                    match tokens {
                        7 | 8 => tile_of::<P, 8, MIN>(args, t, tokens, p, h),
                        5 | 6 => tile_of::<P, 6, MIN>(args, t, tokens, p, h),
                        3 | 4 => tile_of::<P, 4, MIN>(args, t, tokens, p, h),
                        2 => tile_of::<P, 2, MIN>(args, t, tokens, p, h),
                        _ => tile_of::<P, 1, MIN>(args, t, tokens, p, h),
                    }
                }
                t += tokens;
            }
        }
    }
}

/// # Safety
/// As [`tile`], with `tokens` of at most `T` from `t`, and half `h` of panel `p`.
#[inline(always)]
unsafe fn tile_of<P: ByteProducts, const T: usize, const MIN: bool>(
    args: &TileArgs,
    t: usize,
    tokens: usize,
    p: usize,
    h: usize,
) {
    let layout = if MIN {
        PanelLayout::Block32Min
    } else {
        PanelLayout::Block32
    };
    // SAFETY: a panel has a unit for each 32 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X32; T] =
            std::array::from_fn(|i| args.x.add((t + slot(i, tokens)) * args.x_stride).cast());
        let panel = args.panels.add(p * args.panel_stride + h * LINE_BYTES / 2);
        let acc = args.acc.add(t * GROUP_ROWS + p * PANEL_ROWS + 8 * h);
        for b in 0..args.k / 32 {
            let unit = panel.add(b * layout.unit_bytes());
            let sums = P::of_half::<T>(unit, 2, map(x, |x| (&raw const (*x.add(b)).q).cast()));
            // `v` also indexes `sums`: its halves are those of a line.
            #[allow(clippy::needless_range_loop)]
            for v in 0..2 {
                let line = |i: usize| unit.add(i * LINE_BYTES).cast::<f32>().add(4 * v);
                let d = vld1q_f32(line(8));
                for i in 0..tokens {
                    let at = acc.add(i * GROUP_ROWS + 4 * v);
                    let x = &*x[i].add(b);
                    let scale = vmulq_n_f32(d, x.d);
                    let mut acc = vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(sums[i][v]), scale);
                    if MIN {
                        acc = vfmaq_f32(acc, vld1q_f32(line(9)), vdupq_n_f32(x.scaled_sum));
                    }
                    vst1q_f32(at, acc);
                }
            }
        }
    }
}
