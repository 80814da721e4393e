//! Sixteen rows of bytes into lanes.

use std::arch::x86_64::*;

/// Loads 16 bytes of each of 16 rows, `stride` bytes apart, and transposes them so that lane `r` of
/// vector `i` holds bytes `4i..4i + 4` of row `r`.
///
/// # Safety
/// All sixteen rows have 16 readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn load_rows(first: *const u8, stride: usize) -> [__m512i; 4] {
    // SAFETY: rows `r + {0, 4, 8, 12}` are below 16.
    let rows = |r: usize| unsafe {
        let row = |r: usize| first.add(r * stride).cast::<__m128i>();
        let v = _mm512_castsi128_si512(_mm_loadu_si128(row(r)));
        let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(row(r + 4)));
        let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(row(r + 8)));
        _mm512_inserti32x4::<3>(v, _mm_loadu_si128(row(r + 12)))
    };
    transpose_quad(rows(0), rows(1), rows(2), rows(3))
}

/// Loads 64 bytes of each of 16 rows, `stride` bytes apart, and transposes them so that lane `r` of vector `i` holds
/// bytes `4i..4i + 4` of row `r`.
///
/// Whole lines at a time. Rows of plain numbers are often a power of two bytes apart, and sixteen of their lines do not stay in
/// one cache set until a second visit.
///
/// # Safety
/// All sixteen rows have 64 readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn load_lines(first: *const u8, stride: usize) -> [__m512i; 16] {
    // SAFETY: forwarded.
    unsafe { load_lines_of(|row| first.wrapping_add(row * stride)) }
}

/// As [`load_lines`], for rows at the addresses that `row` returns.
///
/// # Safety
/// At each address are 64 readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn load_lines_of(row: impl Fn(usize) -> *const u8) -> [__m512i; 16] {
    // Vector `q` of quad `i`: in 128-bit lane `l`, element `4l + q` of rows `4i..4i + 4`.
    let quads: [[__m512i; 4]; 4] = std::array::from_fn(|i| {
        // SAFETY: forwarded.
        let load = |r: usize| unsafe { _mm512_loadu_si512(row(4 * i + r).cast()) };
        transpose_quad(load(0), load(1), load(2), load(3))
    });
    let mut lines = [_mm512_setzero_si512(); 16];
    for q in 0..4 {
        for (i, line) in transpose_lanes(quads.map(|quad| quad[q]))
            .into_iter()
            .enumerate()
        {
            lines[4 * i + q] = line;
        }
    }
    lines
}

/// Transposes 4×4 elements of 32 bits in each 128-bit lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn transpose_quad(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> [__m512i; 4] {
    let (ab_lo, ab_hi) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_lo, cd_hi) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_lo, cd_lo),
        _mm512_unpackhi_epi64(ab_lo, cd_lo),
        _mm512_unpacklo_epi64(ab_hi, cd_hi),
        _mm512_unpackhi_epi64(ab_hi, cd_hi),
    ]
}

/// Transposes 4×4 lanes of 128 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn transpose_lanes([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_lo, ab_hi) = (
        _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b),
        _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b),
    );
    let (cd_lo, cd_hi) = (
        _mm512_shuffle_i32x4::<0b01_00_01_00>(c, d),
        _mm512_shuffle_i32x4::<0b11_10_11_10>(c, d),
    );
    [
        _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_lo, cd_lo),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_lo, cd_lo),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_hi, cd_hi),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_hi, cd_hi),
    ]
}

/// Loads a 16-bit number of each of 16 rows, `stride` bytes apart.
///
/// # Safety
/// All sixteen rows have 2 readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn load_u16(first: *const u8, stride: usize) -> __m256i {
    // SAFETY: `r` is below 16.
    let at = |r: usize| unsafe { first.add(r * stride).cast::<i16>().read_unaligned() };
    _mm256_setr_epi16(
        at(0),
        at(1),
        at(2),
        at(3),
        at(4),
        at(5),
        at(6),
        at(7), //
        at(8),
        at(9),
        at(10),
        at(11),
        at(12),
        at(13),
        at(14),
        at(15),
    )
}

/// As [`load_u16`] of f16 numbers, widened to f32.
///
/// # Safety
/// As [`load_u16`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn load_f16(first: *const u8, stride: usize) -> __m512 {
    // SAFETY: forwarded.
    _mm512_cvtph_ps(unsafe { load_u16(first, stride) })
}
