//! The k-quants times one token, row by row: lanes are columns.
//!
//! Unpacking a superblock for eight rows at a time costs more than one token's products. Here four rows are read side by side, each in
//! order. Only the whole-number sums of a superblock are transposed so that an element is a row. These sums are exact, so their order
//! does not matter, and the sums of a row receive the same bits as from the tile.

use super::lines::widen_f16;
use super::reduce::{add_elements, add_halves, first_elements};
use super::superblock_products::*;
use crate::matmul::panel::{RowsArgs, X256};
use crate::x86::streams::{Fetch, STREAMS, each_four_rows, fetched};
use std::arch::x86_64::*;

/// Superblocks of a row that are summed together: one for each 128-bit half.
const MOST: usize = 2;

/// Superblocks of four rows before the next four: their activations stay in the nearest cache and leave room for the weights.
const SEGMENT: usize = 32;

/// Multiplies a k-quant with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    let blocks = args.k / 256;
    for first in (0..blocks).step_by(SEGMENT) {
        let end = blocks.min(first + SEGMENT);
        // SAFETY: forwarded, for superblocks of the rows.
        unsafe {
            fetched!(SECOND => segment::<FORMAT, SECOND>(args, first, end));
        }
    }
}

/// # Safety
/// As [`rows`], for superblocks from `first` to `end`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn segment<const FORMAT: u8, const SECOND: bool>(args: &RowsArgs, first: usize, end: usize) {
    let bytes = const { block_bytes(FORMAT) };
    let elements = Elements::hidden();
    // SAFETY: forwarded: records and superblocks up to `end`.
    unsafe {
        each_four_rows::<SECOND>(args, first == 0, |rows, mut acc| {
            let mut at = rows.map(|row| row.add(first * bytes));
            let mut x = args.x.cast::<X256>().add(first);
            for _ in 0..(end - first) / MOST {
                acc = some::<FORMAT, MOST, SECOND>(at, x, elements, acc);
                at = at.map(|at| at.add(MOST * bytes));
                x = x.add(MOST);
            }
            if !(end - first).is_multiple_of(MOST) {
                acc = some::<FORMAT, 1, SECOND>(at, x, elements, acc);
            }
            acc
        });
    }
}

/// Adds the products of `N` superblocks of four rows to their sums.
///
/// # Safety
/// At each address and at `x` are `N` superblocks or records.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn some<const FORMAT: u8, const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    x: *const X256,
    elements: &Elements,
    acc: __m128,
) -> __m128 {
    // SAFETY: forwarded.
    unsafe {
        match FORMAT {
            Q2_K => two_bits::<N, SECOND>(at, x, elements, acc),
            Q3_K | Q6_K => without_minimums::<FORMAT, N, SECOND>(at, x, elements, acc),
            _ => with_minimums::<FORMAT, N, SECOND>(at, x, acc),
        }
    }
}

/// Q4_K and Q5_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_minimums<const FORMAT: u8, const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    x: *const X256,
    acc: __m128,
) -> __m128 {
    let zero = _mm256_setzero_si256();
    let bytes = const { block_bytes(FORMAT) };
    // SAFETY: forwarded.
    let (rows, d_x) = unsafe {
        let column_sums = lanes::<N>((&raw const (*x).sums_32).cast(), size_of::<X256>());
        let row = |at: *const u8| {
            let header = lanes::<N>(at, bytes);
            let six = six_bit_scales(header);
            let scales = GroupScales::new(_mm256_unpacklo_epi8(six, zero));
            Fetch::<SECOND>::after(at, N * bytes);
            let sum = each_of::<N>(|i| {
                nibble_products::<FORMAT>(at.add(i * bytes), (&scales, i), &*x.add(i))
            });
            let minimums = _mm256_madd_epi16(_mm256_unpackhi_epi8(six, zero), column_sums);
            [add_halves(sum), minimums, header]
        };
        // Written out: a loop over them is left a loop, with its vectors in memory.
        let rows = [row(at[0]), row(at[1]), row(at[2]), row(at[3])];
        (rows, scales_of_x::<N>(x))
    };
    // A half is a superblock, each of its elements a row.
    let sums = _mm256_cvtepi32_ps(add_elements(rows.map(|row| row[0])));
    let minimums = _mm256_cvtepi32_ps(add_elements(rows.map(|row| row[1])));
    let headers = first_elements(rows.map(|row| row[2]));
    let d = widen_f16(headers);
    let d_min = widen_f16(_mm256_srli_epi32::<16>(headers));
    let d_min = _mm256_sub_ps(_mm256_set1_ps(-0.0), d_min);
    let (d, d_min) = (_mm256_mul_ps(d, d_x), _mm256_mul_ps(d_min, d_x));
    add_superblocks::<N, 2>([(sums, d), (minimums, d_min)], acc)
}

/// Q3_K and Q6_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn without_minimums<const FORMAT: u8, const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    x: *const X256,
    elements: &Elements,
    acc: __m128,
) -> __m128 {
    let bytes = const { block_bytes(FORMAT) };
    // SAFETY: forwarded; the scale ends a superblock.
    let (rows, d) = unsafe {
        let row = |at: *const u8| {
            Fetch::<SECOND>::after(at, N * bytes);
            add_halves(each_of::<N>(|i| {
                let (block, x) = (at.add(i * bytes), &*x.add(i));
                if FORMAT == Q3_K {
                    three_bit_products(block, elements, x)
                } else {
                    six_bit_products(block, elements, x)
                }
            }))
        };
        let rows = [row(at[0]), row(at[1]), row(at[2]), row(at[3])];
        let d = f16_of_superblocks::<N>(at, bytes - 2, bytes);
        (rows, _mm256_mul_ps(d, scales_of_x::<N>(x)))
    };
    let sums = _mm256_cvtepi32_ps(add_elements(rows));
    add_superblocks::<N, 1>([(sums, d)], acc)
}

/// Q2_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn two_bits<const N: usize, const SECOND: bool>(
    at: [*const u8; STREAMS],
    x: *const X256,
    elements: &Elements,
    acc: __m128,
) -> __m128 {
    let bytes = const { block_bytes(Q2_K) };
    let zero = _mm256_setzero_si256();
    // SAFETY: forwarded; the scales of levels and of minimums end a superblock.
    let (rows, d, d_min) = unsafe {
        let row = |at: *const u8| {
            Fetch::<SECOND>::after(at, N * bytes);
            let first = two_bit_products(at, elements, &*x);
            let second = if N == MOST {
                two_bit_products(at.add(bytes), elements, &*x.add(1))
            } else {
                [zero; 2]
            };
            [
                add_halves([first[0], second[0]]),
                add_halves([first[1], second[1]]),
            ]
        };
        let rows = [row(at[0]), row(at[1]), row(at[2]), row(at[3])];
        let d = f16_of_superblocks::<N>(at, bytes - 4, bytes);
        let d_min = f16_of_superblocks::<N>(at, bytes - 2, bytes);
        let d_min = _mm256_sub_ps(_mm256_set1_ps(-0.0), d_min);
        let d_x = scales_of_x::<N>(x);
        (rows, _mm256_mul_ps(d, d_x), _mm256_mul_ps(d_min, d_x))
    };
    let sums = _mm256_cvtepi32_ps(add_elements(rows.map(|row| row[0])));
    let minimums = _mm256_cvtepi32_ps(add_elements(rows.map(|row| row[1])));
    add_superblocks::<N, 2>([(sums, d), (minimums, d_min)], acc)
}

/// Adds sums times scales of the `N` superblocks in the halves to the sums of four rows, each superblock's `PARTS` in order.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_superblocks<const N: usize, const PARTS: usize>(
    parts: [(__m256, __m256); PARTS],
    mut acc: __m128,
) -> __m128 {
    for (sums, d) in parts {
        acc = _mm_fmadd_ps(_mm256_castps256_ps128(sums), _mm256_castps256_ps128(d), acc);
    }
    if N == MOST {
        for (sums, d) in parts {
            let (sums, d) = (
                _mm256_extractf128_ps::<1>(sums),
                _mm256_extractf128_ps::<1>(d),
            );
            acc = _mm_fmadd_ps(sums, d, acc);
        }
    }
    acc
}

/// The vectors of `N` superblocks; the others are zero.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn each_of<const N: usize>(of: impl Fn(usize) -> __m256i) -> [__m256i; MOST] {
    let first = of(0);
    let second = if N == MOST {
        of(1)
    } else {
        _mm256_setzero_si256()
    };
    [first, second]
}

/// The activations' scales of `N` superblocks, a half each.
///
/// # Safety
/// There are as many records.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn scales_of_x<const N: usize>(x: *const X256) -> __m256 {
    // SAFETY: forwarded.
    let of = |i: usize| unsafe { _mm_set1_ps((*x.add(i.min(N - 1))).d) };
    _mm256_set_m128(of(1), of(0))
}

/// The f16 at byte `from` of `N` superblocks of four rows: a half is a superblock, each of its elements a row.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn f16_of_superblocks<const N: usize>(
    at: [*const u8; STREAMS],
    from: usize,
    bytes: usize,
) -> __m256 {
    // SAFETY: forwarded.
    let of = |i: usize| unsafe {
        let from = from + i.min(N - 1) * bytes;
        at.map(|at| at.add(from).cast::<i16>().read_unaligned())
    };
    let ([a, b, c, d], [e, f, g, h]) = (of(0), of(1));
    _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h))
}

/// Scales and minimums of Q4_K and Q5_K from headers, one in each half: eight bytes of scales, eight of minimums. See
/// [`super::superblock`] for their bits.
#[inline]
#[target_feature(enable = "avx2")]
fn six_bit_scales(header: __m256i) -> __m256i {
    let elements = |a, b, c, d| _mm256_setr_epi32(a, b, c, d, a, b, c, d);
    let low = _mm256_shuffle_epi32::<0b11_10_11_01>(header);
    let low = _mm256_srlv_epi32(low, elements(0, 0, 0, 4));
    let (six, four) = (0x3F3F_3F3F, 0x0F0F_0F0F);
    let low = _mm256_and_si256(low, elements(six, four, six, four));
    let high = _mm256_srli_epi32::<2>(_mm256_shuffle_epi32::<0b10_10_01_01>(header));
    let top = 0x3030_3030;
    _mm256_or_si256(low, _mm256_and_si256(high, elements(0, top, 0, top)))
}

/// The first 16 bytes at each of `N` addresses, `stride` bytes apart, as halves.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn lanes<const N: usize>(first: *const u8, stride: usize) -> __m256i {
    // SAFETY: forwarded.
    unsafe {
        let v = _mm256_zextsi128_si256(_mm_loadu_si128(first.cast()));
        if N == 1 {
            return v;
        }
        let second = _mm_loadu_si128(first.add(stride).cast());
        _mm256_inserti128_si256::<1>(v, second)
    }
}
