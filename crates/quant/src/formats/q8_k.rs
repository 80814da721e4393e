//! Q8_K: 256 elements, `w = d·q`. Bytes: f32 d, 256 of i8, 16 of i16: the sums of 16 neighbouring
//! levels.
//!
//! A format for activations: a product with a format that has minimums needs the sums.

use super::{DType, Format, decode_each, encode_each, extreme, reciprocal, round_half_away};

const BYTES: usize = 292;
const ELEMS: usize = 256;
const SUMS: usize = 4 + ELEMS;

pub(crate) const FORMAT: Format = Format {
    name: "q8_k",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 255 levels, one f32 scale in 256.
    error_budget: 0.00708,
    gguf_type: Some(15),
    safetensors_name: None,
    file_types: &[],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    for (q, out) in block[4..SUMS].iter().zip(out) {
        *out = d * f32::from(*q as i8);
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    // The extreme maps to −127: 127 levels on either side keep sums of pairs of products within
    // i16.
    let inverse = reciprocal(extreme(x) / -127.0);
    block[..4].copy_from_slice(&reciprocal(inverse).to_le_bytes());
    for (v, q) in x.iter().zip(&mut block[4..SUMS]) {
        *q = round_half_away(v * inverse).clamp(-127, 127) as i8 as u8;
    }
    let (levels, sums) = block[4..].split_at_mut(ELEMS);
    for (levels, sum) in levels.chunks_exact(16).zip(sums.as_chunks_mut().0) {
        let total: i16 = levels.iter().map(|&q| i16::from(q as i8)).sum();
        *sum = total.to_le_bytes();
    }
}
