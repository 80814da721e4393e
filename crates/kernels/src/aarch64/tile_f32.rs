//! Tile over f32 panels.

use super::lines::map;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, slot, tile_tokens};
use std::arch::aarch64::*;

/// Most tokens of a register tile of eight rows: sixteen sums of 32 registers.
const TOKENS: usize = 8;

/// The tile of [`crate::matmul::PanelLayout::F32`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
pub(crate) unsafe fn tile(args: &TileArgs) {
    for p in 0..args.n_panels {
        for h in 0..2 {
            let mut t = 0;
            while t < args.m {
                let tokens = tile_tokens(args.m - t, TOKENS);
                // SAFETY: forwarded, for tokens below `m`.
                unsafe {
                    match tokens {
                        7 | 8 => tile_of::<8>(args, t, tokens, p, h),
                        5 | 6 => tile_of::<6>(args, t, tokens, p, h),
                        3 | 4 => tile_of::<4>(args, t, tokens, p, h),
                        2 => tile_of::<2>(args, t, tokens, p, h),
                        _ => tile_of::<1>(args, t, tokens, p, h),
                    }
                }
                t += tokens;
            }
        }
    }
}

/// # Safety
/// As [`tile`], with `tokens` of at most `T` from `t`, and half `h` of panel `p`.
unsafe fn tile_of<const T: usize>(args: &TileArgs, t: usize, tokens: usize, p: usize, h: usize) {
    // SAFETY: a panel has `k` lines; tokens `t..t + tokens` have `k` columns; accumulators have a row for each token.
    unsafe {
        let x: [*const f32; T] =
            std::array::from_fn(|i| args.x.add((t + slot(i, tokens)) * args.x_stride).cast());
        let panel = args.panels.add(p * args.panel_stride + h * LINE_BYTES / 2);
        let line = |column: usize| {
            let line: *const f32 = panel.add(column * LINE_BYTES).cast();
            [vld1q_f32(line), vld1q_f32(line.add(4))]
        };
        let mut sums = [[vdupq_n_f32(0.0); 2]; T];
        let fours = args.k / 4 * 4;
        for first in (0..fours).step_by(4) {
            let x = map(x, |x| vld1q_f32(x.add(first)));
            add_column::<T, 0>(&mut sums, line(first), &x);
            add_column::<T, 1>(&mut sums, line(first + 1), &x);
            add_column::<T, 2>(&mut sums, line(first + 2), &x);
            add_column::<T, 3>(&mut sums, line(first + 3), &x);
        }
        for column in fours..args.k {
            let w = line(column);
            for (sums, x) in sums.iter_mut().zip(x) {
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = vfmaq_n_f32(*sum, w, *x.add(column));
                }
            }
        }
        let acc = args.acc.add(t * GROUP_ROWS + p * PANEL_ROWS + 8 * h);
        for (i, sums) in sums.into_iter().enumerate().take(tokens) {
            for (v, sum) in sums.into_iter().enumerate() {
                let at = acc.add(i * GROUP_ROWS + 4 * v);
                vst1q_f32(at, vaddq_f32(vld1q_f32(at), sum));
            }
        }
    }
}

/// Adds the products of eight rows of a column with lane `LANE` of each token's vector.
#[inline(always)]
fn add_column<const T: usize, const LANE: i32>(
    sums: &mut [[float32x4_t; 2]; T],
    w: [float32x4_t; 2],
    x: &[float32x4_t; T],
) {
    for (sums, x) in sums.iter_mut().zip(x) {
        // SAFETY: every AArch64 has these.
        unsafe {
            sums[0] = vfmaq_laneq_f32::<LANE>(sums[0], w[0], *x);
            sums[1] = vfmaq_laneq_f32::<LANE>(sums[1], w[1], *x);
        }
    }
}
