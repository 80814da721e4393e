//! Q5_1: 32 elements, `w = d·q + m`. Bytes: f16 d, f16 m, u32 of fifth bits, 16 of nibbles.

use super::{
    DType, FileType, Format, decode_each, encode_each, get_f16, put_f16, range, reciprocal,
};
use super::{fifth_bits, pack_nibbles, unpack_nibbles};

const BYTES: usize = 24;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "q5_1",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 32 levels, scale and minimum in 32.
    error_budget: 0.0382,
    gguf_type: Some(7),
    safetensors_name: None,
    file_types: &[FileType::new("Q5_1", Some(9))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let (d, m) = (get_f16(block, 0), get_f16(block, 2));
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    let low = unpack_nibbles(&block[8..]);
    for (i, out) in out.iter_mut().enumerate() {
        let q = low[i] | ((high >> i & 1) << 4) as u8;
        *out = d * f32::from(q) + m;
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    let (lo, hi) = range(x);
    let d = (hi - lo) / 31.0;
    let inverse = reciprocal(d);
    put_f16(block, 0, d);
    put_f16(block, 2, lo);
    let q = x.map(|v| (((v - lo) * inverse + 0.5) as u8).min(31));
    block[4..8].copy_from_slice(&fifth_bits(&q).to_le_bytes());
    pack_nibbles(&q, &mut block[8..]);
}
