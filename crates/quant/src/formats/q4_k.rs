//! Q4_K: 256 elements in 8 sub-blocks of 32, `w = d·scale·q − dmin·min`.
//!
//! Bytes: f16 d, f16 dmin, 12 of 6-bit scales and minimums, 128 of nibbles (each 32 bytes: the low
//! nibbles are one sub-block, the high nibbles the next).

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, k_scales, put_f16};
use crate::search::affine::{self, Affine};

const BYTES: usize = 144;
const ELEMS: usize = 256;

pub(crate) const FORMAT: Format = Format {
    name: "q4_k",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 16 levels, 6-bit scale and minimum in 32.
    error_budget: 0.0712,
    gguf_type: Some(12),
    safetensors_name: None,
    file_types: &[
        FileType::new("Q4_K_S", Some(14)),
        FileType::new("Q4_K_M", Some(15)),
    ],
    narrower: DType::Q5_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let (d, dmin) = (get_f16(block, 0), get_f16(block, 2));
    let (scales, mins) = k_scales::unpack(&block[4..16]);
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = (d * f32::from(scales[j]), dmin * f32::from(mins[j]));
        let packed = &block[16 + j / 2 * 32..];
        for (out, byte) in out.iter_mut().zip(packed) {
            *out = scale * f32::from(byte >> (4 * (j % 2)) & 0x0F) - min;
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let fit: Affine<8> = affine::fit::<8, 32>(x, importance, affine::LEVELS_16);
    put_f16(block, 0, fit.d);
    put_f16(block, 2, fit.dmin);
    k_scales::pack(&fit.scales, &fit.mins, &mut block[4..16]);
    for (i, byte) in block[16..].iter_mut().enumerate() {
        let low = i / 32 * 64 + i % 32;
        *byte = fit.q[low] | fit.q[low + 32] << 4;
    }
}
