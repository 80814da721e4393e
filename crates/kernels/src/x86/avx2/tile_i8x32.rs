//! Tiles over panels of 32-column blocks.
//!
//! Without a dot-product instruction, pairs of products are added in i16 and those in i32. Levels of four bits are
//! multiplied unsigned, and a block's sums stay in i16: 8 · 2 · 15 · 127 is below 2¹⁵. Bytes are multiplied by
//! magnitude, with the weight's sign moved to the activation: 2 · 128 · 127 is below 2¹⁵.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use super::lines::HALF_LINE;
use crate::matmul::Layout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X32, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile of 16 rows: six sums, and room for what makes them.
const TOKENS: usize = 3;

/// What the bytes of a panel are.
const SIGNED: u8 = 0;
/// Unsigned four-bit levels that stand for `level − 8`.
const NIBBLE: u8 = 1;
/// Unsigned four-bit levels, with minimums.
const NIBBLE_MIN: u8 = 2;

macro_rules! tile_of_kind {
    ($($name:ident $kind:ident $what:literal;)*) => {$(
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
                            3 => tile_of::<3, $kind>(args, t, p),
                            2 => tile_of::<2, $kind>(args, t, p),
                            _ => tile_of::<1, $kind>(args, t, p),
                        }
                    }
                    t += tokens;
                }
            }
        }
    )*};
}
tile_of_kind!(
    tile_signed SIGNED "The tile over signed bytes.";
    tile_nibble NIBBLE "The tile over four-bit levels with an offset of 8.";
    tile_nibble_min NIBBLE_MIN "The tile over four-bit levels with minimums.";
);

/// # Safety
/// As the tiles, with `T` tokens from `t` and panel `p`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_of<const T: usize, const KIND: u8>(args: &TileArgs, t: usize, p: usize) {
    let layout = if KIND == NIBBLE_MIN {
        Layout::Block32Min
    } else {
        Layout::Block32
    };
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
            let mut dot = [[_mm256_setzero_si256(); 2]; T];
            for j in 0..8 {
                for h in 0..2 {
                    let w = _mm256_load_si256(line(j, h).cast());
                    for i in 0..T {
                        let q = (*x[i].add(b)).q.as_ptr().add(4 * j).cast::<i32>();
                        let q = _mm256_set1_epi32(q.read_unaligned());
                        dot[i][h] = add_products::<KIND>(dot[i][h], w, q);
                    }
                }
            }
            for h in 0..2 {
                let d = _mm256_load_ps(line(8, h).cast());
                for i in 0..T {
                    let x = &*x[i].add(b);
                    let products = match KIND {
                        SIGNED => dot[i][h],
                        _ => _mm256_madd_epi16(dot[i][h], _mm256_set1_epi16(1)),
                    };
                    // −128 · Σ q is sixteen times what an offset of 8 takes away.
                    let offset = if KIND == NIBBLE { x.offset_128 / 16 } else { 0 };
                    let products = _mm256_add_epi32(products, _mm256_set1_epi32(offset));
                    let scale = _mm256_mul_ps(d, _mm256_set1_ps(x.d));
                    sum[i][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale, sum[i][h]);
                    if KIND == NIBBLE_MIN {
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

/// Adds four products a lane: to i32 sums of signed weights, to pairs of i16 sums of levels.
#[inline]
#[target_feature(enable = "avx2")]
fn add_products<const KIND: u8>(dot: __m256i, w: __m256i, q: __m256i) -> __m256i {
    if KIND == SIGNED {
        let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
        _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    } else {
        _mm256_add_epi16(dot, _mm256_maddubs_epi16(w, q))
    }
}
