//! IQ1_* and TQ*: three levels, of IQ1_* moved by an eighth. Bytes are where the formats' files in `quant` have them.

use super::codebook::points_of_8;
use super::{BlockLevels, OneScale, Unpack, times_odd};
use crate::x86::avx2::lines::{load_f16, load_u32, widen_f16};
use millrace_quant::{DType, codebooks};
use std::arch::x86_64::*;

/// A little-endian u16 at any address.
///
/// # Safety
/// Two readable bytes.
#[inline(always)]
unsafe fn u16_at(at: *const u8) -> usize {
    // SAFETY: forwarded.
    usize::from(unsafe { at.cast::<u16>().read_unaligned() })
}

/// Eight times points of IQ1_*, plus `more`.
#[inline]
#[target_feature(enable = "avx2")]
fn eighths(points: __m256i, more: __m256i) -> BlockLevels {
    // Bits shifted over from the lower byte are below the bits kept.
    let v = _mm256_slli_epi16::<3>(points);
    let v = _mm256_and_si256(v, _mm256_set1_epi8(-8));
    BlockLevels::unsigned(_mm256_add_epi8(v, more))
}

/// IQ1_S, in eighths.
pub(crate) struct Iq1S;

impl Unpack for Iq1S {
    const DTYPE: DType = DType::Iq1S;
    const SCALES: usize = 1;
    const OFFSET: u8 = 9;
    const LARGEST: u8 = 18;
    /// An eighth of blocks' scales.
    type Header = __m256;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        unsafe { _mm256_mul_ps(load_f16(block, stride), _mm256_set1_ps(1.0 / 8.0)) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(d: __m256, block: *const u8, stride: usize, j: usize) -> [__m256; 2] {
        // SAFETY: two bytes before the word are the block's too.
        let words = unsafe { load_u32(block.add(32 + 2 * j), stride) };
        [times_odd(d, words, 16 + 12, 7); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let (low, word) = (block.add(2 + 4 * j), u16_at(block.add(34 + 2 * j)));
            let points = points_of_8(&codebooks::IQ1_S, |i| {
                usize::from(*low.add(i)) | (word >> (3 * i) & 7) << 8
            });
            let more = if word >> 15 == 0 { 9 + 1 } else { 9 - 1 };
            eighths(points, _mm256_set1_epi8(more))
        }
    }
}

/// IQ1_M, in eighths.
pub(crate) struct Iq1M;

impl Unpack for Iq1M {
    const DTYPE: DType = DType::Iq1M;
    const SCALES: usize = 2;
    const OFFSET: u8 = 9;
    const LARGEST: u8 = 18;
    /// An eighth of blocks' scales, and sixteen codes of three bits, four of them in the lower bits of each half lane.
    type Header = (__m256, [__m256i; 2]);

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        let words = unsafe {
            let first = load_u32(block.add(48), stride);
            [first, load_u32(block.add(52), stride)]
        };
        // A quarter of d is at the top of each half of a lane.
        let low = _mm256_srli_epi32::<12>(words[0]);
        let quarter = |v, mask| _mm256_and_si256(v, _mm256_set1_epi32(mask));
        let d = _mm256_or_si256(
            _mm256_or_si256(
                quarter(low, 0xF),
                quarter(_mm256_srli_epi32::<12>(low), 0xF0),
            ),
            _mm256_or_si256(
                quarter(_mm256_srli_epi32::<4>(words[1]), 0xF00),
                quarter(_mm256_srli_epi32::<16>(words[1]), 0xF000),
            ),
        );
        let d = _mm256_mul_ps(widen_f16(d), _mm256_set1_ps(1.0 / 8.0));
        (d, words)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales((d, words): Self::Header, _: *const u8, _: usize, j: usize) -> [__m256; 2] {
        let word = if j < 4 { words[0] } else { words[1] };
        let shift = 16 * (j / 2 % 2) + 6 * (j % 2);
        [
            times_odd(d, word, shift, 7),
            times_odd(d, word, shift + 3, 7),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let (low, nibbles) = (block.add(4 * j), u16_at(block.add(32 + 2 * j)));
            let points = points_of_8(&codebooks::IQ1_S, |i| {
                usize::from(*low.add(i)) | (nibbles >> (4 * i) & 7) << 8
            });
            // The fourth bit of a point's nibble: an eighth is taken off.
            let bit = _mm256_set1_epi64x(nibbles as i64);
            let own = _mm256_setr_epi64x(1 << 3, 1 << 7, 1 << 11, 1 << 15);
            let negative = _mm256_cmpeq_epi64(_mm256_and_si256(bit, own), own);
            let more =
                _mm256_blendv_epi8(_mm256_set1_epi8(9 + 1), _mm256_set1_epi8(9 - 1), negative);
            eighths(points, more)
        }
    }
}

/// TQ1_0.
pub(crate) struct Tq1_0;

/// Powers of 3 that bring the digits of each two bytes to the top.
static DIGITS: [[i16; 16]; 8] = [
    [1; 16],
    [3; 16],
    [9; 16],
    [27; 16],
    [81; 16],
    [1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3],
    [9, 9, 9, 9, 9, 9, 9, 9, 27, 27, 27, 27, 27, 27, 27, 27],
    [81, 81, 81, 81, 81, 81, 81, 81, 1, 1, 3, 3, 9, 9, 27, 27],
];

impl OneScale for Tq1_0 {
    const DTYPE: DType = DType::Tq1_0;
    const OFFSET: u8 = 1;
    const LARGEST: u8 = 2;
    const SCALE_AT: usize = 52;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let sixteen = |at: usize| _mm_loadu_si128(block.add(at).cast());
            let bytes = match j {
                0..5 => _mm256_loadu_si256(block.cast()),
                5 | 6 => _mm256_broadcastsi128_si256(sixteen(32)),
                _ => {
                    let four = block.add(48).cast::<i32>().read_unaligned();
                    _mm256_set_m128i(_mm_set1_epi32(four), sixteen(32))
                }
            };
            let power = _mm256_loadu_si256(DIGITS[j].as_ptr().cast());
            let three = _mm256_set1_epi16(3);
            // Bits of a byte beyond the top of 16 bits are lost, and three times the rest has the digit above it.
            let even = _mm256_mullo_epi16(_mm256_slli_epi16::<8>(bytes), power);
            let odd = _mm256_and_si256(bytes, _mm256_set1_epi16(0xFF00_u16.cast_signed()));
            let odd = _mm256_mullo_epi16(odd, power);
            let odd = _mm256_slli_epi16::<8>(_mm256_mulhi_epu16(odd, three));
            BlockLevels::unsigned(_mm256_or_si256(_mm256_mulhi_epu16(even, three), odd))
        }
    }
}

/// TQ2_0.
pub(crate) struct Tq2_0;

impl OneScale for Tq2_0 {
    const DTYPE: DType = DType::Tq2_0;
    const OFFSET: u8 = 1;
    const LARGEST: u8 = 3;
    const SCALE_AT: usize = 64;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        let v = unsafe { _mm256_loadu_si256(block.add(j / 4 * 32).cast()) };
        let v = _mm256_srl_epi16(v, _mm_cvtsi32_si128(2 * (j % 4) as i32));
        BlockLevels::unsigned(_mm256_and_si256(v, _mm256_set1_epi8(3)))
    }
}
