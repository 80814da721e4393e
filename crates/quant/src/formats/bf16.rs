//! BF16: the upper half of an f32, little-endian; rounds to nearest, ties to even.

use half::bf16;

use super::{DType, FileType, Format};

pub(crate) const FORMAT: Format = Format {
    name: "bf16",
    block_rows: 1,
    block_elems: 1,
    block_bytes: 2,
    decode,
    encode: |src, _, out| encode(src, out),
    // 8 significant bits.
    error_budget: 0.00169,
    gguf_type: Some(30),
    safetensors_name: Some("BF16"),
    file_types: &[FileType::new("BF16", Some(32))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks().0.iter().zip(out) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

fn encode(src: &[f32], out: &mut [u8]) {
    for (x, bytes) in src.iter().zip(out.as_chunks_mut().0) {
        *bytes = bf16::from_f32(*x).to_le_bytes();
    }
}
