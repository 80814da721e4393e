//! Formats of 32-column blocks: levels and scales of eight rows.
//!
//! Four- and five-bit formats have unsigned levels; those without minimums stand for `level − offset`. The others have signed bytes.

use super::lines::{HALF_ROWS, field, load_f16, load_rows};
use millrace_quant::DType;
use std::arch::x86_64::*;

/// Formats; the codes are const parameters.
pub(in crate::x86) const Q4_0: u8 = 0;
pub(in crate::x86) const Q4_1: u8 = 1;
pub(in crate::x86) const Q5_0: u8 = 2;
pub(in crate::x86) const Q5_1: u8 = 3;
pub(in crate::x86) const Q8_0: u8 = 4;
pub(in crate::x86) const Q8_1: u8 = 5;
pub(in crate::x86) const IQ4_NL: u8 = 6;
pub(in crate::x86) const MXFP4: u8 = 7;

/// Whether a block has a minimum.
pub(in crate::x86) const fn has_min(format: u8) -> bool {
    matches!(format, Q4_1 | Q5_1)
}

/// Whether levels are signed bytes.
pub(in crate::x86) const fn is_signed(format: u8) -> bool {
    matches!(format, Q8_0 | Q8_1 | IQ4_NL)
}

/// What is taken away from each unsigned level.
pub(in crate::x86) const fn offset(format: u8) -> i32 {
    match format {
        Q4_0 => 8,
        Q5_0 => 16,
        MXFP4 => 12,
        _ => 0,
    }
}

/// The format of a code.
pub(in crate::x86) const fn dtype(format: u8) -> DType {
    match format {
        Q4_0 => DType::Q4_0,
        Q4_1 => DType::Q4_1,
        Q5_0 => DType::Q5_0,
        Q5_1 => DType::Q5_1,
        Q8_0 => DType::Q8_0,
        Q8_1 => DType::Q8_1,
        IQ4_NL => DType::Iq4Nl,
        _ => DType::Mxfp4,
    }
}

/// Values of IQ4_NL's sixteen codes (ggml's `kvalues_iq4nl`).
const IQ4_NL_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Doubled values of E2M1's sixteen codes (OCP Microscaling Formats 1.0), plus 12.
const MXFP4_LEVELS: [i8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Scales of a block in each of eight rows, `stride` bytes apart, and minimums where the format has them.
///
/// # Safety
/// `block` reaches eight rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::x86) unsafe fn scales<const FORMAT: u8>(
    block: *const u8,
    stride: usize,
) -> (__m256, __m256) {
    // SAFETY: forwarded.
    unsafe {
        let d = if FORMAT == MXFP4 {
            half_exponents(block, stride)
        } else {
            load_f16(block, stride)
        };
        let min = if has_min(FORMAT) {
            load_f16(block.add(2), stride)
        } else {
            _mm256_setzero_ps()
        };
        (d, min)
    }
}

/// The levels of one row's block, in the order of columns.
///
/// # Safety
/// `block` is a block.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn row_levels<const FORMAT: u8>(block: *const u8) -> __m256i {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: fields are where ggml's `block_*` structures have them.
    unsafe {
        if matches!(FORMAT, Q8_0 | Q8_1) {
            return _mm256_loadu_si256(block.add(block_bytes - 32).cast());
        }
        let nibbles = _mm_loadu_si128(block.add(block_bytes - 16).cast());
        let shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
        let v = _mm256_srlv_epi32(_mm256_broadcastsi128_si256(nibbles), shifts);
        let v = _mm256_and_si256(v, _mm256_set1_epi8(0x0F));
        match FORMAT {
            Q5_0 => _mm256_or_si256(v, fifth_bits(block.add(2))),
            Q5_1 => _mm256_or_si256(v, fifth_bits(block.add(4))),
            IQ4_NL => look_up(&IQ4_NL_VALUES, v),
            MXFP4 => look_up(&MXFP4_LEVELS, v),
            _ => v,
        }
    }
}

/// Half of the eight lines of a block: vector `i` holds columns `4i..4i + 4` of eight rows, `stride` bytes apart.
///
/// # Safety
/// `block` reaches eight rows.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn half_lines<const FORMAT: u8>(
    block: *const u8,
    stride: usize,
) -> [__m256i; 8] {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: forwarded.
    unsafe {
        if matches!(FORMAT, Q5_0 | Q5_1) {
            return transpose(std::array::from_fn(|r| {
                row_levels::<FORMAT>(block.add(r * stride))
            }));
        }
        if matches!(FORMAT, Q8_0 | Q8_1) {
            let [a, b, c, d] = load_rows(block.add(block_bytes - 32), stride);
            let [e, f, g, h] = load_rows(block.add(block_bytes - 16), stride);
            return [a, b, c, d, e, f, g, h];
        }
        let rows = load_rows(block.add(block_bytes - 16), stride);
        std::array::from_fn(|i| {
            let codes = if i < 4 {
                field::<0>(rows[i], 0x0F)
            } else {
                field::<4>(rows[i - 4], 0x0F)
            };
            match FORMAT {
                IQ4_NL => look_up(&IQ4_NL_VALUES, codes),
                MXFP4 => look_up(&MXFP4_LEVELS, codes),
                _ => codes,
            }
        })
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn look_up(table: &[i8; 16], codes: __m256i) -> __m256i {
    // SAFETY: sixteen readable bytes.
    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes)
}

/// 32 bits, each as bit 4 of a byte.
///
/// # Safety
/// Four readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn fifth_bits(from: *const u8) -> __m256i {
    // SAFETY: forwarded.
    let bits = unsafe { from.cast::<i32>().read_unaligned() };
    let order = _mm256_setr_epi64x(
        0,
        0x0101_0101_0101_0101,
        0x0202_0202_0202_0202,
        0x0303_0303_0303_0303,
    );
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), order);
    let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, own), own);
    _mm256_and_si256(is_set, _mm256_set1_epi8(0x10))
}

/// Lane `r` of vector `i` is lane `i` of vector `r`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256i; HALF_ROWS]) -> [__m256i; 8] {
    let four = |a, b, c, d| {
        let (ab_lo, ab_hi) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd_lo, cd_hi) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab_lo, cd_lo),
            _mm256_unpackhi_epi64(ab_lo, cd_lo),
            _mm256_unpacklo_epi64(ab_hi, cd_hi),
            _mm256_unpackhi_epi64(ab_hi, cd_hi),
        ]
    };
    let [a, b, c, d, e, f, g, h] = rows;
    let (first, second) = (four(a, b, c, d), four(e, f, g, h));
    std::array::from_fn(|i| {
        if i < 4 {
            _mm256_permute2x128_si256::<0x20>(first[i], second[i])
        } else {
            _mm256_permute2x128_si256::<0x31>(first[i - 4], second[i - 4])
        }
    })
}

/// Half of what the E8M0 exponent of each row means: 2^(e − 128), subnormal for the first two.
///
/// # Safety
/// Eight rows, `stride` bytes apart, have a readable byte.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half_exponents(first: *const u8, stride: usize) -> __m256 {
    // SAFETY: `r` is below 8.
    let e: [i32; 8] = std::array::from_fn(|r| unsafe { i32::from(first.add(r * stride).read()) });
    // SAFETY: eight readable numbers.
    let e = unsafe { _mm256_loadu_si256(e.as_ptr().cast()) };
    let one = _mm256_set1_epi32(1);
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, one));
    let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
    let is_normal = _mm256_cmpgt_epi32(e, one);
    _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal))
}
