//! Q3_K: 256 elements in 16 sub-blocks of 16, `w = d·(scale − 32)·(q − 4)`.
//!
//! Bytes: 32 of third bits (bit b of byte i belongs to element 32·b + i), 64 of the lower two bits
//! as in Q2_K, 12 of 6-bit scales (low nibbles of scales 0–7 and 8–15 in the nibbles of bytes 0–7,
//! upper two bits in bytes 8–11), f16 d.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::symmetric::{self, Symmetric};

const BYTES: usize = 110;
const ELEMS: usize = 256;
const LOW: usize = 32;
const SCALES: usize = 96;
const D: usize = 108;

pub(crate) const FORMAT: Format = Format {
    name: "q3_k",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 8 levels, 6-bit scale in 16.
    error_budget: 0.1465,
    gguf_type: Some(11),
    safetensors_name: None,
    file_types: &[
        FileType::new("Q3_K_S", Some(11)),
        FileType::new("Q3_K_M", Some(12)),
        FileType::new("Q3_K_L", Some(13)),
    ],
    narrower: DType::Q4_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn scale(packed: &[u8], j: usize) -> i8 {
    let low = packed[j % 8] >> (4 * (j / 8)) & 0x0F;
    let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    (low | high << 4) as i8 - 32
}

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, D);
    for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scale(&block[SCALES..D], j));
        let low = &block[LOW + j / 8 * 32 + j % 2 * 16..];
        let high = &block[j % 2 * 16..];
        for (i, out) in out.iter_mut().enumerate() {
            let q = low[i] >> (j % 8 / 2 * 2) & 3 | (high[i] >> (j / 2) & 1) << 2;
            *out = scale * f32::from(q as i8 - 4);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let fit: Symmetric = symmetric::fit(x, importance, symmetric::LEVELS_8);
    let q = fit.q.map(|q| (q + 4) as u8);
    for (i, byte) in block[..LOW].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |bits, b| bits | (q[32 * b + i] >> 2) << b);
    }
    for (i, byte) in block[LOW..SCALES].iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *byte = (0..4).fold(0, |bits, s| bits | (q[first + 32 * s] & 3) << (2 * s));
    }
    let scales = fit.scales.map(|s| (s + 32) as u8);
    for j in 0..8 {
        block[SCALES + j] = scales[j] & 0x0F | scales[j + 8] << 4;
    }
    for j in 0..4 {
        let high = (0..4).fold(0, |bits, s| bits | scales[j + 4 * s] >> 4 << (2 * s));
        block[SCALES + 8 + j] = high;
    }
    put_f16(block, D, fit.d);
}
