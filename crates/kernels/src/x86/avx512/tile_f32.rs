//! Tiles over f32 and bf16 panels.
//!
//! A register tile is up to 8 tokens × 2 panels: sixteen sums cover the latency of two fused
//! multiply-adds a cycle. Each weight line is loaded once for all tokens.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile.
const TOKENS: usize = 8;

/// The f32 tile ([`crate::matmul::PanelLayout::F32`]).
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn tile(args: &TileArgs) {
    let mut t = 0;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        // SAFETY: forwarded, for tokens below `m`.
        unsafe {
            match (tokens, args.n_panels) {
                (8, 2) => tile_of::<8, 2>(args, t),
                (7, 2) => tile_of::<7, 2>(args, t),
                (6, 2) => tile_of::<6, 2>(args, t),
                (5, 2) => tile_of::<5, 2>(args, t),
                (4, 2) => tile_of::<4, 2>(args, t),
                (3, 2) => tile_of::<3, 2>(args, t),
                (2, 2) => tile_of::<2, 2>(args, t),
                (1, 2) => tile_of::<1, 2>(args, t),
                _ => {
                    for t in t..t + tokens {
                        tile_of::<1, 1>(args, t);
                    }
                }
            }
        }
        t += tokens;
    }
}

/// # Safety
/// As [`tile`], with `T` tokens from `t` and `P` panels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile_of<const T: usize, const P: usize>(args: &TileArgs, t: usize) {
    // SAFETY: a panel has `k` lines; tokens `t..t + T` have `k` columns; accumulators a row for each token.
    unsafe {
        let x: [*const f32; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        let mut sum = [[_mm512_setzero_ps(); P]; T];
        for c in 0..args.k {
            let w: [__m512; P] = std::array::from_fn(|p| {
                _mm512_load_ps(
                    args.panels
                        .add(p * args.panel_stride + c * LINE_BYTES)
                        .cast(),
                )
            });
            for i in 0..T {
                let x = _mm512_set1_ps(*x[i].add(c));
                for p in 0..P {
                    sum[i][p] = _mm512_fmadd_ps(w[p], x, sum[i][p]);
                }
            }
        }
        for i in 0..T {
            for p in 0..P {
                let acc = args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS);
                _mm512_store_ps(acc, _mm512_add_ps(_mm512_load_ps(acc), sum[i][p]));
            }
        }
    }
}
