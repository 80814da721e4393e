//! Conversion of activations; the same bits as the portable code in [`crate::matmul::quantize`].

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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn to_bf16(x: &[f32], row: &mut [u8]) {
    // Compiled for this level, the portable code is vectorised by the compiler.
    crate::matmul::quantize::to_bf16(x, row);
}

/// # Safety
/// As [`ConvertFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn to_x32(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<32>();
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the row has a record for each block and starts on a cache line.
        let record = unsafe { &mut *row.as_mut_ptr().cast::<X32>().add(i) };
        let v = load::<2>(block);
        let (d, inverse) = scales(largest(&v));
        let q = quantize(&v, inverse);
        let mut sums = [0; 2];
        for ((q, to), sum) in q
            .iter()
            .zip(record.q.as_chunks_mut::<16>().0)
            .zip(&mut sums)
        {
            // SAFETY: sixteen bytes.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), *q) };
            let fours = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), *q);
            *sum = add_lanes(fours);
        }
        let sum = sums[0] + sums[1];
        record.d = d;
        record.offset_128 = -128 * sum;
        record.scaled_sum = d * sum as f32;
        record.first_offset_128 = -128 * sums[0];
    }
}

/// # Safety
/// As [`ConvertFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn to_x256(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<256>();
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the row has a record for each block and starts on a cache line.
        let record = unsafe { &mut *row.as_mut_ptr().cast::<X256>().add(i) };
        let v = load::<16>(block);
        let (d, inverse) = scales(largest(&v));
        let q = quantize(&v, inverse);
        let mut magnitudes = [0; 16];
        for (j, (q, to)) in q.iter().zip(record.q.as_chunks_mut::<16>().0).enumerate() {
            // SAFETY: sixteen bytes.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), *q) };
            let sum = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), *q);
            let sum = add_lanes(sum);
            record.sums_16[j] = sum as i16;
            record.offset_32[j] = -32 * sum;
            let eights = _mm_sad_epu8(_mm_abs_epi8(*q), _mm_setzero_si128());
            magnitudes[j] = (_mm_cvtsi128_si32(eights) + _mm_extract_epi32::<2>(eights)) as i16;
        }
        for (to, pair) in record
            .sums_32
            .iter_mut()
            .zip(record.sums_16.as_chunks::<2>().0)
        {
            *to = pair[0] + pair[1];
        }
        record.d = d;
        record.wide = Wide::new(&magnitudes, &record.sums_16);
        record.pad = [0; 2];
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load<const N: usize>(x: &[f32]) -> [__m512; N] {
    let (vectors, _) = x.as_chunks::<16>();
    // SAFETY: sixteen numbers each.
    std::array::from_fn(|i| unsafe { _mm512_loadu_ps(vectors[i].as_ptr()) })
}

/// Largest magnitude.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn largest<const N: usize>(v: &[__m512; N]) -> f32 {
    let mut most = _mm512_setzero_ps();
    for v in v {
        // The second operand is the result if one is NaN: NaN is ignored.
        most = _mm512_max_ps(_mm512_abs_ps(*v), most);
    }
    _mm512_reduce_max_ps(most)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quantize<const N: usize>(v: &[__m512; N], inverse: f32) -> [__m128i; N] {
    let inverse = _mm512_set1_ps(inverse);
    std::array::from_fn(|i| {
        // Conversion rounds halves to even under the default mode, which Rust code may rely on.
        _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse)))
    })
}

#[inline]
#[target_feature(enable = "sse2")]
fn add_lanes(v: __m128i) -> i32 {
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v));
    _mm_cvtsi128_si32(v)
}
