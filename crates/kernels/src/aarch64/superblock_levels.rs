//! The k-quants Q4_K, Q5_K and Q6_K: levels, scales and minimums of four rows. Levels are signed bytes, with offsets subtracted.

use super::lines::{load_f16, map, transpose, widen_f16};
use millrace_quant::DType;
use std::arch::aarch64::*;

/// Formats; the codes are const parameters.
pub(super) const Q4_K: u8 = 0;
pub(super) const Q5_K: u8 = 1;
pub(super) const Q6_K: u8 = 2;

/// The format of a code.
pub(super) const fn dtype(format: u8) -> DType {
    match format {
        Q4_K => DType::Q4K,
        Q5_K => DType::Q5K,
        _ => DType::Q6K,
    }
}

/// Bytes of a superblock, [`DType::block_bytes`] as a constant.
pub(super) const fn block_bytes(format: u8) -> usize {
    match format {
        Q4_K => 16 + 128,
        Q5_K => 16 + 32 + 128,
        _ => 128 + 64 + 16 + 2,
    }
}

/// Columns that share a scale.
pub(super) const fn sub_k(format: u8) -> usize {
    if format == Q6_K { 16 } else { 32 }
}

/// Scales and minimums of a superblock of four rows; a lane is a row.
pub(super) struct SuperblockHeader {
    /// Integer scales, one for each [`sub_k`] columns.
    pub(super) scales: [int32x4_t; 16],
    /// Scale of the scales.
    pub(super) d: float32x4_t,
    /// Minimums for each 32 columns (Q4_K and Q5_K).
    pub(super) mins: [int32x4_t; 8],
    /// Scale of the minimums, negated.
    pub(super) minus_d_min: float32x4_t,
}

/// # Safety
/// Each of `blocks` is a superblock.
#[inline(always)]
pub(super) unsafe fn header<const FORMAT: u8>(blocks: [*const u8; 4]) -> SuperblockHeader {
    // SAFETY: forwarded.
    unsafe {
        if FORMAT == Q6_K {
            of_six_bits(blocks)
        } else {
            with_minimums(blocks)
        }
    }
}

/// Byte `i % 4` of the lanes of vector `i / 4`, sign-extended.
#[inline(always)]
fn each_byte<const N: usize, const BYTES: usize>(v: [uint32x4_t; N]) -> [int32x4_t; BYTES] {
    const { assert!(BYTES == 4 * N) };
    let mut bytes = [byte(v[0], 0); BYTES];
    for (i, to) in bytes.iter_mut().enumerate() {
        *to = byte(v[i / 4], i % 4);
    }
    bytes
}

/// Byte `j` of each lane, sign-extended.
#[inline(always)]
fn byte(v: uint32x4_t, j: usize) -> int32x4_t {
    // SAFETY: every AArch64 has these.
    unsafe {
        let up = vshlq_u32(v, vdupq_n_s32(24 - 8 * j as i32));
        vshrq_n_s32::<24>(vreinterpretq_s32_u32(up))
    }
}

/// Sixteen signed scales at byte 192, the scale of scales at byte 208.
///
/// # Safety
/// As [`header`].
#[inline(always)]
unsafe fn of_six_bits(blocks: [*const u8; 4]) -> SuperblockHeader {
    // SAFETY: within the superblock.
    unsafe {
        let words = transpose(map(blocks, |block| vld1q_u32(block.add(192).cast())));
        SuperblockHeader {
            scales: each_byte(words),
            d: load_f16(map(blocks, |block| block.add(208))),
            mins: [vdupq_n_s32(0); 8],
            minus_d_min: vdupq_n_f32(0.0),
        }
    }
}

/// The header that Q4_K and Q5_K share: six-bit scales and minimums. The low four are whole; the upper four are split between the
/// third word and the top bits of the first two.
///
/// # Safety
/// As [`header`].
#[inline(always)]
unsafe fn with_minimums(blocks: [*const u8; 4]) -> SuperblockHeader {
    // SAFETY: the header is 16 bytes.
    unsafe {
        let headers = map(blocks, |block| vld1q_u32(block.cast()));
        let [d_and_min, scales, mins, upper] = transpose(headers);
        let field = |v, mask: u8| vandq_u32(v, vreinterpretq_u32_u8(vdupq_n_u8(mask)));
        let top = |v| field(vshrq_n_u32::<2>(v), 0x30);
        let scales = [
            field(scales, 0x3F),
            vorrq_u32(field(upper, 0x0F), top(scales)),
        ];
        let mins = [
            field(mins, 0x3F),
            vorrq_u32(field(vshrq_n_u32::<4>(upper), 0x0F), top(mins)),
        ];
        let d_min = widen_f16(vshrn_n_u32::<16>(d_and_min));
        SuperblockHeader {
            scales: each_byte([scales[0], scales[1], scales[0], scales[1]]),
            d: widen_f16(vmovn_u32(d_and_min)),
            mins: each_byte(mins),
            minus_d_min: vnegq_f32(d_min),
        }
    }
}

/// Gives `use_levels` the levels of each 32 columns of four rows, with the number of the 32.
///
/// # Safety
/// Each of `blocks` is a superblock.
#[inline(always)]
pub(super) unsafe fn each_32<const FORMAT: u8>(
    blocks: [*const u8; 4],
    use_levels: impl FnMut(usize, [[int8x16_t; 2]; 4]),
) {
    // SAFETY: forwarded.
    unsafe {
        match FORMAT {
            Q4_K => each_32_of_four_bits(blocks, use_levels),
            Q5_K => each_32_of_five_bits(blocks, use_levels),
            _ => each_32_of_six_bits(blocks, use_levels),
        }
    }
}

/// Thirty-two bytes.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn load(from: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: forwarded.
    unsafe { [vld1q_u8(from), vld1q_u8(from.add(16))] }
}

/// Bits of each byte, moved down by `SHIFT` and masked.
#[inline(always)]
fn bits<const SHIFT: i32>(v: uint8x16_t, mask: u8) -> uint8x16_t {
    // SAFETY: every AArch64 has these.
    unsafe { vandq_u8(vshrq_n_u8::<SHIFT>(v), vdupq_n_u8(mask)) }
}

#[inline(always)]
fn low(v: uint8x16_t) -> uint8x16_t {
    // SAFETY: every AArch64 has these.
    unsafe { vandq_u8(v, vdupq_n_u8(0x0F)) }
}

#[inline(always)]
fn signed(v: uint8x16_t) -> int8x16_t {
    // SAFETY: every AArch64 has these.
    unsafe { vreinterpretq_s8_u8(v) }
}

/// Nibbles from byte 16 on: of 32 bytes, the low ones, then the high ones.
///
/// # Safety
/// As [`each_32`].
#[inline(always)]
unsafe fn each_32_of_four_bits(
    blocks: [*const u8; 4],
    mut use_levels: impl FnMut(usize, [[int8x16_t; 2]; 4]),
) {
    for pair in 0..4 {
        // SAFETY: within the superblock.
        let bytes = map(blocks, |block| unsafe { load(block.add(16 + 32 * pair)) });
        use_levels(2 * pair, each(|r, s| signed(low(bytes[r][s]))));
        use_levels(
            2 * pair + 1,
            each(|r, s| signed(bits::<4>(bytes[r][s], 0x0F))),
        );
    }
}

/// As Q4_K from byte 48 on; bit `j` of 32 bytes from byte 16 on is the fifth one of 32 columns number `j`.
///
/// # Safety
/// As [`each_32`].
#[inline(always)]
unsafe fn each_32_of_five_bits(
    blocks: [*const u8; 4],
    mut use_levels: impl FnMut(usize, [[int8x16_t; 2]; 4]),
) {
    // SAFETY: within the superblock; the shifts are of registers.
    unsafe {
        let mut fifth = map(blocks, |block| load(block.add(16)));
        for pair in 0..4 {
            let bytes = map(blocks, |block| load(block.add(48 + 32 * pair)));
            let with = |nibbles: uint8x16_t, fifth: uint8x16_t| {
                signed(vorrq_u8(nibbles, vandq_u8(fifth, vdupq_n_u8(0x10))))
            };
            let first = |r: usize, s: usize| with(low(bytes[r][s]), vshlq_n_u8::<4>(fifth[r][s]));
            let second = |r: usize, s: usize| {
                with(bits::<4>(bytes[r][s], 0x0F), vshlq_n_u8::<3>(fifth[r][s]))
            };
            use_levels(2 * pair, each(first));
            use_levels(2 * pair + 1, each(second));
            fifth = map(fifth, |v| map(v, |v| vshrq_n_u8::<2>(v)));
        }
    }
}

/// For each half of 128 columns: nibbles of 64 bytes, the low ones first, and from byte 128 on 32 bytes with two upper bits for
/// each 32 columns.
///
/// # Safety
/// As [`each_32`].
#[inline(always)]
unsafe fn each_32_of_six_bits(
    blocks: [*const u8; 4],
    mut use_levels: impl FnMut(usize, [[int8x16_t; 2]; 4]),
) {
    // SAFETY: within the superblock; the shifts are of registers.
    unsafe {
        for half in 0..2 {
            let first = map(blocks, |block| load(block.add(64 * half)));
            let second = map(blocks, |block| load(block.add(64 * half + 32)));
            let upper = map(blocks, |block| load(block.add(128 + 32 * half)));
            let with = |nibbles: uint8x16_t, upper: uint8x16_t| {
                let v = vorrq_u8(nibbles, vandq_u8(upper, vdupq_n_u8(0x30)));
                vsubq_s8(signed(v), vdupq_n_s8(32))
            };
            use_levels(
                4 * half,
                each(|r, s| with(low(first[r][s]), vshlq_n_u8::<4>(upper[r][s]))),
            );
            use_levels(
                4 * half + 1,
                each(|r, s| with(low(second[r][s]), vshlq_n_u8::<2>(upper[r][s]))),
            );
            use_levels(
                4 * half + 2,
                each(|r, s| with(bits::<4>(first[r][s], 0x0F), upper[r][s])),
            );
            use_levels(
                4 * half + 3,
                each(|r, s| with(bits::<4>(second[r][s], 0x0F), vshrq_n_u8::<2>(upper[r][s]))),
            );
        }
    }
}

/// The results of `of` for each row and each sixteen columns.
#[inline(always)]
fn each(of: impl Fn(usize, usize) -> int8x16_t) -> [[int8x16_t; 2]; 4] {
    map([0, 1, 2, 3], |r| [of(r, 0), of(r, 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_are_as_long_as_their_formats_say() {
        for format in [Q4_K, Q5_K, Q6_K] {
            assert_eq!(block_bytes(format), dtype(format).block_bytes());
        }
    }
}
