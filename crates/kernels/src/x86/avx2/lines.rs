//! Rows of bytes into lanes, eight rows at a time: half a panel line.

use std::arch::x86_64::*;

/// Rows of half a panel.
pub(in crate::x86) const HALF_ROWS: usize = 8;

/// Bytes of half a panel line.
pub(in crate::x86) const HALF_LINE: usize = 32;

/// Loads 16 bytes of each of 8 rows, `stride` bytes apart, and transposes them so that lane `r` of
/// vector `i` holds bytes `4i..4i + 4` of row `r`.
///
/// # Safety
/// All eight rows have 16 readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn load_rows(first: *const u8, stride: usize) -> [__m256i; 4] {
    // SAFETY: rows `r` and `r + 4` are below 8.
    let rows = |r: usize| unsafe {
        let row = |r: usize| _mm_loadu_si128(first.add(r * stride).cast());
        _mm256_set_m128i(row(r + 4), row(r))
    };
    transpose_quad(rows(0), rows(1), rows(2), rows(3))
}

/// Turns 4 × 4 elements of 32 bits in each half.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn transpose_quad(
    a: __m256i,
    b: __m256i,
    c: __m256i,
    d: __m256i,
) -> [__m256i; 4] {
    let (ab_lo, ab_hi) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_lo, cd_hi) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab_lo, cd_lo),
        _mm256_unpackhi_epi64(ab_lo, cd_lo),
        _mm256_unpacklo_epi64(ab_hi, cd_hi),
        _mm256_unpackhi_epi64(ab_hi, cd_hi),
    ]
}

/// Loads an f16 of each of 8 rows, `stride` bytes apart, widened.
///
/// # Safety
/// All eight rows have 2 readable bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(in crate::x86) unsafe fn load_f16(first: *const u8, stride: usize) -> __m256 {
    // SAFETY: `r` is below 8.
    let at = |r: usize| unsafe { first.add(r * stride).cast::<i16>().read_unaligned() };
    _mm256_cvtph_ps(_mm_setr_epi16(
        at(0),
        at(1),
        at(2),
        at(3),
        at(4),
        at(5),
        at(6),
        at(7),
    ))
}

/// Loads a u32 of each of eight rows, `stride` bytes apart.
///
/// # Safety
/// All eight rows have 4 readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn load_u32(first: *const u8, stride: usize) -> __m256i {
    // SAFETY: `r` is below 8.
    let at = |r: usize| unsafe { first.add(r * stride).cast::<i32>().read_unaligned() };
    _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7))
}

/// Widens the f16 in the low half of each lane.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(in crate::x86) fn widen_f16(v: __m256i) -> __m256 {
    let low = _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF));
    let packed = _mm256_packus_epi32(low, low);
    let packed = _mm256_permute4x64_epi64::<0b00_00_10_00>(packed);
    _mm256_cvtph_ps(_mm256_castsi256_si128(packed))
}

/// `(v >> SHIFT) & mask` on bytes; `mask` must drop the bits that the shift carries over from neighbours.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn field<const SHIFT: i32>(v: __m256i, mask: i8) -> __m256i {
    _mm256_and_si256(_mm256_srli_epi16::<SHIFT>(v), _mm256_set1_epi8(mask))
}

/// Stores half a line.
///
/// # Safety
/// `to` has 32 writable bytes, 32-byte aligned.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn store(to: *mut u8, v: __m256i) {
    // SAFETY: forwarded.
    unsafe { _mm256_store_si256(to.cast(), v) }
}

/// As [`store`].
///
/// # Safety
/// As [`store`].
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn store_ps(to: *mut u8, v: __m256) {
    // SAFETY: forwarded.
    unsafe { _mm256_store_ps(to.cast(), v) }
}
