//! Formats of 32-column blocks: levels and scales of eight rows.
//!
//! Four- and five-bit formats have unsigned levels; those without minimums represent `level − offset`. The others have signed bytes.
//! IQ4_XS is IQ4_NL in superblocks of eight blocks, whose scales are multiples of one shared number.

use super::lines::{HALF_ROWS, field, load_f16, load_rows, load_u32, widen_f16};
use crate::matmul::ahead::lines_a_step;
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
pub(in crate::x86) const IQ4_XS: u8 = 8;

/// Whether a block has a minimum.
pub(in crate::x86) const fn has_min(format: u8) -> bool {
    matches!(format, Q4_1 | Q5_1)
}

/// Whether levels are signed bytes.
pub(in crate::x86) const fn is_signed(format: u8) -> bool {
    matches!(format, Q8_0 | Q8_1 | IQ4_NL | IQ4_XS)
}

/// The offset subtracted from each unsigned level.
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
        IQ4_XS => DType::Iq4Xs,
        _ => DType::Mxfp4,
    }
}

/// Blocks of 32 columns in a block of the format.
const fn blocks_a_superblock(format: u8) -> usize {
    dtype(format).block_elems() / 32
}

/// Bytes of 32 columns of a row.
pub(in crate::x86) const fn bytes_a_block(format: u8) -> usize {
    dtype(format).block_bytes() / blocks_a_superblock(format)
}

/// Cache lines to fetch 32 columns of a panel.
pub(in crate::x86) fn lines_ahead(format: u8) -> usize {
    lines_a_step(dtype(format), blocks_a_superblock(format))
}

/// The block of the format that has columns `32b..32b + 32` of a row.
///
/// # Safety
/// `row` reaches them.
#[inline(always)]
unsafe fn block_of<const FORMAT: u8>(row: *const u8, b: usize) -> *const u8 {
    // SAFETY: forwarded.
    unsafe {
        row.add(b / const { blocks_a_superblock(FORMAT) } * const { dtype(FORMAT).block_bytes() })
    }
}

/// The nibbles of columns `32b..32b + 32` of a row.
///
/// # Safety
/// `row` reaches them.
#[inline(always)]
unsafe fn nibbles_of<const FORMAT: u8>(row: *const u8, b: usize) -> *const u8 {
    let n_blocks = const { blocks_a_superblock(FORMAT) };
    let from_end = 16 * (n_blocks - b % n_blocks);
    // SAFETY: forwarded: they end the block.
    unsafe { block_of::<FORMAT>(row, b).add(const { dtype(FORMAT).block_bytes() } - from_end) }
}

/// Values of IQ4_NL's sixteen codes (ggml's `kvalues_iq4nl`).
const IQ4_NL_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Doubled values of E2M1's sixteen codes (OCP Microscaling Formats 1.0), plus 12.
const MXFP4_LEVELS: [i8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Scales of block `b` in each of eight rows, `stride` bytes apart, and minimums where the format has them.
///
/// # Safety
/// `row` reaches the block in eight rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::x86) unsafe fn scales<const FORMAT: u8>(
    row: *const u8,
    b: usize,
    stride: usize,
) -> (__m256, __m256) {
    // SAFETY: forwarded.
    unsafe {
        let block = block_of::<FORMAT>(row, b);
        let d = match FORMAT {
            MXFP4 => half_exponents(block, stride),
            IQ4_XS => six_bit_scales(block, stride, b % 8),
            _ => load_f16(block, stride),
        };
        let min = if has_min(FORMAT) {
            load_f16(block.add(2), stride)
        } else {
            _mm256_setzero_ps()
        };
        (d, min)
    }
}

/// The levels of block `b` of a row, in the order of columns.
///
/// # Safety
/// `row` reaches the block.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn row_levels<const FORMAT: u8>(row: *const u8, b: usize) -> __m256i {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: forwarded; fields are where ggml's `block_*` structures have them.
    unsafe {
        let block = block_of::<FORMAT>(row, b);
        if matches!(FORMAT, Q8_0 | Q8_1) {
            return _mm256_loadu_si256(block.add(block_bytes - 32).cast());
        }
        let nibbles = _mm_loadu_si128(nibbles_of::<FORMAT>(row, b).cast());
        let shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
        let v = _mm256_srlv_epi32(_mm256_broadcastsi128_si256(nibbles), shifts);
        let v = _mm256_and_si256(v, _mm256_set1_epi8(0x0F));
        match FORMAT {
            Q5_0 => _mm256_or_si256(v, fifth_bits(block.add(2))),
            Q5_1 => _mm256_or_si256(v, fifth_bits(block.add(4))),
            IQ4_NL | IQ4_XS => look_up(&IQ4_NL_VALUES, v),
            MXFP4 => look_up(&MXFP4_LEVELS, v),
            _ => v,
        }
    }
}

/// Half of the eight lines of block `b`: vector `i` holds columns `4i..4i + 4` of eight rows, `stride` bytes apart.
///
/// # Safety
/// `row` reaches the block in eight rows.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::x86) unsafe fn half_lines<const FORMAT: u8>(
    row: *const u8,
    b: usize,
    stride: usize,
) -> [__m256i; 8] {
    let block_bytes = const { dtype(FORMAT).block_bytes() };
    // SAFETY: forwarded.
    unsafe {
        let block = block_of::<FORMAT>(row, b);
        if matches!(FORMAT, Q5_0 | Q5_1) {
            return transpose(std::array::from_fn(|r| {
                row_levels::<FORMAT>(row.add(r * stride), b)
            }));
        }
        if matches!(FORMAT, Q8_0 | Q8_1) {
            let [a, b, c, d] = load_rows(block.add(block_bytes - 32), stride);
            let [e, f, g, h] = load_rows(block.add(block_bytes - 16), stride);
            return [a, b, c, d, e, f, g, h];
        }
        let rows = load_rows(nibbles_of::<FORMAT>(row, b), stride);
        std::array::from_fn(|i| {
            let codes = if i < 4 {
                field::<0>(rows[i], 0x0F)
            } else {
                field::<4>(rows[i - 4], 0x0F)
            };
            match FORMAT {
                IQ4_NL | IQ4_XS => look_up(&IQ4_NL_VALUES, codes),
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

/// Half the value of each row's E8M0 exponent.
///
/// # Safety
/// Eight rows, `stride` bytes apart, have a readable byte.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half_exponents(first: *const u8, stride: usize) -> __m256 {
    // SAFETY: `r` is below 8.
    let e: [i32; 8] = std::array::from_fn(|r| unsafe { i32::from(first.add(r * stride).read()) });
    // SAFETY: eight readable numbers.
    half_powers(unsafe { _mm256_loadu_si256(e.as_ptr().cast()) })
}

/// Half the values of E8M0 exponents: 2^(e − 128), subnormal for the first two.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn half_powers(e: __m256i) -> __m256 {
    let one = _mm256_set1_epi32(1);
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, one));
    let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
    let is_normal = _mm256_cmpgt_epi32(e, one);
    _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal))
}

/// IQ4_XS: d times the six-bit scale of block `j` of eight in each of eight rows.
///
/// # Safety
/// Eight rows, `stride` bytes apart, have 8 readable bytes; `j` is below 8.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn six_bit_scales(first: *const u8, stride: usize, j: usize) -> __m256 {
    // SAFETY: forwarded.
    let (with_d, lower) = unsafe { (load_u32(first, stride), load_u32(first.add(4), stride)) };
    times_six_bits(with_d, lower, _mm256_set1_epi32(j as i32))
}

/// IQ4_XS: d times the six-bit scale of block `j`, minus 32. `with_d` is the f16 with the upper two bits of all blocks above it,
/// `lower` the lower four bits of each.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn times_six_bits(with_d: __m256i, lower: __m256i, j: __m256i) -> __m256 {
    let shift = _mm256_slli_epi32::<2>(j);
    let lower = _mm256_and_si256(_mm256_srlv_epi32(lower, shift), _mm256_set1_epi32(0x0F));
    let shift = _mm256_add_epi32(_mm256_slli_epi32::<1>(j), _mm256_set1_epi32(16));
    let upper = _mm256_and_si256(_mm256_srlv_epi32(with_d, shift), _mm256_set1_epi32(3));
    let scale = _mm256_or_si256(lower, _mm256_slli_epi32::<4>(upper));
    let scale = _mm256_sub_epi32(scale, _mm256_set1_epi32(32));
    _mm256_mul_ps(widen_f16(with_d), _mm256_cvtepi32_ps(scale))
}
