//! The k-quants times one token, row by row: lanes are columns.
//!
//! Unpacking a superblock for sixteen rows at a time costs more than one token's products. Here each row's bytes are read in order, and
//! only the whole-number sums of a superblock are turned so that a lane is a row: they are exact, so their order does not matter, and
//! what is added to the accumulators is bit for bit what the tile adds.

#![allow(
    clippy::needless_range_loop,
    reason = "superblocks index addresses and arrays together"
)]

use super::superblock_lines::{Q4_K, Q5_K, Q6_K, dtype};
use super::transpose::{load_f16, transpose_lanes};
use crate::matmul::panel::{Ahead, DirectArgs, LINE_BYTES, PANEL_ROWS, X256};
use std::arch::x86_64::*;

/// Superblocks of a row that are summed together: one for each 128-bit lane.
const MOST: usize = 4;

/// What all rows need of the activations of a few superblocks.
#[repr(align(64))]
struct Columns {
    /// Bytes in the order in which a format's nibbles come.
    q: [[[u8; LINE_BYTES]; 4]; MOST],
}

/// Multiplies [`Q4_K`], [`Q5_K`] or [`Q6_K`] with one token.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn direct_row<const FORMAT: u8>(args: &DirectArgs) {
    let blocks = args.source.k / 256;
    let mut b = 0;
    // SAFETY: forwarded, for superblocks of the chunk.
    unsafe {
        while b + MOST <= blocks {
            some::<FORMAT, MOST>(args, b);
            b += MOST;
        }
        if b + 2 <= blocks {
            some::<FORMAT, 2>(args, b);
            b += 2;
        }
        if b < blocks {
            some::<FORMAT, 1>(args, b);
        }
    }
}

/// # Safety
/// As [`direct_row`], for `N` superblocks from `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn some<const FORMAT: u8, const N: usize>(args: &DirectArgs, b: usize) {
    // SAFETY: forwarded.
    unsafe {
        if matches!(FORMAT, Q4_K | Q5_K) {
            with_minimums::<FORMAT, N>(args, b);
        } else {
            six_bits::<N>(args, b);
        }
    }
}

/// Fetches the bytes ahead as far as superblock `b` of a row reaches. A line that two superblocks share is asked for twice: a loop without
/// branches is worth more.
#[inline(always)]
fn fetch<const FORMAT: u8>(ahead: &Ahead, row: usize, b: usize) {
    let bytes = dtype(FORMAT).block_bytes();
    for line in 0..bytes.div_ceil(LINE_BYTES) {
        ahead.fetch_at(row, b * bytes + line * LINE_BYTES);
    }
}

/// Q4_K and Q5_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn with_minimums<const FORMAT: u8, const N: usize>(args: &DirectArgs, b: usize) {
    let mut columns = Columns {
        q: [[[0; LINE_BYTES]; 4]; MOST],
    };
    let zero = _mm512_setzero_si512();
    let (mut sums, mut minimums, mut headers) = ([zero; 4], [zero; 4], [zero; 4]);
    // SAFETY: forwarded: sixteen rows of `N` superblocks, as many records, one row of accumulators.
    unsafe {
        let x = args.x.cast::<X256>().add(b);
        let block_bytes = dtype(FORMAT).block_bytes();
        let first = args.source.base.add(b * block_bytes);
        for i in 0..N {
            order_for_nibbles(&*x.add(i), &mut columns.q[i]);
        }
        let column_sums = lanes::<N>((&raw const (*x).sums_32).cast(), size_of::<X256>());
        for quad in 0..4 {
            let mut rows = [[zero; 3]; 4];
            for (r, to) in rows.iter_mut().enumerate() {
                let row = 4 * quad + r;
                let at = first.add(row * args.source.stride);
                let header = lanes::<N>(at, block_bytes);
                let scales = six_bit_scales(header);
                let low = _mm512_unpacklo_epi8(scales, zero);
                let high = _mm512_unpackhi_epi8(scales, zero);
                let low = in_all_lanes(low);
                let mut sum = [zero; 4];
                for i in 0..N {
                    fetch::<FORMAT>(&args.source.ahead, row, b + i);
                    let block = at.add(i * block_bytes);
                    sum[i] = nibble_products::<FORMAT>(block, low[i], &columns.q[i]);
                }
                *to = [add_lanes(sum), _mm512_madd_epi16(high, column_sums), header];
            }
            sums[quad] = add_elements(rows.map(|row| row[0]));
            minimums[quad] = add_elements(rows.map(|row| row[1]));
            headers[quad] = first_elements(rows.map(|row| row[2]));
        }
        let sums = transpose_lanes(sums);
        let minimums = transpose_lanes(minimums);
        let headers = transpose_lanes(headers);
        let mut acc = _mm512_load_ps(args.acc);
        for i in 0..N {
            let d_x = _mm512_set1_ps((*x.add(i)).d);
            let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(headers[i]));
            let d_min = _mm512_srli_epi32::<16>(headers[i]);
            let d_min = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d_min));
            let d_min = _mm512_sub_ps(_mm512_set1_ps(-0.0), d_min);
            let sum = _mm512_cvtepi32_ps(sums[i]);
            acc = _mm512_fmadd_ps(sum, _mm512_mul_ps(d, d_x), acc);
            let minimum = _mm512_cvtepi32_ps(minimums[i]);
            acc = _mm512_fmadd_ps(minimum, _mm512_mul_ps(d_min, d_x), acc);
        }
        _mm512_store_ps(args.acc, acc);
    }
}

/// Q6_K.
///
/// # Safety
/// As [`some`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn six_bits<const N: usize>(args: &DirectArgs, b: usize) {
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; 4];
    // SAFETY: forwarded: sixteen rows of `N` superblocks, as many records, one row of accumulators.
    unsafe {
        let x = args.x.cast::<X256>().add(b);
        let block_bytes = dtype(Q6_K).block_bytes();
        let first = args.source.base.add(b * block_bytes);
        for (quad, sums) in sums.iter_mut().enumerate() {
            let mut rows = [zero; 4];
            for (r, to) in rows.iter_mut().enumerate() {
                let row = 4 * quad + r;
                let at = first.add(row * args.source.stride);
                let mut sum = [zero; 4];
                for i in 0..N {
                    fetch::<Q6_K>(&args.source.ahead, row, b + i);
                    sum[i] = six_bit_products(at.add(i * block_bytes), &*x.add(i));
                }
                *to = add_lanes(sum);
            }
            *sums = add_elements(rows);
        }
        let sums = transpose_lanes(sums);
        let mut acc = _mm512_load_ps(args.acc);
        for i in 0..N {
            let d = load_f16(first.add(i * block_bytes + 208), args.source.stride);
            let d_x = _mm512_set1_ps((*x.add(i)).d);
            let sum = _mm512_cvtepi32_ps(sums[i]);
            acc = _mm512_fmadd_ps(sum, _mm512_mul_ps(d, d_x), acc);
        }
        _mm512_store_ps(args.acc, acc);
    }
}

/// Scaled products of a row's superblock, to be added up over all lanes. `scales`: eight i16 in every 128-bit lane.
///
/// Pairs of products fit 16 bits: 2 · 31 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn nibble_products<const FORMAT: u8>(
    block: *const u8,
    scales: __m512i,
    x: &[[u8; LINE_BYTES]; 4],
) -> __m512i {
    let mask = _mm512_set1_epi8(0x0F);
    let mut sum = _mm512_setzero_si512();
    // SAFETY: fields are where ggml's `block_*` structures have them.
    unsafe {
        let (nibbles, fifth) = if FORMAT == Q4_K {
            (block.add(16), _mm512_setzero_si512())
        } else {
            let fifth = _mm256_loadu_si256(block.add(16).cast());
            (block.add(48), _mm512_broadcast_i64x4(fifth))
        };
        for half in 0..2 {
            let v = _mm512_loadu_si512(nibbles.add(LINE_BYTES * half).cast());
            let mut parts = [v, _mm512_srli_epi16::<4>(v)].map(|v| _mm512_and_si512(v, mask));
            for (odd, part) in parts.iter_mut().enumerate() {
                // The groups of 32 columns in the lower and upper half of the vector.
                let (group, other) = (4 * half + odd, 4 * half + odd + 2);
                if FORMAT == Q5_K {
                    let bit = _mm512_rolv_epi32(fifth, halves(4 - group as i32, 4 - other as i32));
                    let bit = _mm512_and_si512(bit, _mm512_set1_epi8(0x10));
                    *part = _mm512_or_si512(*part, bit);
                }
                let pair = |group: usize| (2 * group) as i32 * 0x0101_0101 + 0x0100_0100;
                let order = halves(pair(group), pair(other));
                let scale = _mm512_shuffle_epi8(scales, order);
                let x = _mm512_load_si512(x[2 * half + odd].as_ptr().cast());
                sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(*part, x), scale);
            }
        }
    }
    sum
}

/// As [`nibble_products`] of Q6_K. Pairs of products: 2 · 63 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn six_bit_products(block: *const u8, x: &X256) -> __m512i {
    let mask = _mm512_set1_epi8(0x0F);
    let upper = _mm512_set1_epi8(0x30);
    // SAFETY: fields are where ggml's `block_q6_K` has them.
    unsafe {
        let scales = _mm_loadu_si128(block.add(192).cast());
        // What the elements' offset adds.
        let offset = _mm512_loadu_si512(x.offset_32.as_ptr().cast());
        let mut sum = _mm512_mullo_epi32(_mm512_cvtepi8_epi32(scales), offset);
        let scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(scales));
        for half in 0..2 {
            let low = _mm512_loadu_si512(block.add(64 * half).cast());
            let high = _mm256_loadu_si256(block.add(128 + 32 * half).cast());
            let high = _mm512_broadcast_i64x4(high);
            let parts = [
                (low, _mm512_sllv_epi32(high, halves(4, 2))),
                (
                    _mm512_srli_epi16::<4>(low),
                    _mm512_srlv_epi32(high, halves(0, 2)),
                ),
            ];
            for (i, (low, high)) in parts.into_iter().enumerate() {
                let i = 2 * half + i;
                let v = _mm512_or_si512(_mm512_and_si512(low, mask), _mm512_and_si512(high, upper));
                let x = _mm512_loadu_si512(x.q.as_ptr().add(64 * i).cast());
                let order = quarters(|lane| (4 * i as i32 + lane) * 0x0001_0001);
                let scale = _mm512_permutexvar_epi16(order, scales);
                sum = _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(v, x), scale);
            }
        }
        sum
    }
}

/// Stores a superblock's activations in the order of nibbles: groups of 32 columns 0 and 2, 1 and 3, 4 and 6, 5 and 7.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn order_for_nibbles(x: &X256, to: &mut [[u8; LINE_BYTES]; 4]) {
    for half in 0..2 {
        // SAFETY: lines of 64 bytes within the arrays.
        unsafe {
            let q = x.q.as_ptr().add(128 * half);
            let a = _mm512_loadu_si512(q.cast());
            let b = _mm512_loadu_si512(q.add(64).cast());
            let even = _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b);
            let odd = _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b);
            _mm512_storeu_si512(to[2 * half].as_mut_ptr().cast(), even);
            _mm512_storeu_si512(to[2 * half + 1].as_mut_ptr().cast(), odd);
        }
    }
}

/// Scales and minimums of Q4_K and Q5_K from headers, one a lane: eight bytes of scales, eight of minimums. See
/// [`super::superblock_lines`] for their bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn six_bit_scales(header: __m512i) -> __m512i {
    let elements = |a, b, c, d| _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d));
    let low = _mm512_shuffle_epi32::<0b11_10_11_01>(header);
    let low = _mm512_srlv_epi32(low, elements(0, 0, 0, 4));
    let (six, four) = (0x3F3F_3F3F, 0x0F0F_0F0F);
    let low = _mm512_and_si512(low, elements(six, four, six, four));
    let high = _mm512_srli_epi32::<2>(_mm512_shuffle_epi32::<0b10_10_01_01>(header));
    let top = 0x3030_3030;
    _mm512_or_si512(low, _mm512_and_si512(high, elements(0, top, 0, top)))
}

/// The first 16 bytes at each of `N` addresses, `stride` bytes apart, as lanes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn lanes<const N: usize>(first: *const u8, stride: usize) -> __m512i {
    // SAFETY: forwarded.
    let at = |i: usize| unsafe { _mm_loadu_si128(first.add(i * stride).cast()) };
    let mut v = _mm512_zextsi128_si512(at(0));
    if N > 1 {
        v = _mm512_inserti32x4::<1>(v, at(1));
    }
    if N > 2 {
        v = _mm512_inserti32x4::<2>(v, at(2));
        v = _mm512_inserti32x4::<3>(v, at(3));
    }
    v
}

/// Lane `i` in all lanes of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn in_all_lanes(v: __m512i) -> [__m512i; 4] {
    [
        _mm512_shuffle_i32x4::<0b00_00_00_00>(v, v),
        _mm512_shuffle_i32x4::<0b01_01_01_01>(v, v),
        _mm512_shuffle_i32x4::<0b10_10_10_10>(v, v),
        _mm512_shuffle_i32x4::<0b11_11_11_11>(v, v),
    ]
}

/// A 32-bit number for the lower and one for the upper half.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn halves(low: i32, high: i32) -> __m512i {
    quarters(|lane| if lane < 2 { low } else { high })
}

/// A 32-bit number for each 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn quarters(of_lane: impl Fn(i32) -> i32) -> __m512i {
    let [a, b, c, d] = [of_lane(0), of_lane(1), of_lane(2), of_lane(3)];
    _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d)
}

/// Lane `i` of the result is the sum of the lanes of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_lanes([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let even_and_odd = |a, b| {
        let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
        _mm512_add_epi32(even, _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b))
    };
    even_and_odd(even_and_odd(a, b), even_and_odd(c, d))
}

/// In each lane, element `i` of the result is the sum of the elements of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_elements([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let pair = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pair(a, b), pair(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// In each lane, element `i` of the result is the first element of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn first_elements([a, b, c, d]: [__m512i; 4]) -> __m512i {
    _mm512_unpacklo_epi64(_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d))
}

const _: () = assert!(PANEL_ROWS == 16);
