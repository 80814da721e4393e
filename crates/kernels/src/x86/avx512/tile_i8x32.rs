//! Tile over panels of 32-column blocks: one fused multiply-add a block and output.
//!
//! The dot product of a block is exact: at most 32 · 255 · 127 in magnitude. It starts from
//! −128 · Σ q where the panel's bytes carry an offset of 128.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile: twelve dot products and twelve sums stay in registers.
const TOKENS: usize = 6;

/// The tile of [`PanelLayout::Block32`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn tile(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile_all::<false, 1>(args) }
}

/// The tile of [`PanelLayout::Block16`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn tile_16(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile_all::<false, 2>(args) }
}

/// The tile of [`PanelLayout::Block32Min`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn tile_min(args: &TileArgs) {
    // SAFETY: forwarded.
    unsafe { tile_all::<true, 1>(args) }
}

/// # Safety
/// As [`tile`] and [`tile_min`], with `SCALES` scales for each 32 columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tile_all<const MIN: bool, const SCALES: usize>(args: &TileArgs) {
    let mut t = 0;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        // SAFETY: forwarded, for tokens below `m`.
        unsafe {
            match (tokens, args.n_panels) {
                (6, 2) => tile_of::<6, 2, MIN, SCALES>(args, t),
                (5, 2) => tile_of::<5, 2, MIN, SCALES>(args, t),
                (4, 2) => tile_of::<4, 2, MIN, SCALES>(args, t),
                (3, 2) => tile_of::<3, 2, MIN, SCALES>(args, t),
                (2, 2) => tile_of::<2, 2, MIN, SCALES>(args, t),
                (1, 2) => tile_of::<1, 2, MIN, SCALES>(args, t),
                _ => {
                    for t in t..t + tokens {
                        tile_of::<1, 1, MIN, SCALES>(args, t);
                    }
                }
            }
        }
        t += tokens;
    }
}

/// # Safety
/// As [`tile_all`], with `T` tokens from `t` and `P` panels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tile_of<const T: usize, const P: usize, const MIN: bool, const SCALES: usize>(
    args: &TileArgs,
    t: usize,
) {
    let layout = match (MIN, SCALES) {
        (true, _) => PanelLayout::Block32Min,
        (_, 1) => PanelLayout::Block32,
        _ => PanelLayout::Block16,
    };
    // SAFETY: a panel has a unit for each 32 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X32; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        let mut acc: [[__m512; P]; T] = std::array::from_fn(|i| {
            std::array::from_fn(|p| {
                _mm512_load_ps(args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS))
            })
        });
        for b in 0..args.k / 32 {
            let unit: [*const u8; P] = std::array::from_fn(|p| {
                args.panels
                    .add(p * args.panel_stride + b * layout.unit_bytes())
            });
            let line = |p: usize, i: usize| unit[p].add(i * LINE_BYTES);
            for s in 0..SCALES {
                let mut dot: [[__m512i; P]; T] = std::array::from_fn(|i| {
                    let start = if MIN {
                        0
                    } else {
                        (*x[i].add(b)).offset::<SCALES>(s)
                    };
                    [_mm512_set1_epi32(start); P]
                });
                for j in 8 / SCALES * s..8 / SCALES * (s + 1) {
                    let w: [__m512i; P] =
                        std::array::from_fn(|p| _mm512_load_si512(line(p, j).cast()));
                    for i in 0..T {
                        let q = (*x[i].add(b)).q.as_ptr().add(4 * j).cast::<i32>();
                        let q = _mm512_set1_epi32(q.read_unaligned());
                        for p in 0..P {
                            dot[i][p] = _mm512_dpbusd_epi32(dot[i][p], w[p], q);
                        }
                    }
                }
                for p in 0..P {
                    let d = _mm512_load_ps(line(p, 8 + s).cast());
                    for i in 0..T {
                        acc[i][p] = add_block(acc[i][p], dot[i][p], d, &*x[i].add(b));
                        if MIN {
                            let min = _mm512_load_ps(line(p, 9).cast());
                            let sum = _mm512_set1_ps((*x[i].add(b)).scaled_sum);
                            acc[i][p] = _mm512_fmadd_ps(min, sum, acc[i][p]);
                        }
                    }
                }
            }
        }
        for i in 0..T {
            for p in 0..P {
                _mm512_store_ps(
                    args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS),
                    acc[i][p],
                );
            }
        }
    }
}

/// `acc` plus a block's dot products times its scales.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_block(acc: __m512, dot: __m512i, d: __m512, x: &X32) -> __m512 {
    _mm512_fmadd_ps(
        _mm512_cvtepi32_ps(dot),
        _mm512_mul_ps(d, _mm512_set1_ps(x.d)),
        acc,
    )
}
