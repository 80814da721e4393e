//! Tiles over panels of 256-column superblocks with integer scales.

use super::lines::map;
use super::products::{ByteProducts, DotProd, I8mm, Widening};
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X256, slot, tile_tokens};
use std::arch::aarch64::*;

/// Maximum number of tokens of a register tile of eight rows: eight sums before the scales, eight after them.
const TOKENS: usize = 4;

/// Lines of levels in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! tile_of_level {
    ($($name:ident $name_min:ident $products:ident $features:literal;)*) => {$(
        #[doc = concat!("The tile of [`Layout::Super16`] by [`", stringify!($products), "`].")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile::<$products, 16>(args) }
        }

        #[doc = concat!("The tile of [`Layout::Super32Min`] by [`", stringify!($products), "`].")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name_min(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile::<$products, 32>(args) }
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
unsafe fn tile<P: ByteProducts, const SUB: usize>(args: &TileArgs) {
    for p in 0..args.n_panels {
        for h in 0..2 {
            let mut t = 0;
            while t < args.m {
                let tokens = tile_tokens(args.m - t, TOKENS);
                // SAFETY: forwarded, for tokens below `m`.
                unsafe {
                    match tokens {
                        3 | 4 => tile_of::<P, 4, SUB>(args, t, tokens, p, h),
                        2 => tile_of::<P, 2, SUB>(args, t, tokens, p, h),
                        _ => tile_of::<P, 1, SUB>(args, t, tokens, p, h),
                    }
                }
                t += tokens;
            }
        }
    }
}

/// # Safety
/// As [`tile`], with `tokens` of at most `T` from `t`, half `h` of panel `p`, and a scale for each `SUB` columns.
#[inline(always)]
unsafe fn tile_of<P: ByteProducts, const T: usize, const SUB: usize>(
    args: &TileArgs,
    t: usize,
    tokens: usize,
    p: usize,
    h: usize,
) {
    let layout = if SUB == 32 {
        PanelLayout::Super32Min
    } else {
        PanelLayout::Super16
    };
    // SAFETY: a panel has a unit for each 256 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X256; T] =
            std::array::from_fn(|i| args.x.add((t + slot(i, tokens)) * args.x_stride).cast());
        let panel = args.panels.add(p * args.panel_stride);
        let acc = args.acc.add(t * GROUP_ROWS + p * PANEL_ROWS + 8 * h);
        for b in 0..args.k / 256 {
            let unit = panel.add(b * layout.unit_bytes());
            let half = unit.add(h * LINE_BYTES / 2);
            let q: [*const i8; T] = map(x, |x| (&raw const (*x.add(b)).q).cast());
            let mut sums = [[vdupq_n_s32(0); 2]; T];
            for j in 0..256 / SUB {
                let lines = half.add(j * SUB / 4 * LINE_BYTES);
                let dots = P::of_half::<T>(lines, SUB / 16, map(q, |q| q.add(j * SUB)));
                let scale: *const i32 = half.add((BYTE_LINES + j) * LINE_BYTES).cast();
                let scale = [vld1q_s32(scale), vld1q_s32(scale.add(4))];
                for (sums, dots) in sums.iter_mut().zip(dots) {
                    for v in 0..2 {
                        sums[v] = vmlaq_s32(sums[v], dots[v], scale[v]);
                    }
                }
            }
            for (i, sums) in sums.into_iter().enumerate().take(tokens) {
                let acc = acc.add(i * GROUP_ROWS);
                add_superblock::<SUB>(acc, sums, unit, h, &*x[i].add(b));
            }
        }
    }
}

/// Adds a superblock's scaled sums, and its minimums, to the accumulators of half a panel.
///
/// # Safety
/// `acc` and `unit` are as the tile has them.
#[inline(always)]
unsafe fn add_superblock<const SUB: usize>(
    acc: *mut f32,
    sums: [int32x4_t; 2],
    unit: *const u8,
    h: usize,
    x: &X256,
) {
    let n_scales = 256 / SUB;
    // SAFETY: forwarded.
    unsafe {
        let line = |i: usize| unit.add((BYTE_LINES + n_scales + i) * LINE_BYTES);
        let scale = |i: usize, v: usize| {
            let of_half: *const f32 = line(i).add(h * LINE_BYTES / 2).cast();
            vmulq_n_f32(vld1q_f32(of_half.add(4 * v)), x.d)
        };
        let mut minimums = [vdupq_n_s32(0); 2];
        if SUB == 32 {
            for (j, sum) in x.sums_32.into_iter().enumerate() {
                let half_line = line(2).add(j * LINE_BYTES / 2);
                let mins = vld1q_s16(half_line.add(16 * h).cast());
                minimums[0] = vmlal_n_s16(minimums[0], vget_low_s16(mins), sum);
                minimums[1] = vmlal_high_n_s16(minimums[1], mins, sum);
            }
        }
        for v in 0..2 {
            let at = acc.add(4 * v);
            let mut acc = vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(sums[v]), scale(0, v));
            if SUB == 32 {
                acc = vfmaq_f32(acc, vcvtq_f32_s32(minimums[v]), scale(1, v));
            }
            vst1q_f32(at, acc);
        }
    }
}
