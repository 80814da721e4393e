//! Formats of 32-column blocks as lines and scales.
//!
//! Symmetric formats become bytes with an offset of 128: nibbles and five-bit elements go to the top of
//! the byte. The scale is divided by that power of two, so that one tile serves them all.

use super::q4nx;
use super::transpose::{load_f16, load_rows};
use crate::matmul::ahead::lines_a_step;
use crate::matmul::panel::PanelSource;
use millrace_quant::DType;
use std::arch::x86_64::*;

/// Formats; the codes are const parameters.
pub(super) const Q4_0: u8 = 0;
pub(super) const Q4_1: u8 = 1;
pub(super) const Q5_0: u8 = 2;
pub(super) const Q5_1: u8 = 3;
pub(super) const Q8_0: u8 = 4;
pub(super) const Q8_1: u8 = 5;
pub(super) const IQ4_NL: u8 = 6;
pub(super) const MXFP4: u8 = 7;
pub(super) const Q4NX: u8 = 8;
pub(super) const Q4NX_SUB: u8 = 9;
pub(super) const IQ4_XS: u8 = 10;

/// Whether a block has a minimum ([`crate::matmul::PanelLayout::Block32Min`]) or an offset of 128.
pub(super) const fn has_min(format: u8) -> bool {
    matches!(format, Q4_1 | Q5_1 | Q4NX | Q4NX_SUB)
}

/// Cache lines to fetch a block.
pub(super) fn lines_ahead(format: u8) -> usize {
    match format {
        Q4NX | Q4NX_SUB => q4nx::LINES_A_GROUP,
        _ => lines_a_step(dtype(format), blocks_a_superblock(format)),
    }
}

pub(super) const fn dtype(format: u8) -> DType {
    match format {
        Q4_0 => DType::Q4_0,
        Q4_1 => DType::Q4_1,
        Q5_0 => DType::Q5_0,
        Q5_1 => DType::Q5_1,
        Q8_0 => DType::Q8_0,
        Q8_1 => DType::Q8_1,
        IQ4_NL => DType::Iq4Nl,
        IQ4_XS => DType::Iq4Xs,
        MXFP4 => DType::Mxfp4,
        Q4NX => DType::Q4nx,
        _ => DType::Q4nxSub,
    }
}

/// Blocks of 32 columns in a block of the format: IQ4_XS is IQ4_NL in superblocks.
const fn blocks_a_superblock(format: u8) -> usize {
    dtype(format).block_elems() / 32
}

/// Values of IQ4_NL's sixteen codes (ggml's `kvalues_iq4nl`), plus 128.
pub(super) const IQ4_NL_BYTES: [u8; 16] = [
    1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241,
];

/// Doubled values of E2M1's sixteen codes (OCP Microscaling Formats 1.0), plus 128.
pub(super) const MXFP4_BYTES: [u8; 16] = [
    128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116,
];

/// Scales of block `b` of the 16 rows, and minimums where the format has them.
///
/// # Safety
/// The source reaches the block in sixteen rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(super) unsafe fn scales<const FORMAT: u8>(source: &PanelSource, b: usize) -> (__m512, __m512) {
    // SAFETY: forwarded.
    unsafe {
        if matches!(FORMAT, Q4NX | Q4NX_SUB) {
            return q4nx::scales(source, b, FORMAT == Q4NX_SUB);
        }
        let (block, stride) = (block(source, b, FORMAT), source.stride);
        let d = match FORMAT {
            Q4_0 => _mm512_mul_ps(load_f16(block, stride), _mm512_set1_ps(1.0 / 16.0)),
            Q5_0 => _mm512_mul_ps(load_f16(block, stride), _mm512_set1_ps(1.0 / 8.0)),
            MXFP4 => half_exponents(block, stride),
            IQ4_XS => six_bit_scales(block, stride, b % 8),
            _ => load_f16(block, stride),
        };
        let min = if has_min(FORMAT) {
            load_f16(block.add(2), stride)
        } else {
            _mm512_setzero_ps()
        };
        (d, min)
    }
}

/// The block of the format that has columns `32b..32b + 32`.
///
/// # Safety
/// As [`scales`].
#[inline]
unsafe fn block(source: &PanelSource, b: usize, format: u8) -> *const u8 {
    // SAFETY: forwarded.
    unsafe {
        source
            .base
            .add(b / blocks_a_superblock(format) * dtype(format).block_bytes())
    }
}

/// The eight lines of block `b`.
///
/// # Safety
/// As [`scales`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(super) unsafe fn lines<const FORMAT: u8>(source: &PanelSource, b: usize) -> [__m512i; 8] {
    // SAFETY: forwarded; fields are where ggml's `block_*` structures have them.
    unsafe {
        if matches!(FORMAT, Q4NX | Q4NX_SUB) {
            return q4nx::lines(source, b);
        }
        let (block, stride) = (block(source, b, FORMAT), source.stride);
        let block_bytes = const { dtype(FORMAT).block_bytes() };
        let mut lines = [_mm512_setzero_si512(); 8];
        if matches!(FORMAT, Q8_0 | Q8_1) {
            let q = block.add(block_bytes - 32);
            let flip = _mm512_set1_epi8(-128);
            for half in 0..2 {
                let rows = load_rows(q.add(16 * half), stride);
                for i in 0..4 {
                    lines[4 * half + i] = _mm512_xor_si512(rows[i], flip);
                }
            }
            return lines;
        }
        // Nibbles end a block.
        let n_blocks = const { blocks_a_superblock(FORMAT) };
        let nibbles = block.add(block_bytes - 16 * (n_blocks - b % n_blocks));
        let rows = load_rows(nibbles, stride);
        let fifth = match FORMAT {
            Q5_0 => fifth_bits(block.add(2), stride),
            Q5_1 => fifth_bits(block.add(4), stride),
            _ => [_mm512_setzero_si512(); 2],
        };
        for i in 0..4 {
            lines[i] = element::<FORMAT>(rows[i], fifth[0], i, false);
            lines[4 + i] = element::<FORMAT>(rows[i], fifth[1], i, true);
        }
        lines
    }
}

/// Four elements of each row from the low or high nibbles of `v` and, for five-bit formats, nibble
/// `i` of the 16 bits in `fifth`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn element<const FORMAT: u8>(v: __m512i, fifth: __m512i, i: usize, high: bool) -> __m512i {
    let low_mask = _mm512_set1_epi8(0x0F);
    let nibble = || {
        let v = if high { _mm512_srli_epi16::<4>(v) } else { v };
        _mm512_and_si512(v, low_mask)
    };
    match FORMAT {
        Q4_0 => {
            let v = if high { v } else { _mm512_slli_epi16::<4>(v) };
            _mm512_andnot_si512(low_mask, v)
        }
        Q4_1 => nibble(),
        Q5_0 => _mm512_slli_epi16::<3>(_mm512_or_si512(nibble(), spread_fifth(fifth, i))),
        Q5_1 => _mm512_or_si512(nibble(), spread_fifth(fifth, i)),
        _ => {
            let table = if matches!(FORMAT, IQ4_NL | IQ4_XS) {
                &IQ4_NL_BYTES
            } else {
                &MXFP4_BYTES
            };
            // SAFETY: sixteen readable bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibble())
        }
    }
}

/// Half the value of each row's E8M0 exponent, subnormal for the first two.
///
/// # Safety
/// All sixteen rows have a readable byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn half_exponents(first: *const u8, stride: usize) -> __m512 {
    // SAFETY: `r` is below 16.
    let e: [i32; 16] = std::array::from_fn(|r| unsafe { i32::from(first.add(r * stride).read()) });
    // SAFETY: sixteen readable numbers.
    half_powers(unsafe { _mm512_loadu_si512(e.as_ptr().cast()) })
}

/// 2^(e − 128) of each element e, 0 to 255.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn half_powers(e: __m512i) -> __m512 {
    let one = _mm512_set1_epi32(1);
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, one));
    let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    let is_subnormal = _mm512_cmple_epi32_mask(e, one);
    _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_subnormal, subnormal))
}

/// Loads the 32 fifth bits of each row; the second vector has the upper 16 in its lower half.
///
/// # Safety
/// All sixteen rows have 4 readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn fifth_bits(first: *const u8, stride: usize) -> [__m512i; 2] {
    // SAFETY: `r` is below 16.
    let bits: [i32; 16] =
        std::array::from_fn(|r| unsafe { first.add(r * stride).cast::<i32>().read_unaligned() });
    // SAFETY: sixteen readable numbers.
    let bits = unsafe { _mm512_loadu_si512(bits.as_ptr().cast()) };
    [bits, _mm512_srli_epi32::<16>(bits)]
}

/// Bits `4i..4i + 4` of each lane to bit 4 of the lane's four bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn spread_fifth(bits: __m512i, i: usize) -> __m512i {
    let bits = _mm512_srlv_epi32(bits, _mm512_set1_epi32(4 * i as i32));
    // The low byte to all four, each then keeps its own bit.
    let order = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,
    ));
    let bytes = _mm512_shuffle_epi8(bits, order);
    let own = _mm512_set1_epi32(0x0804_0201);
    let set = _mm512_test_epi8_mask(bytes, own);
    _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(0x10))
}

/// IQ4_XS: d times the six-bit scale of block `j` of eight, minus 32. The upper two bits follow the f16, then the lower four.
///
/// # Safety
/// All sixteen rows have 8 readable bytes; `j` is below 8.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn six_bit_scales(first: *const u8, stride: usize, j: usize) -> __m512 {
    // SAFETY: `r` is below 16.
    let word =
        |r: usize, at: usize| unsafe { first.add(r * stride + at).cast::<i32>().read_unaligned() };
    let with_d: [i32; 16] = std::array::from_fn(|r| word(r, 0));
    let lower: [i32; 16] = std::array::from_fn(|r| word(r, 4));
    // SAFETY: sixteen readable numbers each.
    let (with_d, lower) = unsafe {
        (
            _mm512_loadu_si512(with_d.as_ptr().cast()),
            _mm512_loadu_si512(lower.as_ptr().cast()),
        )
    };
    times_six_bits(with_d, lower, _mm512_set1_epi32(j as i32))
}

/// In each element: the f16 in the lower half of `with_d`, times the six-bit scale of block `j` minus 32. The scale's lower bits
/// are in `lower`, its upper bits in the upper half of `with_d`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn times_six_bits(with_d: __m512i, lower: __m512i, j: __m512i) -> __m512 {
    let twice = _mm512_slli_epi32::<1>(j);
    let lower = _mm512_srlv_epi32(lower, _mm512_slli_epi32::<2>(j));
    let lower = _mm512_and_si512(lower, _mm512_set1_epi32(0x0F));
    let upper = _mm512_srlv_epi32(with_d, _mm512_add_epi32(twice, _mm512_set1_epi32(16)));
    let upper = _mm512_and_si512(upper, _mm512_set1_epi32(3));
    let scale = _mm512_or_si512(lower, _mm512_slli_epi32::<4>(upper));
    let scale = _mm512_sub_epi32(scale, _mm512_set1_epi32(32));
    let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(with_d));
    _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale))
}
