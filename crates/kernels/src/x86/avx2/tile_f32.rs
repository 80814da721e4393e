//! Tile over f32 panels.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile: twelve sums of sixteen registers.
const TOKENS: usize = 6;

/// Vectors of a panel line.
const VECTORS: usize = 2;

/// The tile of [`crate::matmul::PanelLayout::F32`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn tile(args: &TileArgs) {
    for p in 0..args.n_panels {
        let mut t = 0;
        while t < args.m {
            let tokens = tile_tokens(args.m - t, TOKENS);
            // SAFETY: forwarded, for tokens below `m`.
            unsafe {
                match tokens {
                    6 => tile_of::<6>(args, t, p),
                    5 => tile_of::<5>(args, t, p),
                    4 => tile_of::<4>(args, t, p),
                    3 => tile_of::<3>(args, t, p),
                    2 => tile_of::<2>(args, t, p),
                    _ => tile_of::<1>(args, t, p),
                }
            }
            t += tokens;
        }
    }
}

/// # Safety
/// As [`tile`], with `T` tokens from `t` and panel `p`.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of<const T: usize>(args: &TileArgs, t: usize, p: usize) {
    // SAFETY: a panel has `k` lines; tokens `t..t + T` have `k` columns; accumulators have a row for each token.
    unsafe {
        let x: [*const f32; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        let panel = args.panels.add(p * args.panel_stride);
        let mut sum = [[_mm256_setzero_ps(); VECTORS]; T];
        for c in 0..args.k {
            let w: [__m256; VECTORS] = std::array::from_fn(|v| {
                _mm256_load_ps(panel.add(c * LINE_BYTES).cast::<f32>().add(8 * v))
            });
            for i in 0..T {
                let x = _mm256_set1_ps(*x[i].add(c));
                for v in 0..VECTORS {
                    sum[i][v] = _mm256_fmadd_ps(w[v], x, sum[i][v]);
                }
            }
        }
        for i in 0..T {
            for v in 0..VECTORS {
                let acc = args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS + 8 * v);
                _mm256_store_ps(acc, _mm256_add_ps(_mm256_load_ps(acc), sum[i][v]));
            }
        }
    }
}
