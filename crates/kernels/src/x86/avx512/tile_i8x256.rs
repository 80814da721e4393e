//! Tile over panels of 256-column superblocks with integer scales: one fused multiply-add a superblock
//! and output for the products, one for the minimums.
//!
//! Integer sums are exact. The largest are those of 5-bit elements with 6-bit scales,
//! 256 · 31 · 127 · 63, and of Q6_K, 256 · 32 · 127 · 128: both below 2²⁸.

#![expect(
    clippy::needless_range_loop,
    reason = "several arrays of registers are indexed together"
)]

use crate::matmul::Layout;
use crate::matmul::panel::{GROUP_ROWS, LINE_BYTES, PANEL_ROWS, TileArgs, X256, tile_tokens};
use std::arch::x86_64::*;

/// Most tokens of a register tile: twelve dot products and twelve scaled sums stay in registers.
const TOKENS: usize = 6;

/// Lines of bytes in a unit; scales follow.
const BYTE_LINES: usize = 64;

macro_rules! tile_of_layout {
    ($name:ident, $layout:literal, $sub:literal, $min:literal) => {
        #[doc = concat!("The tile of [`Layout::", $layout, "`].")]
        ///
        /// # Safety
        /// As [`crate::matmul::panel::TileFn`].
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(crate) unsafe fn $name(args: &TileArgs) {
            // SAFETY: forwarded.
            unsafe { tile_all::<$sub, $min>(args) }
        }
    };
}
tile_of_layout!(tile_super16, "Super16", 16, false);
tile_of_layout!(tile_super16_min, "Super16Min", 16, true);
tile_of_layout!(tile_super32_min, "Super32Min", 32, true);

/// # Safety
/// As the tile of the layout with a scale for each `SUB` columns, and minimums or not.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn tile_all<const SUB: usize, const MIN: bool>(args: &TileArgs) {
    let mut t = 0;
    while t < args.m {
        let tokens = tile_tokens(args.m - t, TOKENS);
        // SAFETY: forwarded, for tokens below `m`.
        unsafe {
            match (tokens, args.n_panels) {
                (6, 2) => tile_of::<6, 2, SUB, MIN>(args, t),
                (5, 2) => tile_of::<5, 2, SUB, MIN>(args, t),
                (4, 2) => tile_of::<4, 2, SUB, MIN>(args, t),
                (3, 2) => tile_of::<3, 2, SUB, MIN>(args, t),
                (2, 2) => tile_of::<2, 2, SUB, MIN>(args, t),
                (1, 2) => tile_of::<1, 2, SUB, MIN>(args, t),
                _ => {
                    for t in t..t + tokens {
                        tile_of::<1, 1, SUB, MIN>(args, t);
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
unsafe fn tile_of<const T: usize, const P: usize, const SUB: usize, const MIN: bool>(
    args: &TileArgs,
    t: usize,
) {
    let layout = match (SUB, MIN) {
        (16, false) => Layout::Super16,
        (16, true) => Layout::Super16Min,
        _ => Layout::Super32Min,
    };
    let scales = 256 / SUB;
    // SAFETY: a panel has a unit for each 256 columns, a token a record; accumulators have a row for each token.
    unsafe {
        let x: [*const X256; T] =
            std::array::from_fn(|i| args.x.add((t + i) * args.x_stride).cast());
        for b in 0..args.k / 256 {
            let unit: [*const u8; P] = std::array::from_fn(|p| {
                args.panels
                    .add(p * args.panel_stride + b * layout.unit_bytes())
            });
            let line = |p: usize, i: usize| unit[p].add(i * LINE_BYTES);
            let mut sum = [[_mm512_setzero_si512(); P]; T];
            for s in 0..scales {
                let mut dot: [[__m512i; P]; T] = std::array::from_fn(|i| {
                    let start = if MIN { 0 } else { (*x[i].add(b)).offset_32[s] };
                    [_mm512_set1_epi32(start); P]
                });
                for j in 0..SUB / 4 {
                    let at = s * (SUB / 4) + j;
                    let w: [__m512i; P] =
                        std::array::from_fn(|p| _mm512_load_si512(line(p, at).cast()));
                    for i in 0..T {
                        let q = (&raw const (*x[i].add(b)).q).cast::<i32>().add(at);
                        let q = _mm512_set1_epi32(q.read_unaligned());
                        for p in 0..P {
                            dot[i][p] = _mm512_dpbusd_epi32(dot[i][p], w[p], q);
                        }
                    }
                }
                for p in 0..P {
                    let scale = _mm512_load_si512(line(p, BYTE_LINES + s).cast());
                    for i in 0..T {
                        let scaled = _mm512_mullo_epi32(dot[i][p], scale);
                        sum[i][p] = _mm512_add_epi32(sum[i][p], scaled);
                    }
                }
            }
            for i in 0..T {
                for p in 0..P {
                    let acc = args.acc.add((t + i) * GROUP_ROWS + p * PANEL_ROWS);
                    let tail = line(p, BYTE_LINES);
                    add_superblock::<SUB, MIN>(acc, sum[i][p], tail, &*x[i].add(b));
                }
            }
        }
    }
}

/// Adds a superblock's scaled sums, and its minimums, to the accumulators of a panel. `tail`: the unit's
/// lines from the scales on.
///
/// # Safety
/// `acc` and `tail` are as the layout's tile has them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn add_superblock<const SUB: usize, const MIN: bool>(
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
