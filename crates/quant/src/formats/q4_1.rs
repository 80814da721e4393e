//! Q4_1: 32 elements, `w = d·q + m`. Bytes: f16 d, f16 m, 16 of nibbles.

use super::{
    DType, FileType, Format, decode_each, encode_each, get_f16, put_f16, range, reciprocal,
};
use super::{pack_nibbles, unpack_nibbles};

const BYTES: usize = 20;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "q4_1",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 16 levels, scale and minimum in 32.
    error_budget: 0.0788,
    gguf_type: Some(3),
    safetensors_name: None,
    file_types: &[FileType::new("Q4_1", Some(3))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let (d, m) = (get_f16(block, 0), get_f16(block, 2));
    for (q, out) in unpack_nibbles(&block[4..]).into_iter().zip(out) {
        *out = d * f32::from(q) + m;
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    let (lo, hi) = range(x);
    let d = (hi - lo) / 15.0;
    let inverse = reciprocal(d);
    put_f16(block, 0, d);
    put_f16(block, 2, lo);
    let q = x.map(|v| (((v - lo) * inverse + 0.5) as u8).min(15));
    pack_nibbles(&q, &mut block[4..]);
}
