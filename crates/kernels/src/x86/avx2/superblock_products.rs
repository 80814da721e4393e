//! Products of a k-quant's superblock with one token's activations, not yet added up over the lanes.

use super::lines::field;
use crate::matmul::panel::X256;
use millrace_quant::DType;
use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::black_box;

/// Formats; the codes are const parameters.
pub(super) const Q4_K: u8 = 0;
pub(super) const Q5_K: u8 = 1;
pub(super) const Q6_K: u8 = 2;
pub(super) const Q2_K: u8 = 3;
pub(super) const Q3_K: u8 = 4;

/// Bytes of a superblock.
pub(super) const fn block_bytes(format: u8) -> usize {
    match format {
        Q4_K => DType::Q4K.block_bytes(),
        Q5_K => DType::Q5K.block_bytes(),
        Q2_K => DType::Q2K.block_bytes(),
        Q3_K => DType::Q3K.block_bytes(),
        _ => DType::Q6K.block_bytes(),
    }
}

/// Scales of the groups of 32 columns of two superblocks, twice each, as i16.
///
/// They are in memory, since a broadcasting load uses none of the ports that multiply, as a shuffle would.
pub(super) struct GroupScales([__m256i; 2]);

impl GroupScales {
    /// `scales`: eight i16 of a superblock in each half.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn new(scales: __m256i) -> GroupScales {
        GroupScales([
            _mm256_unpacklo_epi16(scales, scales),
            _mm256_unpackhi_epi16(scales, scales),
        ])
    }

    /// The scale of a group of the superblock in half `half`, broadcast to a vector.
    ///
    /// It is the instruction itself: the compiler would take the scale from the register that still holds it, with a shuffle.
    ///
    /// # Safety
    /// `half` is below 2, `group` below 8.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn of(&self, half: usize, group: usize) -> __m256i {
        let scale;
        // SAFETY: four bytes of the scales are read.
        unsafe {
            let at = self.0.as_ptr().cast::<i32>();
            let at = at.add(8 * (group / 4) + 4 * half + group % 4);
            asm!(
                "vpbroadcastd {scale}, dword ptr [{at}]",
                scale = out(ymm_reg) scale,
                at = in(reg) at,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        scale
    }
}

/// Scaled products of a row's superblock, to be added up over all lanes. `scales` has those of the superblock in half `half`.
///
/// Pairs of products fit 16 bits: 2 · 31 · 127.
///
/// # Safety
/// `block` is a superblock, `half` is below 2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn nibble_products<const FORMAT: u8>(
    block: *const u8,
    (scales, half): (&GroupScales, usize),
    x: &X256,
) -> __m256i {
    let bit = _mm256_set1_epi8(0x10);
    let mut sum = _mm256_setzero_si256();
    // SAFETY: fields are where ggml's `block_*` structures have them.
    unsafe {
        let (nibbles, mut fifth) = if FORMAT == Q4_K {
            (block.add(16), _mm256_setzero_si256())
        } else {
            (block.add(48), _mm256_loadu_si256(block.add(16).cast()))
        };
        for pair in 0..4 {
            let v = _mm256_loadu_si256(nibbles.add(32 * pair).cast());
            let mut parts = [field::<0>(v, 0x0F), field::<4>(v, 0x0F)];
            if FORMAT == Q5_K {
                let low = _mm256_and_si256(_mm256_slli_epi16::<4>(fifth), bit);
                let high = _mm256_and_si256(_mm256_slli_epi16::<3>(fifth), bit);
                parts = [
                    _mm256_or_si256(parts[0], low),
                    _mm256_or_si256(parts[1], high),
                ];
                fifth = _mm256_srli_epi16::<2>(fifth);
            }
            for (odd, part) in parts.into_iter().enumerate() {
                let group = 2 * pair + odd;
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * group).cast());
                let scaled =
                    _mm256_madd_epi16(_mm256_maddubs_epi16(part, x), scales.of(half, group));
                sum = _mm256_add_epi32(sum, scaled);
            }
        }
    }
    sum
}

/// As [`nibble_products`], of Q6_K. Pairs of products: 2 · 63 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn six_bit_products(block: *const u8, elements: &Elements, x: &X256) -> __m256i {
    let upper = |v| _mm256_and_si256(v, _mm256_set1_epi8(0x30));
    // SAFETY: fields are where ggml's `block_q6_K` has them.
    unsafe {
        let scales = _mm_loadu_si128(block.add(192).cast());
        // Subtracts the contribution of the elements' offset of 32.
        let column_sums = _mm256_loadu_si256(x.sums_16.as_ptr().cast());
        let offset = _mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), column_sums);
        let mut sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<5>(offset));
        let scales = of_sixteens(scales);
        for half in 0..2 {
            let first = _mm256_loadu_si256(block.add(64 * half).cast());
            let second = _mm256_loadu_si256(block.add(64 * half + 32).cast());
            let high = _mm256_loadu_si256(block.add(128 + 32 * half).cast());
            let parts = [
                (field::<0>(first, 0x0F), _mm256_slli_epi16::<4>(high)),
                (field::<0>(second, 0x0F), _mm256_slli_epi16::<2>(high)),
                (field::<4>(first, 0x0F), high),
                (field::<4>(second, 0x0F), _mm256_srli_epi16::<2>(high)),
            ];
            for (i, (low, high)) in parts.into_iter().enumerate() {
                let i = 4 * half + i;
                let v = _mm256_or_si256(low, upper(high));
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * i).cast());
                let scaled = _mm256_madd_epi16(_mm256_maddubs_epi16(v, x), elements.of(scales, i));
                sum = _mm256_add_epi32(sum, scaled);
            }
        }
        sum
    }
}

/// As [`six_bit_products`], of Q3_K. Pairs of products: 2 · 7 · 127.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn three_bit_products(
    block: *const u8,
    elements: &Elements,
    x: &X256,
) -> __m256i {
    // SAFETY: fields are where ggml's `block_q3_K` has them.
    unsafe {
        let low = _mm_shuffle_epi32::<0b01_00_01_00>(_mm_loadl_epi64(block.add(96).cast()));
        let low = _mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 4, 4));
        let upper = _mm_set1_epi32(block.add(104).cast::<i32>().read_unaligned());
        let upper = _mm_srlv_epi32(upper, _mm_setr_epi32(0, 2, 4, 6));
        let upper = _mm_slli_epi32::<4>(_mm_and_si128(upper, _mm_set1_epi8(3)));
        let six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(0x0F)), upper);
        let scales = _mm_sub_epi8(six, _mm_set1_epi8(32));
        // Subtracts the contribution of the levels' offset of 4.
        let column_sums = _mm256_loadu_si256(x.sums_16.as_ptr().cast());
        let offset = _mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), column_sums);
        let mut sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<2>(offset));
        let scales = of_sixteens(scales);
        let mut third = _mm256_loadu_si256(block.cast());
        for half in 0..2 {
            let mut low = _mm256_loadu_si256(block.add(32 + 32 * half).cast());
            for i in 4 * half..4 * half + 4 {
                let bit = _mm256_and_si256(third, _mm256_set1_epi8(1));
                let v = _mm256_or_si256(field::<0>(low, 3), _mm256_slli_epi16::<2>(bit));
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * i).cast());
                let scaled = _mm256_madd_epi16(_mm256_maddubs_epi16(v, x), elements.of(scales, i));
                sum = _mm256_add_epi32(sum, scaled);
                low = _mm256_srli_epi16::<2>(low);
                third = _mm256_srli_epi16::<1>(third);
            }
        }
        sum
    }
}

/// As [`six_bit_products`], of Q2_K, and the products of its minimums.
///
/// # Safety
/// `block` is a superblock.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn two_bit_products(
    block: *const u8,
    elements: &Elements,
    x: &X256,
) -> [__m256i; 2] {
    // SAFETY: fields are where ggml's `block_q2_K` has them.
    unsafe {
        let both = _mm_loadu_si128(block.cast());
        let nibble = _mm_set1_epi8(0x0F);
        let minimums = _mm_and_si128(_mm_srli_epi16::<4>(both), nibble);
        let column_sums = _mm256_loadu_si256(x.sums_16.as_ptr().cast());
        let minimums = _mm256_madd_epi16(_mm256_cvtepi8_epi16(minimums), column_sums);
        let scales = of_sixteens(_mm_and_si128(both, nibble));
        let mut sum = _mm256_setzero_si256();
        for half in 0..2 {
            let mut low = _mm256_loadu_si256(block.add(16 + 32 * half).cast());
            for i in 4 * half..4 * half + 4 {
                let x = _mm256_loadu_si256(x.q.as_ptr().add(32 * i).cast());
                let pairs = _mm256_maddubs_epi16(field::<0>(low, 3), x);
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, elements.of(scales, i)));
                low = _mm256_srli_epi16::<2>(low);
            }
        }
        [sum, minimums]
    }
}

/// Sixteen scales as i16, even ones in the lower half, odd ones in the upper: vectors of levels are two groups of 16 columns.
#[inline]
#[target_feature(enable = "avx2")]
fn of_sixteens(scales: __m128i) -> __m256i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, order))
}

/// For each i16 of a half: the bytes that repeat it all over the half.
pub(super) struct Elements([[u8; 32]; 8]);

impl Elements {
    const ALL: Elements = {
        let mut orders = [[0; 32]; 8];
        let mut i = 0;
        while i < 8 * 32 {
            orders[i / 32][i % 32] = (2 * (i / 32) + (i % 2)) as u8;
            i += 1;
        }
        Elements(orders)
    };

    /// Hidden from the compiler, which turns each shuffle with known contents into two.
    #[inline]
    pub(super) fn hidden() -> &'static Elements {
        black_box(&Elements::ALL)
    }

    /// The `i`-th i16 of each half, in all of the half.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(&self, v: __m256i, i: usize) -> __m256i {
        // SAFETY: 32 readable bytes.
        let order = unsafe { _mm256_loadu_si256(self.0[i].as_ptr().cast()) };
        _mm256_shuffle_epi8(v, order)
    }
}
