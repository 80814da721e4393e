//! Formats whose levels are looked up or spread over a block. Levels are the reference decoder's weights divided by their scale.
//!
//! A weight is a whole number times its scale, exactly, so the quotient is that number.

use super::{Block32, f16_at};
use millrace_quant::{DType, decode_blocks};

/// Columns `32b..32b + 32` of a row, in a format that has no block of 32 columns; `None` if no integer kernel takes the format.
pub(super) fn block32(
    dtype: DType,
    bytes: &[u8],
    k: usize,
    row: usize,
    b: usize,
) -> Option<Block32> {
    let elems = dtype.block_elems();
    let parts = elems / 32;
    let index = (row * k).checked_div(elems)? + b.checked_div(parts)?;
    let block = &bytes[index * dtype.block_bytes()..][..dtype.block_bytes()];
    let j = b % parts;
    let (d, upper) = scales(dtype, block, j)?;
    let mut w = vec![0.0; elems];
    decode_blocks(dtype, block, &mut w).expect("one block");
    let q = std::array::from_fn(|i| {
        let d = upper.filter(|_| i >= 16).unwrap_or(d);
        if d == 0.0 {
            0
        } else {
            (w[32 * j + i] / d) as i32
        }
    });
    Some(Block32 {
        q,
        d,
        upper,
        min: None,
    })
}

/// The scales of columns `32j..32j + 32` of a block, the second where they have two.
fn scales(dtype: DType, s: &[u8], j: usize) -> Option<(f32, Option<f32>)> {
    let u16_at = |at: usize| u16::from_le_bytes([s[at], s[at + 1]]);
    let odd = |code: u16| f32::from(2 * code + 1);
    // The codes in the nibbles of a byte, low ones first.
    let nibbles = |byte: u8| (odd(u16::from(byte & 15)), Some(odd(u16::from(byte >> 4))));
    let times =
        |d: f32, (first, upper): (f32, Option<f32>)| (d * first, upper.map(|upper| d * upper));
    Some(match dtype {
        DType::Iq3S => {
            let code = s[106 + j / 2] >> (4 * (j % 2)) & 15;
            (f16_at(s, 0) * odd(code.into()), None)
        }
        DType::Iq3Xxs => (
            f16_at(s, 0) * odd(u16::from(s[66 + 4 * j + 3] >> 4)) / 4.0,
            None,
        ),
        DType::Iq2Xxs => (
            f16_at(s, 0) * odd(u16::from(s[2 + 8 * j + 7] >> 4)) / 8.0,
            None,
        ),
        DType::Iq2Xs => times(f16_at(s, 0) / 8.0, nibbles(s[66 + j])),
        DType::Iq2S => times(f16_at(s, 0) / 8.0, nibbles(s[74 + j])),
        // Levels are eighths.
        DType::Iq1S => (f16_at(s, 0) * odd(u16_at(34 + 2 * j) >> 12 & 7) / 8.0, None),
        DType::Iq1M => {
            let tops = |i: usize| (s[49 + 2 * i] >> 4) << (4 * (i % 2));
            let d = f16_at(&[tops(0) | tops(1), tops(2) | tops(3)], 0) / 8.0;
            let codes = u16_at(48 + 2 * (j / 2)) >> (6 * (j % 2));
            times(d, (odd(codes & 7), Some(odd(codes >> 3 & 7))))
        }
        DType::Tq1_0 => (f16_at(s, 52), None),
        DType::Tq2_0 => (f16_at(s, 64), None),
        DType::Q1_0 | DType::Q2_0 => (f16_at(s, 0), None),
        DType::Nvfp4 => (half_of_e4m3(s[2 * j]), Some(half_of_e4m3(s[2 * j + 1]))),
        _ => return None,
    })
}

/// Half the value of an E4M3 number without its sign; the NaN without sign counts as 0.
fn half_of_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    match exponent {
        _ if bits == 0x7F => 0.0,
        0 => mantissa / 1024.0,
        _ => (8.0 + mantissa) / 8.0 * 2.0_f32.powi(exponent - 8),
    }
}
