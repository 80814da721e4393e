//! TQ1_0: 256 ternary elements, `w = d·(q − 1)`, five in a byte.
//!
//! Bytes: 48 of five elements each (32 of the first 160: byte i holds elements i, i + 32, …; 16 of the next 80, likewise in
//! steps of 16), 4 of four elements in steps of 4, f16 d. A byte is `⌈256·v/243⌉`, v having its elements as digits of base
//! 3, the first one uppermost.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::ternary;

const BYTES: usize = 54;
const ELEMS: usize = 256;
const D: usize = 52;

pub(crate) const FORMAT: Format = Format {
    name: "tq1_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 levels, one scale in 256.
    error_budget: 0.438,
    gguf_type: Some(34),
    safetensors_name: None,
    file_types: &[FileType::new("TQ1_0", Some(36))],
    narrower: DType::Q4_0,
    has_coarse_scales: false,
    needs_importance: false,
};

/// Runs of bytes: the first byte, the number of bytes, and their first element; byte i of a run of n holds elements i,
/// i + n, …
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 0), (32, 16, 160), (48, 4, 240)];

/// Digits that a byte of a run holds: the last run ends the block.
fn n_digits(first_elem: usize) -> usize {
    if first_elem == 240 { 4 } else { 5 }
}

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, D);
    for (first, n, elem) in RUNS {
        for digit in 0..n_digits(elem) {
            let shift = 3u8.pow(digit as u32);
            for i in 0..n {
                let rest = block[first + i].wrapping_mul(shift);
                let q = ((u16::from(rest) * 3) >> 8) as i8;
                out[elem + digit * n + i] = d * f32::from(q - 1);
            }
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let (d, q) = ternary::fit(x, importance);
    put_f16(block, D, d);
    for (first, n, elem) in RUNS {
        for i in 0..n {
            let digits = (0..n_digits(elem)).map(|digit| q[elem + digit * n + i]);
            let value = digits.fold(0, |value, q| 3 * value + (q + 1) as u16);
            // Bytes of four digits leave the fifth at zero.
            let value = if elem == 240 { 3 * value } else { value };
            block[first + i] = (value * 256).div_ceil(243) as u8;
        }
    }
}
