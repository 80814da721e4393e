//! The k-quants times one token, row by row: lanes are columns.
//!
//! Unpacking a superblock for eight rows at a time costs more than one token's products. Here each row's bytes are read in order, and
//! only the whole-number sums of a superblock are turned so that a lane is a row: they are exact, so their order does not matter, and
//! what is added to the accumulators is bit for bit what the tile adds.

#![allow(
    clippy::needless_range_loop,
    reason = "superblocks index addresses and arrays together"
)]

use super::lines::{HALF_ROWS, field, load_f16, widen_f16};
use super::reduce::{first_of_halves, sum_halves_i32, sum_i32};
use crate::matmul::ahead::Ahead;
use crate::matmul::panel::{DirectArgs, LINE_BYTES, PANEL_ROWS, X256};
use millrace_quant::DType;
use std::arch::x86_64::*;
use std::hint::black_box;

/// Formats; the codes are const parameters.
pub(in crate::x86) const Q4_K: u8 = 0;
pub(in crate::x86) const Q5_K: u8 = 1;
pub(in crate::x86) const Q6_K: u8 = 2;
pub(in crate::x86) const Q2_K: u8 = 3;
pub(in crate::x86) const Q3_K: u8 = 4;

/// Superblocks of a row that are summed together: one for each 128-bit half.
const MOST: usize = 2;

const fn block_bytes(format: u8) -> usize {
    match format {
        Q4_K => DType::Q4K.block_bytes(),
        Q5_K => DType::Q5K.block_bytes(),
        Q2_K => DType::Q2K.block_bytes(),
        Q3_K => DType::Q3K.block_bytes(),
        _ => DType::Q6K.block_bytes(),
    }
}

/// Multiplies a k-quant with one token.
///
/// # Safety
/// As [`crate::matmul::panel::DirectFn`], with one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::x86) unsafe fn direct_row<const FORMAT: u8>(args: &DirectArgs) {
    let blocks = args.source.k / 256;
    for first in (0..PANEL_ROWS).step_by(HALF_ROWS) {
        let mut b = 0;
        // SAFETY: forwarded, for eight rows and superblocks of the chunk.
        unsafe {
            while b + MOST <= blocks {
                eight_rows::<FORMAT, MOST>(args, first, b);
                b += MOST;
            }
            if b < blocks {
                eight_rows::<FORMAT, 1>(args, first, b);
            }
        }
    }
}

/// # Safety
/// As [`direct_row`], for eight rows from `first` and `N` superblocks from `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn eight_rows<const FORMAT: u8, const N: usize>(args: &DirectArgs, first: usize, b: usize) {
    // SAFETY: forwarded.
    unsafe {
        match FORMAT {
            Q2_K => two_bits::<N>(args, first, b),
            Q3_K | Q6_K => without_minimums::<FORMAT, N>(args, first, b),
            _ => with_minimums::<FORMAT, N>(args, first, b),
        }
    }
}

/// Fetches the bytes ahead as far as superblock `b` of a row reaches. A line that two superblocks share is asked for twice: a loop without
/// branches is worth more.
#[inline(always)]
fn fetch<const FORMAT: u8>(ahead: &Ahead, row: usize, b: usize) {
    let bytes = block_bytes(FORMAT);
    for line in 0..bytes.div_ceil(LINE_BYTES) {
        ahead.fetch_at(row, b * bytes + line * LINE_BYTES);
    }
}

/// Q4_K and Q5_K.
///
/// # Safety
/// As [`eight_rows`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_minimums<const FORMAT: u8, const N: usize>(
    args: &DirectArgs,
    first: usize,
    b: usize,
) {
    let zero = _mm256_setzero_si256();
    let elements = Elements::hidden();
    let mut sums = [[zero; HALF_ROWS]; N];
    let (mut minimums, mut headers) = ([zero; HALF_ROWS], [zero; HALF_ROWS]);
    // SAFETY: forwarded: eight rows of `N` superblocks, as many records, eight accumulators.
    unsafe {
        let x = args.x.cast::<X256>().add(b);
        let bytes = block_bytes(FORMAT);
        let rows = args.source.base.add(first * args.source.stride + b * bytes);
        let column_sums = lanes::<N>((&raw const (*x).sums_32).cast(), size_of::<X256>());
        for r in 0..HALF_ROWS {
            let at = rows.add(r * args.source.stride);
            let header = lanes::<N>(at, bytes);
            let six = six_bit_scales(header);
            let scales = in_both_halves(_mm256_unpacklo_epi8(six, zero));
            for i in 0..N {
                fetch::<FORMAT>(&args.source.ahead, first + r, b + i);
                sums[i][r] =
                    nibble_products::<FORMAT>(at.add(i * bytes), scales[i], elements, &*x.add(i));
            }
            minimums[r] = _mm256_madd_epi16(_mm256_unpackhi_epi8(six, zero), column_sums);
            headers[r] = header;
        }
        let minimums = sum_halves_i32(minimums);
        let headers = first_of_halves(headers);
        let mut acc = _mm256_load_ps(args.acc.add(first));
        for i in 0..N {
            let d_x = _mm256_set1_ps((*x.add(i)).d);
            let d = widen_f16(headers[i]);
            let d_min = widen_f16(_mm256_srli_epi32::<16>(headers[i]));
            let d_min = _mm256_sub_ps(_mm256_set1_ps(-0.0), d_min);
            let sum = _mm256_cvtepi32_ps(sum_i32(sums[i]));
            acc = _mm256_fmadd_ps(sum, _mm256_mul_ps(d, d_x), acc);
            let minimum = _mm256_cvtepi32_ps(minimums[i]);
            acc = _mm256_fmadd_ps(minimum, _mm256_mul_ps(d_min, d_x), acc);
        }
        _mm256_store_ps(args.acc.add(first), acc);
    }
}

/// Q3_K and Q6_K.
///
/// # Safety
/// As [`eight_rows`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn without_minimums<const FORMAT: u8, const N: usize>(
    args: &DirectArgs,
    first: usize,
    b: usize,
) {
    let elements = Elements::hidden();
    let mut sums = [[_mm256_setzero_si256(); HALF_ROWS]; N];
    // SAFETY: forwarded: eight rows of `N` superblocks, as many records, eight accumulators.
    unsafe {
        let x = args.x.cast::<X256>().add(b);
        let bytes = block_bytes(FORMAT);
        let rows = args.source.base.add(first * args.source.stride + b * bytes);
        for r in 0..HALF_ROWS {
            let at = rows.add(r * args.source.stride);
            for i in 0..N {
                fetch::<FORMAT>(&args.source.ahead, first + r, b + i);
                let (block, x) = (at.add(i * bytes), &*x.add(i));
                sums[i][r] = if FORMAT == Q3_K {
                    three_bit_products(block, elements, x)
                } else {
                    six_bit_products(block, elements, x)
                };
            }
        }
        let mut acc = _mm256_load_ps(args.acc.add(first));
        for i in 0..N {
            // The scale ends a superblock.
            let d = load_f16(rows.add((i + 1) * bytes - 2), args.source.stride);
            let d_x = _mm256_set1_ps((*x.add(i)).d);
            let sum = _mm256_cvtepi32_ps(sum_i32(sums[i]));
            acc = _mm256_fmadd_ps(sum, _mm256_mul_ps(d, d_x), acc);
        }
        _mm256_store_ps(args.acc.add(first), acc);
    }
}

/// Q2_K.
///
/// # Safety
/// As [`eight_rows`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn two_bits<const N: usize>(args: &DirectArgs, first: usize, b: usize) {
    let elements = Elements::hidden();
    let mut sums = [[_mm256_setzero_si256(); HALF_ROWS]; N];
    let mut minimums = sums;
    // SAFETY: forwarded: eight rows of `N` superblocks, as many records, eight accumulators.
    unsafe {
        let (x, stride) = (args.x.cast::<X256>().add(b), args.source.stride);
        let bytes = block_bytes(Q2_K);
        let rows = args.source.base.add(first * stride + b * bytes);
        for r in 0..HALF_ROWS {
            for i in 0..N {
                fetch::<Q2_K>(&args.source.ahead, first + r, b + i);
                let block = rows.add(r * stride + i * bytes);
                [sums[i][r], minimums[i][r]] = two_bit_products(block, elements, &*x.add(i));
            }
        }
        let mut acc = _mm256_load_ps(args.acc.add(first));
        for i in 0..N {
            let d = load_f16(rows.add(i * bytes + 80), stride);
            let d_min = load_f16(rows.add(i * bytes + 82), stride);
            let d_min = _mm256_sub_ps(_mm256_set1_ps(-0.0), d_min);
            let d_x = _mm256_set1_ps((*x.add(i)).d);
            let sum = _mm256_cvtepi32_ps(sum_i32(sums[i]));
            acc = _mm256_fmadd_ps(sum, _mm256_mul_ps(d, d_x), acc);
            let minimum = _mm256_cvtepi32_ps(sum_i32(minimums[i]));
            acc = _mm256_fmadd_ps(minimum, _mm256_mul_ps(d_min, d_x), acc);
        }
        _mm256_store_ps(args.acc.add(first), acc);
    }
}

/// Scaled products of a row's superblock, to be added up over all lanes. `scales`: eight i16 in both halves.
///
/// Pairs of products fit 16 bits: 2 · 31 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibble_products<const FORMAT: u8>(
    block: *const u8,
    scales: __m256i,
    elements: &Elements,
    x: &X256,
) -> __m256i {
    let bit = _mm256_set1_epi8(0x10);
    let mut sum = _mm256_setzero_si256();
    // SAFETY: fields are where ggml's `block_*` structures have them.
    unsafe {
        let (nibbles, mut fifth) = if FORMAT == Q4_K {
            (block.add(16), _mm256_setzero_si256())
        } else {
            (block.add(48), _mm256_loadu_si256(block.add(16).cast()))
        };
        for pair in 0..4 {
            let v = _mm256_loadu_si256(nibbles.add(32 * pair).cast());
            let mut parts = [field::<0>(v, 0x0F), field::<4>(v, 0x0F)];
            if FORMAT == Q5_K {
                let low = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth), bit);
                let high = _mm256_and_si256(_mm256_slli_epi16::<3>(fifth), bit);
                parts = [
                    _mm256_or_si256(parts[0], low),
                    _mm256_or_si256(parts[1], high),
                ];
                fifth = _mm256_srli_epi16::<2>(fifth);
            }
            for (odd, part) in parts.into_iter().enumerate() {
                let group = 2 * pair + odd;
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * group).cast());
                let scaled =
                    _mm256_madd_epi16(_mm256_maddubs_epi16(part, x), elements.of(scales, group));
                sum = _mm256_add_epi32(sum, scaled);
            }
        }
    }
    sum
}

/// As [`nibble_products`], of Q6_K. Pairs of products: 2 · 63 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn six_bit_products(block: *const u8, elements: &Elements, x: &X256) -> __m256i {
    let upper = |v| _mm256_and_si256(v, _mm256_set1_epi8(0x30));
    // SAFETY: fields are where ggml's `block_q6_K` has them.
    unsafe {
        let scales = _mm_loadu_si128(block.add(192).cast());
        // What the elements' offset of 32 takes away.
        let column_sums = _mm256_loadu_si256(x.sums_16.as_ptr().cast());
        let offset = _mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), column_sums);
        let mut sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<5>(offset));
        let scales = of_sixteens(scales);
        for half in 0..2 {
            let first = _mm256_loadu_si256(block.add(64 * half).cast());
            let second = _mm256_loadu_si256(block.add(64 * half + 32).cast());
            let high = _mm256_loadu_si256(block.add(128 + 32 * half).cast());
            let parts = [
                (field::<0>(first, 0x0F), _mm256_slli_epi16::<4>(high)),
                (field::<0>(second, 0x0F), _mm256_slli_epi16::<2>(high)),
                (field::<4>(first, 0x0F), high),
                (field::<4>(second, 0x0F), _mm256_srli_epi16::<2>(high)),
            ];
            for (i, (low, high)) in parts.into_iter().enumerate() {
                let i = 4 * half + i;
                let v = _mm256_or_si256(low, upper(high));
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * i).cast());
                let scaled = _mm256_madd_epi16(_mm256_maddubs_epi16(v, x), elements.of(scales, i));
                sum = _mm256_add_epi32(sum, scaled);
            }
        }
        sum
    }
}

/// As [`six_bit_products`], of Q3_K. Pairs of products: 2 · 7 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn three_bit_products(block: *const u8, elements: &Elements, x: &X256) -> __m256i {
    // SAFETY: fields are where ggml's `block_q3_K` has them.
    unsafe {
        let low = _mm_shuffle_epi32::<0b01_00_01_00>(_mm_loadl_epi64(block.add(96).cast()));
        let low = _mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 4, 4));
        let upper = _mm_set1_epi32(block.add(104).cast::<i32>().read_unaligned());
        let upper = _mm_srlv_epi32(upper, _mm_setr_epi32(0, 2, 4, 6));
        let upper = _mm_slli_epi32::<4>(_mm_and_si128(upper, _mm_set1_epi8(3)));
        let six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(0x0F)), upper);
        let scales = _mm_sub_epi8(six, _mm_set1_epi8(32));
        // What the levels' offset of 4 takes away.
        let column_sums = _mm256_loadu_si256(x.sums_16.as_ptr().cast());
        let offset = _mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), column_sums);
        let mut sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<2>(offset));
        let scales = of_sixteens(scales);
        let mut third = _mm256_loadu_si256(block.cast());
        for half in 0..2 {
            let mut low = _mm256_loadu_si256(block.add(32 + 32 * half).cast());
            for i in 4 * half..4 * half + 4 {
                let bit = _mm256_and_si256(third, _mm256_set1_epi8(1));
                let v = _mm256_or_si256(field::<0>(low, 3), _mm256_slli_epi16::<2>(bit));
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * i).cast());
                let scaled = _mm256_madd_epi16(_mm256_maddubs_epi16(v, x), elements.of(scales, i));
                sum = _mm256_add_epi32(sum, scaled);
                low = _mm256_srli_epi16::<2>(low);
                third = _mm256_srli_epi16::<1>(third);
            }
        }
        sum
    }
}

/// As [`six_bit_products`], of Q2_K, and the products of its minimums.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn two_bit_products(block: *const u8, elements: &Elements, x: &X256) -> [__m256i; 2] {
    // SAFETY: fields are where ggml's `block_q2_K` has them.
    unsafe {
        let both = _mm_loadu_si128(block.cast());
        let nibble = _mm_set1_epi8(0x0F);
        let minimums = _mm_and_si128(_mm_srli_epi16::<4>(both), nibble);
        let column_sums = _mm256_loadu_si256(x.sums_16.as_ptr().cast());
        let minimums = _mm256_madd_epi16(_mm256_cvtepi8_epi16(minimums), column_sums);
        let scales = of_sixteens(_mm_and_si128(both, nibble));
        let mut sum = _mm256_setzero_si256();
        for half in 0..2 {
            let mut low = _mm256_loadu_si256(block.add(16 + 32 * half).cast());
            for i in 4 * half..4 * half + 4 {
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * i).cast());
                let pairs = _mm256_maddubs_epi16(field::<0>(low, 3), x);
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, elements.of(scales, i)));
                low = _mm256_srli_epi16::<2>(low);
            }
        }
        [sum, minimums]
    }
}

/// Sixteen scales as i16, even ones in the lower half, odd ones in the upper: vectors of levels are two groups of 16 columns.
#[inline]
#[target_feature(enable = "avx2")]
fn of_sixteens(scales: __m128i) -> __m256i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, order))
}

/// For each i16 of a half: the bytes that repeat it all over the half.
struct Elements([[u8; 32]; 8]);

impl Elements {
    const ALL: Elements = {
        let mut orders = [[0; 32]; 8];
        let mut i = 0;
        while i < 8 * 32 {
            orders[i / 32][i % 32] = (2 * (i / 32) + (i % 2)) as u8;
            i += 1;
        }
        Elements(orders)
    };

    /// Hidden from the compiler, which makes two shuffles of each one that it knows.
    #[inline]
    fn hidden() -> &'static Elements {
        black_box(&Elements::ALL)
    }

    /// The `i`-th i16 of each half, in all of the half.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(&self, v: __m256i, i: usize) -> __m256i {
        // SAFETY: 32 readable bytes.
        let order = unsafe { _mm256_loadu_si256(self.0[i].as_ptr().cast()) };
        _mm256_shuffle_epi8(v, order)
    }
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

/// Half `i` in both halves of vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn in_both_halves(v: __m256i) -> [__m256i; MOST] {
    [
        _mm256_permute2x128_si256::<0x00>(v, v),
        _mm256_permute2x128_si256::<0x11>(v, v),
    ]
}
