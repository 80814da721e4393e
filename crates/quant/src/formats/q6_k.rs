//! Q6_K: 256 elements in 16 sub-blocks of 16, `w = d·scale·(q − 32)`.
//!
//! Bytes: 128 of low nibbles (each 64 bytes: low nibbles are one run of 64 elements, high nibbles
//! the next), 64 of the upper two bits as in Q2_K, 16 of i8 scales, f16 d.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::symmetric::{self, Symmetric};

const BYTES: usize = 210;
const ELEMS: usize = 256;
const HIGH: usize = 128;
const SCALES: usize = 192;
const D: usize = 208;

pub(crate) const FORMAT: Format = Format {
    name: "q6_k",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 64 levels, 8-bit scale in 16.
    error_budget: 0.0175,
    gguf_type: Some(14),
    safetensors_name: None,
    file_types: &[FileType::new("Q6_K", Some(18))],
    narrower: DType::Q8_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, D);
    for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block[SCALES + j] as i8);
        let low = &block[j / 8 * 64 + j % 4 * 16..];
        let high = &block[HIGH + j / 8 * 32 + j % 2 * 16..];
        for (i, out) in out.iter_mut().enumerate() {
            let low = low[i] >> (j % 8 / 4 * 4) & 0x0F;
            let high = high[i] >> (j % 8 / 2 * 2) & 3;
            *out = scale * f32::from((low | high << 4) as i8 - 32);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let fit: Symmetric = symmetric::fit(x, importance, symmetric::LEVELS_64);
    let q = fit.q.map(|q| (q + 32) as u8);
    for (i, byte) in block[..HIGH].iter_mut().enumerate() {
        let first = i / 64 * 128 + i % 64;
        *byte = q[first] & 0x0F | q[first + 64] << 4;
    }
    for (i, byte) in block[HIGH..SCALES].iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *byte = (0..4).fold(0, |bits, s| bits | q[first + 32 * s] >> 4 << (2 * s));
    }
    for (scale, byte) in fit.scales.iter().zip(&mut block[SCALES..D]) {
        *byte = *scale as u8;
    }
    put_f16(block, D, fit.d);
}
