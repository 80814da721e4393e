//! Formats of small blocks: NVFP4, Q1_0, Q2_0. Bytes are where the formats' files in `quant` have them.

use super::{BlockLevels, OneScale, Unpack, spread_bits};
use crate::x86::avx2::lines::load_u32;
use millrace_quant::DType;
use std::arch::x86_64::*;

/// NVFP4.
pub(crate) struct Nvfp4;

/// Doubled values of E2M1's sixteen codes (OCP Microscaling Formats 1.0), plus 12.
static E2M1: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Half the value of the E4M3 number in the lowest byte of each lane, without its sign; the NaN without sign counts as 0.
#[inline]
#[target_feature(enable = "avx2")]
fn half_of_e4m3(bits: __m256i) -> __m256 {
    let byte = _mm256_and_si256(bits, _mm256_set1_epi32(0xFF));
    let is_nan = _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(0x7F));
    let magnitude = _mm256_and_si256(byte, _mm256_set1_epi32(0x7F));
    let magnitude = _mm256_andnot_si256(is_nan, magnitude);
    // At f32's places of exponent and mantissa, the value is 2⁻¹²⁰ times as large, subnormal numbers included.
    let small = _mm256_castsi256_ps(_mm256_slli_epi32::<20>(magnitude));
    _mm256_mul_ps(small, _mm256_set1_ps(f32::from_bits((127 + 119) << 23)))
}

impl Unpack for Nvfp4 {
    const DTYPE: DType = DType::Nvfp4;
    const SCALES: usize = 2;
    const OFFSET: u8 = 12;
    const LARGEST: u8 = 24;
    /// Four scales.
    type Header = __m256i;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        unsafe { load_u32(block, stride) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(scales: __m256i, _: *const u8, _: usize, j: usize) -> [__m256; 2] {
        let pair = _mm256_srl_epi32(scales, _mm_cvtsi32_si128(16 * j as i32));
        [
            half_of_e4m3(pair),
            half_of_e4m3(_mm256_srli_epi32::<8>(pair)),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded; sixteen values.
        let (v, values) = unsafe {
            (
                _mm_loadu_si128(block.add(4 + 16 * j).cast()),
                _mm_loadu_si128(E2M1.as_ptr().cast()),
            )
        };
        let nibble = |v| _mm_and_si128(v, _mm_set1_epi8(15));
        let (low, high) = (nibble(v), nibble(_mm_srli_epi16::<4>(v)));
        let codes = _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high));
        let values = _mm256_broadcastsi128_si256(values);
        BlockLevels::unsigned(_mm256_shuffle_epi8(values, codes))
    }
}

/// Q1_0.
pub(crate) struct Q1_0;

impl OneScale for Q1_0 {
    const DTYPE: DType = DType::Q1_0;
    const OFFSET: u8 = 1;
    const LARGEST: u8 = 2;
    const SCALE_AT: usize = 0;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        let positive = unsafe { block.add(2 + 4 * j).cast::<u32>().read_unaligned() };
        BlockLevels::unsigned(_mm256_and_si256(spread_bits(positive), _mm256_set1_epi8(2)))
    }
}

/// Q2_0.
pub(crate) struct Q2_0;

impl OneScale for Q2_0 {
    const DTYPE: DType = DType::Q2_0;
    const OFFSET: u8 = 1;
    const LARGEST: u8 = 3;
    const SCALE_AT: usize = 0;

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        let v = unsafe { _mm_loadl_epi64(block.add(2 + 8 * j).cast()) };
        let v = _mm256_cvtepu8_epi32(v);
        // Byte i of a lane gets bits 2i and 2i + 1 of the lane's byte, and other bits above them.
        let pair = _mm256_or_si256(v, _mm256_slli_epi32::<6>(v));
        let four = _mm256_or_si256(pair, _mm256_slli_epi32::<12>(pair));
        BlockLevels::unsigned(_mm256_and_si256(four, _mm256_set1_epi8(3)))
    }
}
