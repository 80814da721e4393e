//! Tile over panels of 256-column superblocks with integer scales: one fused multiply-add a superblock
//! and output for the products, one for the minimums.
//!
//! Integer sums are exact. The largest are those of 5-bit elements with 6-bit scales,
//! 256 · 31 · 127 · 63, and of Q6_K, 256 · 32 · 127 · 128: both below 2²⁸.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use super::superblock::dot_pairs;
use crate::matmul::PanelLayout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X256, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile: twelve dot products and twelve scaled sums stay in registers.
const TOKENS: usize = 6;

/// Lines of bytes in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! tile_of_format {
    ($($name:ident $formats:literal $sub:literal $bits:literal;)*) => {$(
        #[doc = concat!("The tile of ", $formats, ".")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(crate) unsafe fn $name(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile_all::<$sub, $bits>(args) }
        }
    )*};
}
tile_of_format!(
    tile_q2_k "Q2_K" 16 2;
    tile_q45_k "Q4_K and Q5_K" 32 5;
    tile_q6_k "Q3_K and Q6_K" 16 6;
);

/// Whether elements of that many bits come with minimums; otherwise with an offset of 32.
const fn has_minimums(bits: u8) -> bool {
    bits < 6
}

/// # Safety
/// As the tile of the layout with a scale for each `SUB` columns, elements of `BITS` bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tile_all<const SUB: usize, const BITS: u8>(args: &TileArgs) {
    let mut t = 0;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        // SAFETY: forwarded, for tokens below `m`.
        unsafe {
            match (tokens, args.n_panels) {
                (6, 2) => tile_of::<6, 2, SUB, BITS>(args, t),
                (5, 2) => tile_of::<5, 2, SUB, BITS>(args, t),
                (4, 2) => tile_of::<4, 2, SUB, BITS>(args, t),
                (3, 2) => tile_of::<3, 2, SUB, BITS>(args, t),
                (2, 2) => tile_of::<2, 2, SUB, BITS>(args, t),
                (1, 2) => tile_of::<1, 2, SUB, BITS>(args, t),
                _ => {
                    for t in t..t + tokens {
                        tile_of::<1, 1, SUB, BITS>(args, t);
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
unsafe fn tile_of<const T: usize, const P: usize, const SUB: usize, const BITS: u8>(
    args: &TileArgs,
    t: usize,
) {
    let layout = match (SUB, BITS) {
        (16, 2) => PanelLayout::Super16Min,
        (16, _) => PanelLayout::Super16,
        _ => PanelLayout::Super32Min,
    };
    // SAFETY: a panel has a unit for each 256 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X256; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        for b in 0..args.k / 256 {
            fetch_next::<T>(args, t, b);
            let unit: [*const u8; P] = std::array::from_fn(|p| {
                args.panels
                    .add(p * args.panel_stride + b * layout.unit_bytes())
            });
            let line = |p: usize, i: usize| unit[p].add(i * LINE_BYTES);
            let wide = x
                .iter()
                .fold(0, |wide, x| wide | wide_groups::<BITS>(&*x.add(b)));
            let x_b = x.map(|x| x.add(b));
            let sum = if wide == 0 {
                scaled_products::<T, P, SUB, BITS, false>(unit, x_b)
            } else {
                scaled_products::<T, P, SUB, BITS, true>(unit, x_b)
            };
            for i in 0..T {
                for p in 0..P {
                    let acc = args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS);
                    let tail = line(p, BYTE_LINES);
                    let x = &*x[i].add(b);
                    if has_minimums(BITS) {
                        add_superblock::<SUB, true>(acc, sum[i][p], tail, x);
                    } else {
                        add_superblock::<SUB, false>(acc, sum[i][p], tail, x);
                    }
                }
            }
        }
    }
}

/// Fetches superblock `b` of the tokens after the tile's `T` from `t`. A token's records are too short a
/// stream, and too far from the next token's, for the CPU to predict.
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch_next<const T: usize>(args: &TileArgs, t: usize, b: usize) {
    let left = args.m - t - T;
    for i in 0..T.min(left) {
        let record = args.x.wrapping_add((t + T + i) * args.x_stride);
        let record = record.cast::<X256>().wrapping_add(b).cast::<i8>();
        for line in 0..size_of::<X256>() / LINE_BYTES {
            _mm_prefetch::<_MM_HINT_T0>(record.wrapping_add(line * LINE_BYTES));
        }
    }
}

/// Σ s · Σ w·q of a superblock; `WIDE` where a dot product of a scale's columns may exceed an i16.
///
/// # Safety
/// Each of `unit` is a unit of the layout.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn scaled_products<
    const T: usize,
    const P: usize,
    const SUB: usize,
    const BITS: u8,
    const WIDE: bool,
>(
    unit: [*const u8; P],
    x: [*const X256; T],
) -> [[__m512i; P]; T] {
    let low_half = _mm512_set1_epi32(0xFFFF);
    let mut sum = [[_mm512_setzero_si512(); P]; T];
    // SAFETY: forwarded.
    unsafe {
        let line = |p: usize, i: usize| _mm512_load_si512(unit[p].add(i * LINE_BYTES).cast());
        for s in 0..256 / SUB {
            let mut dot: [[__m512i; P]; T] = std::array::from_fn(|i| {
                let start = if has_minimums(BITS) {
                    0
                } else {
                    (*x[i]).offset_32[s]
                };
                [_mm512_set1_epi32(start); P]
            });
            for j in 0..SUB / 4 {
                let at = s * (SUB / 4) + j;
                let w: [__m512i; P] = std::array::from_fn(|p| line(p, at));
                for i in 0..T {
                    let q = (&raw const (*x[i]).q).cast::<i32>().add(at);
                    let q = _mm512_set1_epi32(q.read_unaligned());
                    for p in 0..P {
                        dot[i][p] = _mm512_dpbusd_epi32(dot[i][p], w[p], q);
                    }
                }
            }
            for p in 0..P {
                let scale = line(p, BYTE_LINES + s);
                if WIDE {
                    for i in 0..T {
                        let scaled = _mm512_mullo_epi32(dot[i][p], scale);
                        sum[i][p] = _mm512_add_epi32(sum[i][p], scaled);
                    }
                } else {
                    // The upper half of a dot product repeats its sign: it is multiplied with 0.
                    let scale = _mm512_and_si512(scale, low_half);
                    for i in 0..T {
                        sum[i][p] = dot_pairs(sum[i][p], dot[i][p], scale);
                    }
                }
            }
        }
    }
    sum
}

/// A bit for each group of columns with a scale whose dot products may exceed an i16.
#[inline(always)]
fn wide_groups<const BITS: u8>(x: &X256) -> u32 {
    match BITS {
        // 16 · 3 · 127.
        2 => 0,
        5 => u32::from(x.wide.five_bits),
        _ => u32::from(x.wide.six_bits),
    }
}

/// Adds a superblock's scaled sums, and its minimums, to the accumulators of a panel. `tail`: the unit's
/// lines from the scales on.
///
/// # Safety
/// `acc` and `tail` are as the layout's tile has them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(in crate::x86) unsafe fn add_superblock<const SUB: usize, const MIN: bool>(
    acc_at: *mut f32,
    sum: __m512i,
    tail: *const u8,
    x: &X256,
) {
    let after_scales = 256 / SUB;
    // SAFETY: forwarded.
    unsafe {
        let line = |i: usize| tail.add((after_scales + i) * LINE_BYTES);
        let d_x = _mm512_set1_ps(x.d);
        let d = _mm512_load_ps(line(0).cast());
        let mut acc = _mm512_load_ps(acc_at);
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, d_x), acc);
        if MIN {
            let d_min = _mm512_load_ps(line(1).cast());
            let minimums = _mm512_cvtepi32_ps(minimums::<SUB>(x, line(2)));
            acc = _mm512_fmadd_ps(minimums, _mm512_mul_ps(d_min, d_x), acc);
        }
        _mm512_store_ps(acc_at, acc);
    }
}

/// Σ m · Σ q over a superblock; `pairs` are the lines of minimums.
///
/// # Safety
/// `pairs` has `256 / SUB / 2` lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn minimums<const SUB: usize>(x: &X256, pairs: *const u8) -> __m512i {
    let sums = if SUB == 16 {
        x.sums_16.as_ptr()
    } else {
        x.sums_32.as_ptr()
    };
    let mut sum = _mm512_setzero_si512();
    for j in 0..256 / SUB / 2 {
        // SAFETY: both arrays of sums are at least that many pairs; lines by the caller's word.
        unsafe {
            let q = _mm512_set1_epi32(sums.cast::<i32>().add(j).read_unaligned());
            let m = _mm512_load_si512(pairs.add(j * LINE_BYTES).cast());
            sum = _mm512_dpwssd_epi32(sum, m, q);
        }
    }
    sum
}
