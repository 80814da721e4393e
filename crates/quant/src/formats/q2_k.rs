//! Q2_K: 256 elements in 16 sub-blocks of 16, `w = d·scale·q − dmin·min`.
//!
//! Bytes: 16 of scale (low nibble) and minimum (high nibble), 64 of two-bit levels (each 32 bytes
//! hold 128 elements: bits 2s and 2s+1 are the s-th run of 32), f16 d, f16 dmin.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::affine::{self, Affine};

const BYTES: usize = 84;
const ELEMS: usize = 256;
const D: usize = 80;

pub(crate) const FORMAT: Format = Format {
    name: "q2_k",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 4 levels, 4-bit scale and minimum in 16.
    error_budget: 0.2705,
    gguf_type: Some(10),
    safetensors_name: None,
    file_types: &[
        FileType::new("Q2_K", Some(10)),
        FileType::new("Q2_K_S", Some(21)),
    ],
    narrower: DType::Q4_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let (d, dmin) = (get_f16(block, D), get_f16(block, D + 2));
    for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (scale, min) = (block[j] & 0x0F, block[j] >> 4);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let packed = &block[16 + j / 8 * 32 + j % 2 * 16..];
        for (out, byte) in out.iter_mut().zip(packed) {
            *out = scale * f32::from(byte >> (j % 8 / 2 * 2) & 3) - min;
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let fit: Affine<16> = affine::fit::<16, 16>(x, importance, affine::LEVELS_4);
    for (j, byte) in block[..16].iter_mut().enumerate() {
        *byte = fit.scales[j] | fit.mins[j] << 4;
    }
    for (i, byte) in block[16..D].iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *byte = (0..4).fold(0, |bits, s| bits | fit.q[first + 32 * s] << (2 * s));
    }
    put_f16(block, D, fit.d);
    put_f16(block, D + 2, fit.dmin);
}
