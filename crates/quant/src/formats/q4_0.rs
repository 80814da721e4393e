//! Q4_0: 32 elements, `w = d·(q − 8)`. Bytes: f16 d, 16 of nibbles.

use super::{
    DType, FileType, Format, decode_each, encode_each, extreme, get_f16, put_f16, reciprocal,
};
use super::{pack_nibbles, unpack_nibbles};

const BYTES: usize = 18;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "q4_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 16 levels, one scale in 32.
    error_budget: 0.0868,
    gguf_type: Some(2),
    safetensors_name: None,
    file_types: &[FileType::new("Q4_0", Some(2))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (q, out) in unpack_nibbles(&block[2..]).into_iter().zip(out) {
        *out = d * f32::from(q as i8 - 8);
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    // The extreme maps to −8: the one level that has no opposite.
    let d = extreme(x) / -8.0;
    let inverse = reciprocal(d);
    put_f16(block, 0, d);
    let q = x.map(|v| ((v * inverse + 8.5) as u8).min(15));
    pack_nibbles(&q, &mut block[2..]);
}
