//! Q8_1: Q8_0 with the sum of the block beside it. Bytes: f16 d, f16 d·Σq, 32 of i8.
//!
//! A format for activations: a product with a format that has minimums needs the sum.

use super::{DType, Format, decode_each, encode_each, get_f16, put_f16, q8_0};

const BYTES: usize = 36;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "q8_1",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 255 levels, one scale in 32.
    error_budget: 0.00541,
    gguf_type: Some(9),
    safetensors_name: None,
    file_types: &[],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (q, out) in block[4..].iter().zip(out) {
        *out = f32::from(*q as i8) * d;
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    let (d, sum) = q8_0::quantise(x, &mut block[4..]);
    put_f16(block, 0, d);
    // The sum of 32 elements may exceed f16 though no element does.
    let sum = (d * sum as f32).clamp(-crate::MAX_MAGNITUDE, crate::MAX_MAGNITUDE);
    put_f16(block, 2, sum);
}
