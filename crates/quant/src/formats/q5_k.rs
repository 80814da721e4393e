//! Q5_K: 256 elements in 8 sub-blocks of 32, `w = d·scale·q − dmin·min`.
//!
//! Bytes: f16 d, f16 dmin, 12 of 6-bit scales and minimums, 32 of fifth bits (bit j of byte i
//! belongs to element i of sub-block j), 128 of nibbles as in Q4_K.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, k_scales, put_f16};
use crate::search::affine::{self, Affine};

const BYTES: usize = 176;
const ELEMS: usize = 256;
const NIBBLES: usize = 48;

pub(crate) const FORMAT: Format = Format {
    name: "q5_k",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 32 levels, 6-bit scale and minimum in 32.
    error_budget: 0.0351,
    gguf_type: Some(13),
    safetensors_name: None,
    file_types: &[
        FileType::new("Q5_K_S", Some(16)),
        FileType::new("Q5_K_M", Some(17)),
    ],
    narrower: DType::Q5_1,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let (d, dmin) = (get_f16(block, 0), get_f16(block, 2));
    let (scales, mins) = k_scales::unpack(&block[4..16]);
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = (d * f32::from(scales[j]), dmin * f32::from(mins[j]));
        let low = &block[NIBBLES + j / 2 * 32..];
        let high = &block[16..NIBBLES];
        for (i, out) in out.iter_mut().enumerate() {
            let q = low[i] >> (4 * (j % 2)) & 0x0F | (high[i] >> j & 1) << 4;
            *out = scale * f32::from(q) - min;
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let fit: Affine<8> = affine::fit::<8, 32>(x, importance, affine::LEVELS_32);
    put_f16(block, 0, fit.d);
    put_f16(block, 2, fit.dmin);
    k_scales::pack(&fit.scales, &fit.mins, &mut block[4..16]);
    for (i, byte) in block[16..NIBBLES].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |bits, j| bits | (fit.q[j * 32 + i] >> 4) << j);
    }
    for (i, byte) in block[NIBBLES..].iter_mut().enumerate() {
        let low = i / 32 * 64 + i % 32;
        *byte = fit.q[low] & 0x0F | fit.q[low + 32] << 4;
    }
}
