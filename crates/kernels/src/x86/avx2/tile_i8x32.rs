//! Tiles over panels of 32-column blocks of four- and five-bit levels.
//!
//! Without a dot-product instruction, pairs of products of unsigned levels are added in i16 for as many lines as fit below 2¹⁵
//! (`RUN`: 8 · 2 · 15 · 127, 4 · 2 · 31 · 127), and those in i32.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use super::lines::HALF_LINE;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile of 16 rows: six sums, and room for what makes them.
const TOKENS: usize = 3;

macro_rules! tile_of_kind {
    ($($name:ident $run:literal $offset:literal $min:literal $what:literal;)*) => {$(
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
                            3 => tile_of::<3, $run, $offset, $min>(args, t, p),
                            2 => tile_of::<2, $run, $offset, $min>(args, t, p),
                            _ => tile_of::<1, $run, $offset, $min>(args, t, p),
                        }
                    }
                    t += tokens;
                }
            }
        }
    )*};
}
tile_of_kind!(
    tile_four 8 8 false "The tile over four-bit levels with an offset of 8.";
    tile_four_min 8 0 true "The tile over four-bit levels with minimums.";
    tile_five 4 16 false "The tile over five-bit levels with an offset of 16.";
    tile_five_min 4 0 true "The tile over five-bit levels with minimums.";
    tile_e2m1 4 12 false "The tile over doubled E2M1 numbers with an offset of 12.";
);

/// # Safety
/// As the tiles, with `T` tokens from `t` and panel `p`; `OFFSET` is taken away from each level, `RUN` lines are added in i16, and there
/// are minimums if `MIN`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of<const T: usize, const RUN: usize, const OFFSET: i32, const MIN: bool>(
    args: &TileArgs,
    t: usize,
    p: usize,
) {
    let layout = if MIN {
        PanelLayout::Block32Min
    } else {
        PanelLayout::Block32
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
            // −128 · Σ q is a multiple of what the offset takes away.
            let mut products: [[__m256i; 2]; T] = std::array::from_fn(|i| {
                let offset = (*x[i].add(b)).offset_128 / 128 * OFFSET;
                [_mm256_set1_epi32(offset); 2]
            });
            for first in (0..8).step_by(RUN) {
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
                let d = _mm256_load_ps(line(8, h).cast());
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
        for i in 0..T {
            for h in 0..2 {
                _mm256_store_ps(acc(i, h), sum[i][h]);
            }
        }
    }
}
