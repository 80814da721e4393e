//! Tiles over panels of 32-column blocks whose levels have at most seven bits.
//!
//! Without a dot-product instruction, pairs of products of unsigned levels are added in i16 for as many lines as fit below 2¹⁵
//! (`RUN`: 8 · 2 · 15 · 127, 4 · 2 · 31 · 127, 2 · 127 · 127). Those sums are added in i32.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use super::lines::HALF_LINE;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, tile_tokens};
use std::arch::x86_64::*;

/// Maximum number of tokens of a register tile of 16 rows: six sums, and room for the operands.
const TOKENS: usize = 3;

macro_rules! tile_of_kind {
    ($($name:ident $run:literal $offset:literal $min:literal $scales:literal $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = "avx2,fma")]
        pub(crate) unsafe fn $name(args: &TileArgs) {
            for p in 0..args.n_panels {
                let mut t = 0;
                while t < args.m {
                    let tokens = tile_tokens(args.m - t, TOKENS);
                    // SAFETY: forwarded, for tokens below `m`.
                    unsafe {
                        match tokens {
                            3 => tile_of::<3, $run, $offset, $min, $scales>(args, t, p),
                            2 => tile_of::<2, $run, $offset, $min, $scales>(args, t, p),
                            _ => tile_of::<1, $run, $offset, $min, $scales>(args, t, p),
                        }
                    }
                    t += tokens;
                }
            }
        }
    )*};
}
tile_of_kind!(
    tile_four 8 8 false 1 "The tile over four-bit levels with an offset of 8.";
    tile_four_min 8 0 true 1 "The tile over four-bit levels with minimums.";
    tile_five 4 16 false 1 "The tile over five-bit levels with an offset of 16.";
    tile_five_min 4 0 true 1 "The tile over five-bit levels with minimums.";
    tile_e2m1 4 12 false 1 "The tile over doubled E2M1 numbers with an offset of 12.";
    tile_e2m1_twice 4 12 false 2 "The same with a scale for each 16 columns.";
    tile_seven 1 64 false 1 "The tile over seven-bit levels with an offset of 64.";
    tile_seven_twice 1 64 false 2 "The same with a scale for each 16 columns.";
);

/// # Safety
/// As the tiles, with `T` tokens from `t` and panel `p`; `OFFSET` is subtracted from each level, `RUN` lines are added in i16, there
/// are minimums if `MIN`, and `SCALES` scales for each 32 columns.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of<
    const T: usize,
    const RUN: usize,
    const OFFSET: i32,
    const MIN: bool,
    const SCALES: usize,
>(
    args: &TileArgs,
    t: usize,
    p: usize,
) {
    let layout = match (MIN, SCALES) {
        (true, _) => PanelLayout::Block32Min,
        (_, 1) => PanelLayout::Block32,
        _ => PanelLayout::Block16,
    };
    let ones = _mm256_set1_epi16(1);
    // SAFETY: a panel has a unit for each 32 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X32; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        let acc = |i: usize, h: usize| args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS + 8 * h);
        let mut sum: [[__m256; 2]; T] =
            std::array::from_fn(|i| std::array::from_fn(|h| _mm256_load_ps(acc(i, h))));
        for b in 0..args.k / 32 {
            let unit = args
                .panels
                .add(p * args.panel_stride + b * layout.unit_bytes());
            let line = |i: usize, h: usize| unit.add(i * LINE_BYTES + h * HALF_LINE);
            for s in 0..SCALES {
                // −128 · Σ q is a multiple of the offset's contribution.
                let mut products: [[__m256i; 2]; T] = std::array::from_fn(|i| {
                    let offset = (*x[i].add(b)).offset::<SCALES>(s) / 128 * OFFSET;
                    [_mm256_set1_epi32(offset); 2]
                });
                for first in (8 / SCALES * s..8 / SCALES * (s + 1)).step_by(RUN) {
                    let mut dot = [[_mm256_setzero_si256(); 2]; T];
                    for j in first..first + RUN {
                        for h in 0..2 {
                            let w = _mm256_load_si256(line(j, h).cast());
                            for i in 0..T {
                                let q = (*x[i].add(b)).q.as_ptr().add(4 * j).cast::<i32>();
                                let q = _mm256_set1_epi32(q.read_unaligned());
                                dot[i][h] = _mm256_add_epi16(dot[i][h], _mm256_maddubs_epi16(w, q));
                            }
                        }
                    }
                    for i in 0..T {
                        for h in 0..2 {
                            let pairs = _mm256_madd_epi16(dot[i][h], ones);
                            products[i][h] = _mm256_add_epi32(products[i][h], pairs);
                        }
                    }
                }
                for h in 0..2 {
                    let d = _mm256_load_ps(line(8 + s, h).cast());
                    for i in 0..T {
                        let x = &*x[i].add(b);
                        let scale = _mm256_mul_ps(d, _mm256_set1_ps(x.d));
                        let products = _mm256_cvtepi32_ps(products[i][h]);
                        sum[i][h] = _mm256_fmadd_ps(products, scale, sum[i][h]);
                        if MIN {
                            let min = _mm256_load_ps(line(9, h).cast());
                            let x_sum = _mm256_set1_ps(x.scaled_sum);
                            sum[i][h] = _mm256_fmadd_ps(min, x_sum, sum[i][h]);
                        }
                    }
                }
            }
        }
        for i in 0..T {
            for h in 0..2 {
                _mm256_store_ps(acc(i, h), sum[i][h]);
            }
        }
    }
}
