//! TQ2_0: 256 ternary elements, `w = d·(q − 1)`, four in a byte.
//!
//! Bytes: 64 of two-bit levels (each 32 bytes hold 128 elements: bits 2s and 2s+1 are the s-th run of 32), f16 d. The level
//! 3 decodes to 2·d.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::ternary;

const BYTES: usize = 66;
const ELEMS: usize = 256;
const D: usize = 64;

pub(crate) const FORMAT: Format = Format {
    name: "tq2_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 levels, one scale in 256.
    error_budget: 0.438,
    gguf_type: Some(35),
    safetensors_name: None,
    file_types: &[FileType::new("TQ2_0", Some(37))],
    narrower: DType::Q4_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, D);
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let packed = &block[j / 4 * 32..][..32];
        for (out, byte) in out.iter_mut().zip(packed) {
            *out = d * f32::from((byte >> (j % 4 * 2) & 3) as i8 - 1);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let (d, q) = ternary::fit(x, importance);
    put_f16(block, D, d);
    for (i, byte) in block[..D].iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *byte = (0..4).fold(0, |bits, s| {
            bits | ((q[first + 32 * s] + 1) as u8) << (2 * s)
        });
    }
}
