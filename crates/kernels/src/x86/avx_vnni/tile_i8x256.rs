//! Tiles over panels of 256-column superblocks with integer scales, in the form of AVX2's: a scale line holds the scale twice, as i16.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X256, tile_tokens};
use crate::x86::avx2::lines::{HALF_LINE, HALF_ROWS};
use std::arch::x86_64::*;

/// Most tokens of a register tile of 16 rows: six dot products and six scaled sums.
const TOKENS: usize = 3;

/// Lines of levels in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! tile_of_format {
    ($($name:ident $sub:literal $formats:literal;)*) => {$(
        #[doc = concat!("The tile of ", $formats, ".")]
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
                            3 => tile_of::<3, $sub>(args, t, p),
                            2 => tile_of::<2, $sub>(args, t, p),
                            _ => tile_of::<1, $sub>(args, t, p),
                        }
                    }
                    t += tokens;
                }
            }
        }
    )*};
}
tile_of_format!(
    tile_q45_k 32 "Q4_K and Q5_K";
    tile_q6_k 16 "Q6_K";
);

/// # Safety
/// As the tiles, with `T` tokens from `t` and panel `p`, a scale for each `SUB` columns: [`PanelLayout::Super32Min`] or
/// [`PanelLayout::Super16`].
#[inline]
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn tile_of<const T: usize, const SUB: usize>(args: &TileArgs, t: usize, p: usize) {
    let layout = if SUB == 32 {
        PanelLayout::Super32Min
    } else {
        PanelLayout::Super16
    };
    // SAFETY: a panel has a unit for each 256 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X256; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        for b in 0..args.k / 256 {
            let unit = args
                .panels
                .add(p * args.panel_stride + b * layout.unit_bytes());
            let x = x.map(|x| x.add(b));
            let is_wide = x.iter().any(|x| {
                let wide = &(**x).wide;
                let groups = if SUB == 32 {
                    wide.five_bits
                } else {
                    wide.six_bits
                };
                groups != 0
            });
            let sum = if is_wide {
                scaled_products::<T, SUB, true>(unit, x)
            } else {
                scaled_products::<T, SUB, false>(unit, x)
            };
            for i in 0..T {
                for h in 0..2 {
                    let acc = (t + i) * GROUP_ROWS + p * PANEL_ROWS + h * HALF_ROWS;
                    let tail = unit.add((BYTE_LINES + 256 / SUB) * LINE_BYTES + h * HALF_LINE);
                    add_superblock::<SUB>(args.acc.add(acc), sum[i][h], tail, &*x[i]);
                }
            }
        }
    }
}

/// Σ s · Σ w·q of a superblock; `WIDE` where a dot product of a scale's columns may exceed an i16.
///
/// # Safety
/// `unit` is a unit of the layout.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn scaled_products<const T: usize, const SUB: usize, const WIDE: bool>(
    unit: *const u8,
    x: [*const X256; T],
) -> [[__m256i; 2]; T] {
    let low_half = _mm256_set1_epi32(0xFFFF);
    let mut sum = [[_mm256_setzero_si256(); 2]; T];
    // SAFETY: forwarded.
    unsafe {
        let line =
            |i: usize, h: usize| _mm256_load_si256(unit.add(i * LINE_BYTES + h * HALF_LINE).cast());
        for s in 0..256 / SUB {
            let mut dot: [[__m256i; 2]; T] = std::array::from_fn(|i| {
                let start = if SUB == 16 { (*x[i]).offset_32[s] } else { 0 };
                [_mm256_set1_epi32(start); 2]
            });
            for j in 0..SUB / 4 {
                let at = s * (SUB / 4) + j;
                let w: [__m256i; 2] = std::array::from_fn(|h| line(at, h));
                for i in 0..T {
                    let q = (&raw const (*x[i]).q).cast::<i32>().add(at);
                    let q = _mm256_set1_epi32(q.read_unaligned());
                    for h in 0..2 {
                        dot[i][h] = _mm256_dpbusd_avx_epi32(dot[i][h], w[h], q);
                    }
                }
            }
            for h in 0..2 {
                let scale = line(BYTE_LINES + s, h);
                if WIDE {
                    let scale = _mm256_srai_epi32::<16>(scale);
                    for i in 0..T {
                        let scaled = _mm256_mullo_epi32(dot[i][h], scale);
                        sum[i][h] = _mm256_add_epi32(sum[i][h], scaled);
                    }
                } else {
                    // The upper half of a dot product repeats its sign: it is multiplied with 0.
                    let scale = _mm256_and_si256(scale, low_half);
                    for i in 0..T {
                        sum[i][h] = _mm256_dpwssd_avx_epi32(sum[i][h], dot[i][h], scale);
                    }
                }
            }
        }
    }
    sum
}

/// Adds a superblock's scaled sums, and its minimums, to the accumulators of half a panel. `tail`: the unit's lines after the scales.
///
/// # Safety
/// `acc` and `tail` are as the tile has them.
#[inline]
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn add_superblock<const SUB: usize>(
    acc_at: *mut f32,
    sum: __m256i,
    tail: *const u8,
    x: &X256,
) {
    // SAFETY: forwarded.
    unsafe {
        let line = |i: usize| _mm256_load_si256(tail.add(i * LINE_BYTES).cast());
        let d_x = _mm256_set1_ps(x.d);
        let scale = |i: usize| _mm256_mul_ps(_mm256_castsi256_ps(line(i)), d_x);
        let mut acc = _mm256_load_ps(acc_at);
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale(0), acc);
        if SUB == 32 {
            let mut minimums = _mm256_setzero_si256();
            for j in 0..4 {
                let sums = x.sums_32.as_ptr().cast::<i32>().add(j).read_unaligned();
                minimums = _mm256_dpwssd_avx_epi32(minimums, line(2 + j), _mm256_set1_epi32(sums));
            }
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(minimums), scale(1), acc);
        }
        _mm256_store_ps(acc_at, acc);
    }
}
