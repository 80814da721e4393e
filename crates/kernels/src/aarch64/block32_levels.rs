//! Formats of 32-column blocks: levels and scales. Levels are signed bytes, with offsets subtracted.

use super::lines::{load_f16, map};
use millrace_quant::DType;
use std::arch::aarch64::*;

/// Formats; the codes are const parameters.
pub(super) const Q4_0: u8 = 0;
pub(super) const Q4_1: u8 = 1;
pub(super) const Q5_0: u8 = 2;
pub(super) const Q5_1: u8 = 3;
pub(super) const Q8_0: u8 = 4;
pub(super) const Q8_1: u8 = 5;
pub(super) const IQ4_NL: u8 = 6;
pub(super) const MXFP4: u8 = 7;

/// Whether a block has a minimum.
pub(super) const fn has_min(format: u8) -> bool {
    matches!(format, Q4_1 | Q5_1)
}

/// The format of a code.
pub(super) const fn dtype(format: u8) -> DType {
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

/// Bytes of a block, [`DType::block_bytes`] as a constant.
pub(super) const fn block_bytes(format: u8) -> usize {
    match format {
        Q4_0 | IQ4_NL => 2 + 16,
        Q4_1 => 4 + 16,
        Q5_0 => 2 + 4 + 16,
        Q5_1 => 4 + 4 + 16,
        Q8_0 => 2 + 32,
        Q8_1 => 4 + 32,
        _ => 1 + 16,
    }
}

/// Values of IQ4_NL's sixteen codes (ggml's `kvalues_iq4nl`).
const IQ4_NL_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Doubled values of E2M1's sixteen codes (OCP Microscaling Formats 1.0).
const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Bit `i` of each byte of eight, twice.
const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Scales of the block at each of four addresses, and minimums where the format has them.
///
/// # Safety
/// Each is a block.
#[inline(always)]
pub(super) unsafe fn scales<const FORMAT: u8>(
    blocks: [*const u8; 4],
) -> (float32x4_t, float32x4_t) {
    // SAFETY: fields are where ggml's `block_*` structures have them.
    unsafe {
        let d = if FORMAT == MXFP4 {
            let bits = map(blocks, |block| half_exponent(block.read()));
            vreinterpretq_f32_u32(vld1q_u32(bits.as_ptr()))
        } else {
            load_f16(blocks)
        };
        let min = if has_min(FORMAT) {
            load_f16(map(blocks, |block| block.add(2)))
        } else {
            vdupq_n_f32(0.0)
        };
        (d, min)
    }
}

/// Bits of half the value of an E8M0 exponent: 2^(e − 128), subnormal for the first two.
#[inline(always)]
fn half_exponent(e: u8) -> u32 {
    match e {
        0 | 1 => 0x0020_0000 << e,
        _ => u32::from(e - 1) << 23,
    }
}

/// The levels of a block, in the order of columns.
///
/// # Safety
/// `block` is a block.
#[inline(always)]
pub(super) unsafe fn levels<const FORMAT: u8>(block: *const u8) -> [int8x16_t; 2] {
    let block_bytes = const { block_bytes(FORMAT) };
    // SAFETY: as in `scales`.
    unsafe {
        if matches!(FORMAT, Q8_0 | Q8_1) {
            let first: *const i8 = block.add(block_bytes - 32).cast();
            return [vld1q_s8(first), vld1q_s8(first.add(16))];
        }
        let nibbles = vld1q_u8(block.add(block_bytes - 16));
        let codes = [
            vandq_u8(nibbles, vdupq_n_u8(0x0F)),
            vshrq_n_u8::<4>(nibbles),
        ];
        let less = |codes: [uint8x16_t; 2], offset| {
            map(codes, |v| {
                vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(offset))
            })
        };
        match FORMAT {
            Q4_0 => less(codes, 8),
            Q5_0 => less(with_fifth_bits(codes, block.add(2)), 16),
            Q5_1 => less(with_fifth_bits(codes, block.add(4)), 0),
            IQ4_NL => map(codes, |v| vqtbl1q_s8(vld1q_s8(IQ4_NL_VALUES.as_ptr()), v)),
            MXFP4 => map(codes, |v| vqtbl1q_s8(vld1q_s8(MXFP4_VALUES.as_ptr()), v)),
            _ => less(codes, 0),
        }
    }
}

/// Adds bit 4 of each code: 32 bits in the order of columns.
///
/// # Safety
/// Four readable bytes.
#[inline(always)]
unsafe fn with_fifth_bits(codes: [uint8x16_t; 2], bits: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: forwarded.
    map([0, 1], |i| unsafe {
        let byte = |j: usize| vdup_n_u8(bits.add(2 * i + j).read());
        let own = vtstq_u8(vcombine_u8(byte(0), byte(1)), vld1q_u8(BITS.as_ptr()));
        vorrq_u8(codes[i], vandq_u8(own, vdupq_n_u8(0x10)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_their_formats_say() {
        for format in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, IQ4_NL, MXFP4] {
            assert_eq!(block_bytes(format), dtype(format).block_bytes());
        }
    }
}
