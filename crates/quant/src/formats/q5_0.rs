//! Q5_0: 32 elements, `w = d·(q − 16)`. Bytes: f16 d, u32 of fifth bits, 16 of nibbles.

use super::{
    DType, FileType, Format, decode_each, encode_each, extreme, get_f16, put_f16, reciprocal,
};
use super::{fifth_bits, pack_nibbles, unpack_nibbles};

const BYTES: usize = 22;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "q5_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 32 levels, one scale in 32.
    error_budget: 0.0431,
    gguf_type: Some(6),
    safetensors_name: None,
    file_types: &[FileType::new("Q5_0", Some(8))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    let low = unpack_nibbles(&block[6..]);
    for (i, out) in out.iter_mut().enumerate() {
        let q = low[i] | ((high >> i & 1) << 4) as u8;
        *out = d * f32::from(q as i8 - 16);
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    // The extreme maps to −16: the one level that has no opposite.
    let d = extreme(x) / -16.0;
    let inverse = reciprocal(d);
    put_f16(block, 0, d);
    let q = x.map(|v| ((v * inverse + 16.5) as u8).min(31));
    block[2..6].copy_from_slice(&fifth_bits(&q).to_le_bytes());
    pack_nibbles(&q, &mut block[6..]);
}
