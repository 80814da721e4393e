//! IQ2_* and IQ3_*: magnitudes by a point's index, with separate signs. The byte layout is that of the formats' files in `quant`.

use super::{BlockLevels, Unpack, spread_bits, times_odd};
use crate::x86::avx2::lines::{load_f16, load_u32};
use millrace_quant::{DType, codebooks};
use std::arch::x86_64::*;

/// By seven stored signs: a byte of ones for each negative element of eight; the number of negative elements is even.
static EVEN_SIGNS: [u64; 128] = {
    let mut signs = [0; 128];
    let mut stored = 0;
    while stored < 128 {
        let bits = stored as u8 | ((stored as u8).count_ones() as u8 & 1) << 7;
        let mut i = 0;
        while i < 8 {
            signs[stored] |= ((bits as u64 >> i & 1) * 0xFF) << (8 * i);
            i += 1;
        }
        stored += 1;
    }
    signs
};

/// The signs of 32 elements from four times seven bits.
#[inline]
#[target_feature(enable = "avx2")]
fn even_signs(word: u32) -> __m256i {
    let eight = |i: u32| EVEN_SIGNS[(word >> (7 * i) & 0x7F) as usize].cast_signed();
    _mm256_setr_epi64x(eight(0), eight(1), eight(2), eight(3))
}

/// Eight points of four.
#[inline]
#[target_feature(enable = "avx2")]
fn points_of_4<const N: usize>(points: &[[i8; 4]; N], index: impl Fn(usize) -> usize) -> __m256i {
    const { assert!(N.is_power_of_two()) };
    // No index is beyond the points: the mask is for the compiler.
    let point = |i: usize| i32::from_le_bytes(points[index(i) & (N - 1)].map(i8::cast_unsigned));
    _mm256_setr_epi32(
        point(0),
        point(1),
        point(2),
        point(3),
        point(4),
        point(5),
        point(6),
        point(7),
    )
}

/// Four points of eight.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn points_of_8<const N: usize>(
    points: &[[i8; 8]; N],
    index: impl Fn(usize) -> usize,
) -> __m256i {
    const { assert!(N.is_power_of_two()) };
    let point = |i: usize| i64::from_le_bytes(points[index(i) & (N - 1)].map(i8::cast_unsigned));
    _mm256_setr_epi64x(point(0), point(1), point(2), point(3))
}

/// A little-endian u32 at any address.
///
/// # Safety
/// Four readable bytes.
#[inline(always)]
unsafe fn u32_at(at: *const u8) -> u32 {
    // SAFETY: forwarded.
    unsafe { at.cast::<u32>().read_unaligned() }
}

/// IQ3_S.
pub(crate) struct Iq3S;

impl Unpack for Iq3S {
    const DTYPE: DType = DType::Iq3S;
    const SCALES: usize = 1;
    const OFFSET: u8 = 0;
    const LARGEST: u8 = 15;
    /// Scales of blocks, and their eight codes of four bits.
    type Header = (__m256, __m256i);

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        unsafe { (load_f16(block, stride), load_u32(block.add(106), stride)) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(header: Self::Header, _: *const u8, _: usize, j: usize) -> [__m256; 2] {
        [times_odd(header.0, header.1, 4 * j, 15); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(block.add(2 + 8 * j).cast()));
            let ninth = _mm256_set1_epi32(i32::from(*block.add(66 + j)));
            let ninth = _mm256_sllv_epi32(ninth, _mm256_setr_epi32(8, 7, 6, 5, 4, 3, 2, 1));
            let ninth = _mm256_and_si256(ninth, _mm256_set1_epi32(256));
            // Nine bits: the codebook has as many points.
            let indices = _mm256_or_si256(low, ninth);
            let bytes = _mm256_i32gather_epi32::<4>(codebooks::IQ3_S.as_ptr().cast(), indices);
            let negative = spread_bits(u32_at(block.add(74 + 4 * j)));
            BlockLevels { bytes, negative }
        }
    }
}

/// IQ3_XXS.
pub(crate) struct Iq3Xxs;

impl Unpack for Iq3Xxs {
    const DTYPE: DType = DType::Iq3Xxs;
    const SCALES: usize = 1;
    const OFFSET: u8 = 0;
    const LARGEST: u8 = 62;
    /// A quarter of blocks' scales.
    type Header = __m256;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        unsafe { _mm256_mul_ps(load_f16(block, stride), _mm256_set1_ps(1.0 / 4.0)) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(d: __m256, block: *const u8, stride: usize, j: usize) -> [__m256; 2] {
        // SAFETY: forwarded.
        let words = unsafe { load_u32(block.add(66 + 4 * j), stride) };
        [times_odd(d, words, 28, 15); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let indices = block.add(2 + 8 * j);
            let bytes = points_of_4(&codebooks::IQ3_XXS, |i| usize::from(*indices.add(i)));
            let negative = even_signs(u32_at(block.add(66 + 4 * j)));
            BlockLevels { bytes, negative }
        }
    }
}

/// IQ2_XXS.
pub(crate) struct Iq2Xxs;

impl Unpack for Iq2Xxs {
    const DTYPE: DType = DType::Iq2Xxs;
    const SCALES: usize = 1;
    const OFFSET: u8 = 0;
    const LARGEST: u8 = 43;
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
        // SAFETY: forwarded.
        let words = unsafe { load_u32(block.add(6 + 8 * j), stride) };
        [times_odd(d, words, 28, 15); 2]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let indices = block.add(2 + 8 * j);
            let bytes = points_of_8(&codebooks::IQ2_XXS, |i| usize::from(*indices.add(i)));
            let negative = even_signs(u32_at(indices.add(4)));
            BlockLevels { bytes, negative }
        }
    }
}

/// An eighth of blocks' scales, and sixteen codes of four bits at byte `AT`, as IQ2_XS and IQ2_S have them.
///
/// # Safety
/// As [`Unpack::header`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn sixteen_codes<const AT: usize>(
    block: *const u8,
    stride: usize,
) -> (__m256, [__m256i; 2]) {
    // SAFETY: forwarded.
    unsafe {
        let d = _mm256_mul_ps(load_f16(block, stride), _mm256_set1_ps(1.0 / 8.0));
        let first = load_u32(block.add(AT), stride);
        (d, [first, load_u32(block.add(AT + 4), stride)])
    }
}

/// The scales of columns `32j..32j + 32` from the result of [`sixteen_codes`].
#[inline]
#[target_feature(enable = "avx2")]
fn pair_of_sixteen((d, codes): (__m256, [__m256i; 2]), j: usize) -> [__m256; 2] {
    let word = if j < 4 { codes[0] } else { codes[1] };
    let shift = 8 * (j % 4);
    [
        times_odd(d, word, shift, 15),
        times_odd(d, word, shift + 4, 15),
    ]
}

/// IQ2_XS.
pub(crate) struct Iq2Xs;

impl Unpack for Iq2Xs {
    const DTYPE: DType = DType::Iq2Xs;
    const SCALES: usize = 2;
    const OFFSET: u8 = 0;
    const LARGEST: u8 = 43;
    type Header = (__m256, [__m256i; 2]);

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        unsafe { sixteen_codes::<66>(block, stride) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(header: Self::Header, _: *const u8, _: usize, j: usize) -> [__m256; 2] {
        pair_of_sixteen(header, j)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        let words = block.wrapping_add(2 + 8 * j).cast::<u16>();
        // SAFETY: forwarded; `i` is below 4.
        let word = |i: usize| usize::from(unsafe { words.add(i).read_unaligned() });
        let bytes = points_of_8(&codebooks::IQ2_XS, |i| word(i) & 0x1FF);
        let eight = |i: usize| EVEN_SIGNS[word(i) >> 9].cast_signed();
        let negative = _mm256_setr_epi64x(eight(0), eight(1), eight(2), eight(3));
        BlockLevels { bytes, negative }
    }
}

/// IQ2_S.
pub(crate) struct Iq2S;

impl Unpack for Iq2S {
    const DTYPE: DType = DType::Iq2S;
    const SCALES: usize = 2;
    const OFFSET: u8 = 0;
    const LARGEST: u8 = 43;
    type Header = (__m256, [__m256i; 2]);

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn header(block: *const u8, stride: usize) -> Self::Header {
        // SAFETY: forwarded.
        unsafe { sixteen_codes::<74>(block, stride) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn scales(header: Self::Header, _: *const u8, _: usize, j: usize) -> [__m256; 2] {
        pair_of_sixteen(header, j)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels(block: *const u8, j: usize) -> BlockLevels {
        // SAFETY: forwarded.
        unsafe {
            let (low, high) = (block.add(2 + 4 * j), usize::from(*block.add(66 + j)));
            let bytes = points_of_8(&codebooks::IQ2_S, |i| {
                usize::from(*low.add(i)) | (high << (8 - 2 * i) & 0x300)
            });
            let negative = spread_bits(u32_at(block.add(34 + 4 * j)));
            BlockLevels { bytes, negative }
        }
    }
}
