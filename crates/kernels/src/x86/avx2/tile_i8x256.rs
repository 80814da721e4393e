//! Tiles over panels of 256-column superblocks with integer scales.
//!
//! Products of levels are added in i16 for as many lines as fit below 2¹⁵ (`RUN`: 8 · 2 · 15 · 127, 4 · 2 · 31 · 127, 2 · 2 ·
//! 63 · 127, and for two and three bits the lines of a scale). Then they are multiplied with their scale and added in i32.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use super::lines::HALF_LINE;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X256, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile of 16 rows: six sums in i16 and six in i32.
const TOKENS: usize = 3;

/// Lines of levels in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! tile_of_format {
    ($($name:ident $run:literal $sub:literal $offset:literal $format:literal;)*) => {$(
        #[doc = concat!("The tile of ", $format, ".")]
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
                            3 => tile_of::<3, $run, $sub, $offset>(args, t, p),
                            2 => tile_of::<2, $run, $sub, $offset>(args, t, p),
                            _ => tile_of::<1, $run, $sub, $offset>(args, t, p),
                        }
                    }
                    t += tokens;
                }
            }
        }
    )*};
}
tile_of_format!(
    tile_q2_k 4 16 0 "Q2_K";
    tile_q3_k 4 16 4 "Q3_K";
    tile_q4_k 8 32 0 "Q4_K";
    tile_q5_k 4 32 0 "Q5_K";
    tile_q6_k 2 16 32 "Q6_K";
);

/// # Safety
/// As the tiles, with `T` tokens from `t` and panel `p`, a scale for each `SUB` columns; `OFFSET` is subtracted from each level, or if it
/// is zero there are minimums.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of<const T: usize, const RUN: usize, const SUB: usize, const OFFSET: i32>(
    args: &TileArgs,
    t: usize,
    p: usize,
) {
    let layout = match (SUB, OFFSET) {
        (32, _) => PanelLayout::Super32Min,
        (_, 0) => PanelLayout::Super16Min,
        _ => PanelLayout::Super16,
    };
    // SAFETY: a panel has a unit for each 256 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X256; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        for b in 0..args.k / 256 {
            let unit = args
                .panels
                .add(p * args.panel_stride + b * layout.unit_bytes());
            let line = |i: usize, h: usize| unit.add(i * LINE_BYTES + h * HALF_LINE);
            let mut sum = [[_mm256_setzero_si256(); 2]; T];
            for first in (0..BYTE_LINES).step_by(RUN) {
                let mut dot = [[_mm256_setzero_si256(); 2]; T];
                for j in first..first + RUN {
                    let w: [__m256i; 2] =
                        std::array::from_fn(|h| _mm256_load_si256(line(j, h).cast()));
                    for i in 0..T {
                        let q = (&raw const (*x[i].add(b)).q).cast::<i32>().add(j);
                        let q = _mm256_set1_epi32(q.read_unaligned());
                        for h in 0..2 {
                            let products = _mm256_maddubs_epi16(w[h], q);
                            dot[i][h] = _mm256_add_epi16(dot[i][h], products);
                        }
                    }
                }
                for h in 0..2 {
                    let scale = line(BYTE_LINES + first * 4 / SUB, h);
                    let scale = _mm256_load_si256(scale.cast());
                    for i in 0..T {
                        let scaled = _mm256_madd_epi16(dot[i][h], scale);
                        sum[i][h] = _mm256_add_epi32(sum[i][h], scaled);
                    }
                }
            }
            for i in 0..T {
                for h in 0..2 {
                    let acc = (t + i) * GROUP_ROWS + p * PANEL_ROWS + 8 * h;
                    let tail = line(BYTE_LINES, h);
                    let x = &*x[i].add(b);
                    add_superblock::<SUB, OFFSET>(args.acc.add(acc), sum[i][h], tail, x);
                }
            }
        }
    }
}

/// Adds a superblock's scaled sums, less its offset or minimums, to the accumulators of half a panel.
/// `tail`: the unit's lines from the scales on.
///
/// # Safety
/// `acc` and `tail` are as the tile has them.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_superblock<const SUB: usize, const OFFSET: i32>(
    acc_at: *mut f32,
    sum: __m256i,
    tail: *const u8,
    x: &X256,
) {
    let scales = 256 / SUB;
    // SAFETY: forwarded.
    unsafe {
        let line = |i: usize| _mm256_load_si256(tail.add(i * LINE_BYTES).cast());
        let pair = |sums: *const i16, j: usize| {
            _mm256_set1_epi32(sums.cast::<i32>().add(j).read_unaligned())
        };
        let mut products = sum;
        if OFFSET > 0 {
            let mut offset = _mm256_setzero_si256();
            for j in 0..8 {
                let scales = _mm256_blend_epi16::<0b10_10_10_10>(line(2 * j), line(2 * j + 1));
                let sums = pair(x.sums_16.as_ptr(), j);
                offset = _mm256_add_epi32(offset, _mm256_madd_epi16(scales, sums));
            }
            let offset = _mm256_mullo_epi32(offset, _mm256_set1_epi32(OFFSET));
            products = _mm256_sub_epi32(products, offset);
        }
        let d_x = _mm256_set1_ps(x.d);
        let scale = |i: usize| _mm256_mul_ps(_mm256_castsi256_ps(line(scales + i)), d_x);
        let mut acc = _mm256_load_ps(acc_at);
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale(0), acc);
        if OFFSET == 0 {
            let sums = if SUB == 32 {
                x.sums_32.as_ptr()
            } else {
                x.sums_16.as_ptr()
            };
            let mut minimums = _mm256_setzero_si256();
            for j in 0..scales / 2 {
                let products = _mm256_madd_epi16(line(scales + 2 + j), pair(sums, j));
                minimums = _mm256_add_epi32(minimums, products);
            }
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(minimums), scale(1), acc);
        }
        _mm256_store_ps(acc_at, acc);
    }
}
