//! Tiles over panels of 32-column blocks: one fused multiply-add a block and output.
//!
//! The dot product of a block is exact: at most 32 · 255 · 127 in magnitude. It starts from −`OFFSET` · Σ q.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, tile_tokens};
use crate::x86::avx2::lines::{HALF_LINE, HALF_ROWS};
use std::arch::x86_64::*;

/// Most tokens of a register tile of 16 rows: eight dot products of sixteen registers, and room for weights and scales.
const TOKENS: usize = 4;

macro_rules! tile_of_kind {
    ($($name:ident $offset:literal $min:literal $scales:literal $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = "avx2,fma,avxvnni")]
        pub(crate) unsafe fn $name(args: &TileArgs) {
            for p in 0..args.n_panels {
                let mut t = 0;
                while t < args.m {
                    let tokens = tile_tokens(args.m - t, TOKENS);
                    // SAFETY: forwarded, for tokens below `m`.
                    unsafe {
                        match tokens {
                            4 => tile_of::<4, $offset, $min, $scales>(args, t, p),
                            3 => tile_of::<3, $offset, $min, $scales>(args, t, p),
                            2 => tile_of::<2, $offset, $min, $scales>(args, t, p),
                            _ => tile_of::<1, $offset, $min, $scales>(args, t, p),
                        }
                    }
                    t += tokens;
                }
            }
        }
    )*};
}
tile_of_kind!(
    tile_8 8 false 1 "The tile over levels with an offset of 8.";
    tile_12 12 false 1 "The tile over levels with an offset of 12.";
    tile_16 16 false 1 "The tile over levels with an offset of 16.";
    tile_128 128 false 1 "The tile over levels with an offset of 128.";
    tile_128_twice 128 false 2 "The same with a scale for each 16 columns.";
    tile_min 0 true 1 "The tile over levels with minimums.";
);

/// # Safety
/// As the tiles, with `T` tokens from `t` and panel `p`; `OFFSET` is subtracted from each level, there are minimums if `MIN`, and
/// `SCALES` scales for each 32 columns.
#[inline]
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn tile_of<const T: usize, const OFFSET: i32, const MIN: bool, const SCALES: usize>(
    args: &TileArgs,
    t: usize,
    p: usize,
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
        for b in 0..args.k / 32 {
            let unit = args
                .panels
                .add(p * args.panel_stride + b * layout.unit_bytes());
            let line = |i: usize, h: usize| unit.add(i * LINE_BYTES + h * HALF_LINE);
            for s in 0..SCALES {
                let mut dot: [[__m256i; 2]; T] = std::array::from_fn(|i| {
                    // −128 · Σ q is a multiple of the offset's contribution.
                    let start = (*x[i].add(b)).offset::<SCALES>(s) / 128 * OFFSET;
                    [_mm256_set1_epi32(start); 2]
                });
                for j in 8 / SCALES * s..8 / SCALES * (s + 1) {
                    let w: [__m256i; 2] =
                        std::array::from_fn(|h| _mm256_load_si256(line(j, h).cast()));
                    for i in 0..T {
                        let q = (*x[i].add(b)).q.as_ptr().add(4 * j).cast::<i32>();
                        let q = _mm256_set1_epi32(q.read_unaligned());
                        for h in 0..2 {
                            dot[i][h] = _mm256_dpbusd_avx_epi32(dot[i][h], w[h], q);
                        }
                    }
                }
                // Sums wait in memory: registers are for the dot products.
                for h in 0..2 {
                    let d = _mm256_load_ps(line(8 + s, h).cast());
                    for i in 0..T {
                        let x = &*x[i].add(b);
                        let acc_at = args
                            .acc
                            .add((t + i) * GROUP_ROWS + p * PANEL_ROWS + h * HALF_ROWS);
                        let scale = _mm256_mul_ps(d, _mm256_set1_ps(x.d));
                        let products = _mm256_cvtepi32_ps(dot[i][h]);
                        let mut acc = _mm256_fmadd_ps(products, scale, _mm256_load_ps(acc_at));
                        if MIN {
                            let min = _mm256_load_ps(line(9, h).cast());
                            acc = _mm256_fmadd_ps(min, _mm256_set1_ps(x.scaled_sum), acc);
                        }
                        _mm256_store_ps(acc_at, acc);
                    }
                }
            }
        }
    }
}
