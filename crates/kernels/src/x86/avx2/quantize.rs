//! Conversion of activations; the same bits as the portable code in [`crate::matmul::quantize`].

use super::reduce::sum_halves_i32;
use crate::matmul::panel::{Input, Wide, X32, X256};
use crate::matmul::quantize::{ConvertFn, scales};
use std::arch::x86_64::*;

/// The conversion to `input`.
pub(crate) fn converter(input: Input) -> ConvertFn {
    match input {
        Input::F32 => unreachable!("f32 activations are used where they are"),
        Input::Bf16 => to_bf16,
        Input::I8x32 => to_x32,
        Input::I8x256 => to_x256,
    }
}

/// # Safety
/// As [`ConvertFn`].
#[target_feature(enable = "avx2,fma")]
unsafe fn to_bf16(x: &[f32], row: &mut [u8]) {
    // Compiled for this level, the portable code is vectorised by the compiler.
    crate::matmul::quantize::to_bf16(x, row);
}

/// # Safety
/// As [`ConvertFn`].
#[target_feature(enable = "avx2,fma")]
unsafe fn to_x32(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<32>();
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the row has a record for each block and starts on a cache line.
        let record = unsafe { &mut *row.as_mut_ptr().cast::<X32>().add(i) };
        let (d, inverse) = scales(largest(block));
        let q = quantize(block, inverse);
        // SAFETY: 32 bytes.
        unsafe { _mm256_storeu_si256(record.q.as_mut_ptr().cast(), q) };
        let quads = add_quads(q);
        let first = add_lanes(_mm256_castsi256_si128(quads));
        let sum = first + add_lanes(_mm256_extracti128_si256::<1>(quads));
        record.d = d;
        record.offset_128 = -128 * sum;
        record.scaled_sum = d * sum as f32;
        record.first_offset_128 = -128 * first;
    }
}

/// # Safety
/// As [`ConvertFn`].
#[target_feature(enable = "avx2,fma")]
unsafe fn to_x256(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<256>();
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the row has a record for each block and starts on a cache line.
        let record = unsafe { &mut *row.as_mut_ptr().cast::<X256>().add(i) };
        let (d, inverse) = scales(largest(block));
        let mut quads = [_mm256_setzero_si256(); 8];
        for ((x, to), quads) in block
            .as_chunks::<32>()
            .0
            .iter()
            .zip(record.q.as_chunks_mut::<32>().0)
            .zip(&mut quads)
        {
            let q = quantize(x, inverse);
            // SAFETY: 32 bytes.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), q) };
            *quads = add_quads(q);
        }
        // Sums of the even and odd sixteens.
        let [even, odd] = sum_halves_i32(quads);
        let sums_16 = _mm256_blend_epi16::<0b10_10_10_10>(even, _mm256_slli_epi32::<16>(odd));
        let sums_32 = _mm256_add_epi32(even, odd);
        let sums_32 = _mm_packs_epi32(
            _mm256_castsi256_si128(sums_32),
            _mm256_extracti128_si256::<1>(sums_32),
        );
        let offset = |v| _mm256_slli_epi32::<5>(_mm256_sub_epi32(_mm256_setzero_si256(), v));
        let (even, odd) = (offset(even), offset(odd));
        let (low, high) = (
            _mm256_unpacklo_epi32(even, odd),
            _mm256_unpackhi_epi32(even, odd),
        );
        // SAFETY: the arrays are as long as the vectors stored.
        unsafe {
            let offsets = record.offset_32.as_mut_ptr();
            let first = _mm256_permute2x128_si256::<0x20>(low, high);
            let second = _mm256_permute2x128_si256::<0x31>(low, high);
            _mm256_storeu_si256(offsets.cast(), first);
            _mm256_storeu_si256(offsets.add(8).cast(), second);
            _mm256_storeu_si256(record.sums_16.as_mut_ptr().cast(), sums_16);
            _mm_storeu_si128(record.sums_32.as_mut_ptr().cast(), sums_32);
        }
        let mut magnitudes = [0; 16];
        for (q, to) in record.q.as_chunks::<16>().0.iter().zip(&mut magnitudes) {
            // SAFETY: sixteen bytes.
            let q = unsafe { _mm_loadu_si128(q.as_ptr().cast()) };
            let eights = _mm_sad_epu8(_mm_abs_epi8(q), _mm_setzero_si128());
            *to = (_mm_cvtsi128_si32(eights) + _mm_extract_epi32::<2>(eights)) as i16;
        }
        record.d = d;
        record.wide = Wide::new(&magnitudes, &record.sums_16);
        record.pad = [0; 2];
    }
}

/// # Safety
/// Eight readable numbers.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(x: &[f32], i: usize) -> __m256 {
    debug_assert!(8 * i + 8 <= x.len());
    // SAFETY: forwarded.
    unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) }
}

/// Largest magnitude; `x` is whole vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(x: &[f32]) -> f32 {
    let sign = _mm256_set1_ps(-0.0);
    let mut most = [_mm256_setzero_ps(); 4];
    for (i, eight) in x.chunks_exact(8).enumerate() {
        // SAFETY: eight numbers.
        let v = unsafe { load(eight, 0) };
        // The second operand is the result if one is NaN: NaN is ignored.
        most[i % 4] = _mm256_max_ps(_mm256_andnot_ps(sign, v), most[i % 4]);
    }
    let [a, b, c, d] = most;
    let v = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    let v = _mm_max_ss(v, _mm_movehdup_ps(v));
    _mm_cvtss_f32(v)
}

/// 32 numbers as bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn quantize(x: &[f32; 32], inverse: f32) -> __m256i {
    let inverse = _mm256_set1_ps(inverse);
    // Conversion rounds halves to even under the default mode, which Rust code may rely on.
    // SAFETY: four vectors make 32 numbers.
    let at = |i| unsafe { _mm256_cvtps_epi32(_mm256_mul_ps(load(x, i), inverse)) };
    let (first, second) = (
        _mm256_packs_epi32(at(0), at(1)),
        _mm256_packs_epi32(at(2), at(3)),
    );
    let packed = _mm256_packs_epi16(first, second);
    // Packing works within halves: fours of each come alternately.
    _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// Sums of the four bytes of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn add_quads(q: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_lanes(v: __m128i) -> i32 {
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v));
    _mm_cvtsi128_si32(v)
}
