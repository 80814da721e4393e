//! Sums across lanes: of eight rows, lane `r` of the result belongs to row `r`; of four, element `r` of each half.

use std::arch::x86_64::*;

/// Lane `r` is the sum of the i32 lanes of vector `r`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn sum_i32(rows: [__m256i; 8]) -> __m256i {
    let [low, high] = sum_halves_i32(rows);
    _mm256_add_epi32(low, high)
}

/// Lane `r` is the sum of the i16 lanes of vector `r`. The sum of any four of them must fit an i16.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn sum_i16(rows: [__m256i; 8]) -> __m256i {
    let [low, high] = sum_halves_i16(rows);
    _mm256_add_epi32(low, high)
}

/// As [`sum_i16`]: lane `r` of result `i` is the sum of half `i` of vector `r`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn sum_halves_i16(rows: [__m256i; 8]) -> [__m256i; 2] {
    let pair = |a, b| _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let four = |a, b| {
        let sums = _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        _mm256_madd_epi16(sums, _mm256_set1_epi16(1))
    };
    let [a, b, c, d, e, f, g, h] = rows;
    halves(four(pair(a, b), pair(c, d)), four(pair(e, f), pair(g, h)))
}

/// As [`sum_i32`]: lane `r` of result `i` is the sum of half `i` of vector `r`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn sum_halves_i32([a, b, c, d, e, f, g, h]: [__m256i; 8]) -> [__m256i; 2] {
    halves(add_elements([a, b, c, d]), add_elements([e, f, g, h]))
}

/// In each half, element `i` of the result is the sum of the elements of vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn add_elements([a, b, c, d]: [__m256i; 4]) -> __m256i {
    let pair = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (ab, cd) = (pair(a, b), pair(c, d));
    _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
}

/// In each half, element `i` of the result is the first element of vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn first_elements([a, b, c, d]: [__m256i; 4]) -> __m256i {
    _mm256_unpacklo_epi64(_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d))
}

/// Half `i` of the result is the sum of both halves of vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn add_halves([a, b]: [__m256i; 2]) -> __m256i {
    let [low, high] = halves(a, b);
    _mm256_add_epi32(low, high)
}

/// The lower halves of both and the upper halves of both.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(first: __m256i, second: __m256i) -> [__m256i; 2] {
    [
        _mm256_permute2x128_si256::<0x20>(first, second),
        _mm256_permute2x128_si256::<0x31>(first, second),
    ]
}
