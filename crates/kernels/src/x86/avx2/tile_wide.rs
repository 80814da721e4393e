//! The tile over signed bytes, widened to 16 bits.
//!
//! Without a dot-product instruction for signed bytes, products of bytes take three instructions a vector besides the sum. Products
//! of 16-bit numbers take one for half as many, and no step between the blocks.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use super::lines::HALF_LINE;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, tile_tokens};
use std::arch::x86_64::*;
use std::ops::Range;

/// Most tokens of a register tile of 16 rows: twelve sums of sixteen registers.
const TOKENS: usize = 6;

/// Blocks whose activations are widened at a time.
const BLOCKS: usize = PanelLayout::Block32Wide.chunk_k() / 32;

/// Lines of levels in a unit; the scales follow.
const LEVEL_LINES: usize = 16;

/// Activations of a few tokens, widened as the panel is: the pairs of a block's even lines, then of its odd ones.
#[repr(align(32))]
struct Wide([[[i32; LEVEL_LINES]; BLOCKS]; TOKENS]);

/// Bytes 0 and 2 of each lane, and bytes 1 and 3, as pairs of i16.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn widen(v: __m256i) -> [__m256i; 2] {
    [
        _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(v)),
        _mm256_srai_epi16::<8>(v),
    ]
}

/// The tile of [`PanelLayout::Block32Wide`].
///
/// # Safety
/// As [`crate::matmul::panel::TileFn`].
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn tile(args: &TileArgs) {
    let mut wide = Wide([[[0; LEVEL_LINES]; BLOCKS]; TOKENS]);
    let mut t = 0;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        for first in (0..args.k / 32).step_by(BLOCKS) {
            let blocks = first..(args.k / 32).min(first + BLOCKS);
            // SAFETY: forwarded, for tokens below `m`, blocks of the chunk and panels below `n_panels`.
            unsafe {
                widen_tokens(args, t, tokens, blocks.clone(), &mut wide);
                for p in 0..args.n_panels {
                    let blocks = blocks.clone();
                    match tokens {
                        6 => tile_of::<6>(args, t, p, blocks, &wide),
                        5 => tile_of::<5>(args, t, p, blocks, &wide),
                        4 => tile_of::<4>(args, t, p, blocks, &wide),
                        3 => tile_of::<3>(args, t, p, blocks, &wide),
                        2 => tile_of::<2>(args, t, p, blocks, &wide),
                        _ => tile_of::<1>(args, t, p, blocks, &wide),
                    }
                }
            }
        }
        t += tokens;
    }
}

/// # Safety
/// As [`tile`], for tokens `t..t + tokens` and at most [`BLOCKS`] of the chunk's blocks.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widen_tokens(
    args: &TileArgs,
    t: usize,
    tokens: usize,
    blocks: Range<usize>,
    wide: &mut Wide,
) {
    for (i, to) in wide.0.iter_mut().enumerate().take(tokens) {
        for (b, to) in blocks.clone().zip(to) {
            // SAFETY: a token has a record for each block; `to` is two vectors.
            unsafe {
                let x: *const X32 = args.x.add((t + i) * args.x_stride).cast();
                let q = _mm256_loadu_si256((*x.add(b)).q.as_ptr().cast());
                let [even, odd] = widen(q);
                _mm256_store_si256(to.as_mut_ptr().cast(), even);
                _mm256_store_si256(to.as_mut_ptr().add(8).cast(), odd);
            }
        }
    }
}

/// # Safety
/// As [`tile`], with `T` tokens from `t`, panel `p` and blocks that are widened.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of<const T: usize>(
    args: &TileArgs,
    t: usize,
    p: usize,
    blocks: Range<usize>,
    wide: &Wide,
) {
    let first = blocks.start;
    // SAFETY: a panel has a unit for each 32 columns, a token a record; accumulators have a row for each token.
    unsafe {
        for b in blocks {
            let unit = args
                .panels
                .add(p * args.panel_stride + b * PanelLayout::Block32Wide.unit_bytes());
            let line = |i: usize, h: usize| unit.add(i * LINE_BYTES + h * HALF_LINE);
            let mut dot = [[_mm256_setzero_si256(); 2]; T];
            for j in 0..LEVEL_LINES {
                let w: [__m256i; 2] = std::array::from_fn(|h| _mm256_load_si256(line(j, h).cast()));
                for i in 0..T {
                    let q = _mm256_set1_epi32(wide.0[i][b - first][j]);
                    for h in 0..2 {
                        dot[i][h] = _mm256_add_epi32(dot[i][h], _mm256_madd_epi16(w[h], q));
                    }
                }
            }
            for i in 0..T {
                let x = &*args.x.add((t + i) * args.x_stride).cast::<X32>().add(b);
                let d_x = _mm256_set1_ps(x.d);
                for h in 0..2 {
                    let d = _mm256_load_ps(line(LEVEL_LINES, h).cast());
                    let at = args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS + 8 * h);
                    let products = _mm256_cvtepi32_ps(dot[i][h]);
                    let acc = _mm256_load_ps(at);
                    let acc = _mm256_fmadd_ps(products, _mm256_mul_ps(d, d_x), acc);
                    _mm256_store_ps(at, acc);
                }
            }
        }
    }
}
