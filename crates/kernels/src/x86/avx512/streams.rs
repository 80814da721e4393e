//! Vectors of four rows that [`crate::x86::streams`] reads side by side.

use std::arch::x86_64::*;

/// The four lanes of a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn quarters_of(v: __m512) -> [__m128; 4] {
    [
        _mm512_castps512_ps128(v),
        _mm512_extractf32x4_ps::<1>(v),
        _mm512_extractf32x4_ps::<2>(v),
        _mm512_extractf32x4_ps::<3>(v),
    ]
}

/// The first 16 bytes at each of `N` addresses, `stride` bytes apart, as lanes.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn lanes<const N: usize>(first: *const u8, stride: usize) -> __m512i {
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

/// In each lane, element `i` of the result is the sum of the elements of vector `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn add_elements([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let pair = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (pair(a, b), pair(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// Each number in all elements of its 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn spread([a, b, c, d]: [i32; 4]) -> __m512i {
    _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d)
}
