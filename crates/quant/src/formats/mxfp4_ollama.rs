//! MXFP4 as Ollama's converter writes it, under the number 4 (ollama/ollama, `ml/backend/ggml/ggml.go`, which turns it into
//! ggml's order on loading): each byte holds two neighbouring elements, the first in its low nibble. Bytes: u8 exponent, 16 of
//! nibbles.
//!
//! The number was Q4_2's, which ggml withdrew before GGUF files existed.

use super::mxfp4::{DOUBLED, half_scale, levels};
use super::{DType, FileType, Format, decode_each, encode_each};

const BYTES: usize = 17;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "mxfp4_ollama",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // As MXFP4.
    error_budget: 0.1165,
    gguf_type: Some(4),
    safetensors_name: None,
    file_types: &[FileType::new("MXFP4_OLLAMA", Some(4))],
    narrower: DType::F16,
    has_coarse_scales: true,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let scale = half_scale(block[0]);
    for (i, out) in out.iter_mut().enumerate() {
        let q = block[1 + i / 2] >> (4 * (i % 2)) & 0x0F;
        *out = scale * DOUBLED[usize::from(q)];
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    let (exponent, q) = levels(x);
    block[0] = exponent;
    for (pair, byte) in q.as_chunks::<2>().0.iter().zip(&mut block[1..]) {
        *byte = pair[0] | pair[1] << 4;
    }
}
