//! Formats of 32-column blocks times one token, row by row: lanes are columns.
//!
//! Two blocks of four rows are eight vectors of products. Their sums are transposed so that a half is a block and each of its
//! elements a row. Whole-number sums are exact, so the sums of a row receive the same bits as from the tile.

use super::block32_lines::*;
use super::lines::widen_f16;
use super::reduce::{sum_i16, sum_i32};
use crate::matmul::panel::{RowsArgs, X32};
use crate::x86::streams::{Fetch, STREAMS, each_four_rows, fetched};
use std::arch::x86_64::*;

/// Blocks of a row that are summed together: one for each 128-bit half.
const MOST: usize = 2;

/// Blocks of four rows before the next four: their activations stay in the nearest cache and leave room for the weights.
const SEGMENT: usize = 256;

/// Blocks whose bytes are fetched together: they fill cache lines, or form a superblock.
const fn blocks_a_step(format: u8) -> usize {
    match format {
        IQ4_XS => 8,
        Q8_0 | Q8_1 => 2,
        _ => 4,
    }
}

/// Multiplies a format of 32-column blocks with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    let blocks = args.k / 32;
    for first in (0..blocks).step_by(SEGMENT) {
        let end = blocks.min(first + SEGMENT);
        // SAFETY: forwarded, for blocks of the rows.
        unsafe {
            fetched!(SECOND => segment::<FORMAT, SECOND>(args, first, end));
        }
    }
}

/// # Safety
/// As [`rows`], for blocks from `first` to `end`; of superblocks, whole ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn segment<const FORMAT: u8, const SECOND: bool>(args: &RowsArgs, first: usize, end: usize) {
    let step = const { blocks_a_step(FORMAT) };
    let block_bytes = const { bytes_a_block(FORMAT) };
    // SAFETY: forwarded: records and blocks up to `end`.
    unsafe {
        each_four_rows::<SECOND>(args, first == 0, |rows, mut acc| {
            let mut at = rows.map(|row| row.add(first * block_bytes));
            let mut x = args.x.cast::<X32>().add(first);
            for _ in 0..(end - first) / step {
                for at in at {
                    Fetch::<SECOND>::after(at, step * block_bytes);
                }
                for b in (0..step).step_by(MOST) {
                    acc = some::<FORMAT, MOST>(at, b, x.add(b), acc);
                }
                at = at.map(|at| at.add(step * block_bytes));
                x = x.add(step);
            }
            for b in 0..(end - first) % step {
                acc = some::<FORMAT, 1>(at, b, x.add(b), acc);
            }
            acc
        });
    }
}

/// Adds the products of `N` blocks of four rows, from block `b` on, to their sums.
///
/// # Safety
/// Each address reaches the blocks; at `x` are `N` records.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn some<const FORMAT: u8, const N: usize>(
    at: [*const u8; STREAMS],
    b: usize,
    x: *const X32,
    mut acc: __m128,
) -> __m128 {
    // SAFETY: forwarded.
    let (products, scales, minimums, x) = unsafe {
        let x = [&*x, &*x.add(N - 1)];
        let (d, minimums) = scales_of_four::<FORMAT, N>(at, b);
        let d_x = _mm256_set_m128(_mm_set1_ps(x[1].d), _mm_set1_ps(x[0].d));
        let products = products::<FORMAT, N>(at, b, x);
        (products, _mm256_mul_ps(d, d_x), minimums, x)
    };
    let products = _mm256_cvtepi32_ps(products);
    let lower = _mm256_castps256_ps128;
    acc = _mm_fmadd_ps(lower(products), lower(scales), acc);
    if has_min(FORMAT) {
        acc = _mm_fmadd_ps(lower(minimums), _mm_set1_ps(x[0].scaled_sum), acc);
    }
    if N == MOST {
        let upper = |v| _mm256_extractf128_ps::<1>(v);
        acc = _mm_fmadd_ps(upper(products), upper(scales), acc);
        if has_min(FORMAT) {
            acc = _mm_fmadd_ps(upper(minimums), _mm_set1_ps(x[1].scaled_sum), acc);
        }
    }
    acc
}

/// Σ w·q of `N` blocks of four rows: a half is a block, an element of it a row.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn products<const FORMAT: u8, const N: usize>(
    at: [*const u8; STREAMS],
    b: usize,
    x: [&X32; MOST],
) -> __m256i {
    let one = _mm256_set1_epi16(1);
    // SAFETY: forwarded.
    let of = |row: usize, i: usize| unsafe {
        if i >= N {
            return _mm256_setzero_si256();
        }
        let q = _mm256_loadu_si256(x[i].q.as_ptr().cast());
        let w = row_levels::<FORMAT>(at[row], b + i);
        if is_signed(FORMAT) {
            // The weight's sign moves to the activation: 2 · 128 · 127 is below 2¹⁵.
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
            _mm256_madd_epi16(pairs, one)
        } else {
            _mm256_maddubs_epi16(w, q)
        }
    };
    // Written out: a loop over them is left a loop, with its vectors in memory.
    let rows = [
        of(0, 0),
        of(1, 0),
        of(2, 0),
        of(3, 0),
        of(0, 1),
        of(1, 1),
        of(2, 1),
        of(3, 1),
    ];
    if is_signed(FORMAT) {
        return sum_i32(rows);
    }
    // Four times a pair of products of five bits: 8 · 31 · 127 is below 2¹⁵.
    let offset = |i: usize| _mm_set1_epi32(x[i].offset_128 / 128 * offset(FORMAT));
    _mm256_add_epi32(sum_i16(rows), _mm256_set_m128i(offset(1), offset(0)))
}

/// Scales of `N` blocks of four rows, and minimums where the format has them: a half is a block, an element of it a row.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn scales_of_four<const FORMAT: u8, const N: usize>(
    at: [*const u8; STREAMS],
    b: usize,
) -> (__m256, __m256) {
    let zero = _mm256_setzero_ps();
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: forwarded; fields are where ggml's `block_*` structures have them.
    unsafe {
        if FORMAT == IQ4_XS {
            let word = |from: usize| {
                let of = at.map(|at| at.add(from).cast::<i32>().read_unaligned());
                _mm256_broadcastsi128_si256(_mm_setr_epi32(of[0], of[1], of[2], of[3]))
            };
            let j = _mm256_set_m128i(_mm_set1_epi32(b as i32 + 1), _mm_set1_epi32(b as i32));
            return (times_six_bits(word(0), word(4), j), zero);
        }
        let block = |i: usize| at.map(|at| at.add((b + i.min(N - 1)) * block_bytes));
        let (first, second) = (block(0), block(1));
        if FORMAT == MXFP4 {
            let [a, b, c, d] = first.map(|at| i32::from(at.read()));
            let [e, f, g, h] = second.map(|at| i32::from(at.read()));
            return (half_powers(_mm256_setr_epi32(a, b, c, d, e, f, g, h)), zero);
        }
        if has_min(FORMAT) {
            let [a, b, c, d] = first.map(|at| at.cast::<i32>().read_unaligned());
            let [e, f, g, h] = second.map(|at| at.cast::<i32>().read_unaligned());
            let both = _mm256_setr_epi32(a, b, c, d, e, f, g, h);
            return (widen_f16(both), widen_f16(_mm256_srli_epi32::<16>(both)));
        }
        let [a, b, c, d] = first.map(|at| at.cast::<i16>().read_unaligned());
        let [e, f, g, h] = second.map(|at| at.cast::<i16>().read_unaligned());
        (
            _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h)),
            zero,
        )
    }
}
