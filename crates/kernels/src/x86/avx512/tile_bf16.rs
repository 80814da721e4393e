//! Tile over panels of bf16 pairs.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile: sixteen sums cover the latency of two dot products a cycle.
const TOKENS: usize = 8;

/// The tile of [`crate::matmul::PanelLayout::Bf16`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn tile_of<const T: usize, const P: usize>(args: &TileArgs, t: usize) {
    // SAFETY: a panel has a line for each pair of columns, a token a pair; accumulators have a row for each token.
    unsafe {
        let x: [*const i32; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        let mut sum = [[_mm512_setzero_ps(); P]; T];
        for c in 0..args.k.div_ceil(2) {
            let w: [__m512i; P] = std::array::from_fn(|p| {
                let line = args.panels.add(p * args.panel_stride + c * LINE_BYTES);
                _mm512_load_si512(line.cast())
            });
            for i in 0..T {
                let x = _mm512_set1_epi32(x[i].add(c).read_unaligned());
                for p in 0..P {
                    sum[i][p] = dot_pairs(sum[i][p], w[p], x);
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

/// `sum` plus the products of two bf16 pairs a lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn dot_pairs(sum: __m512, w: __m512i, x: __m512i) -> __m512 {
    // SAFETY: both types are 512 bits without invalid values.
    let as_pairs = |v: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(v) };
    _mm512_dpbf16_ps(sum, as_pairs(w), as_pairs(x))
}
