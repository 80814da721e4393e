//! F32: four little-endian bytes a number.

use super::{DType, FileType, Format};

pub(crate) const FORMAT: Format = Format {
    name: "f32",
    block_rows: 1,
    block_elems: 1,
    block_bytes: 4,
    decode,
    encode: |src, _, out| encode(src, out),
    // Exact.
    error_budget: 0.0,
    gguf_type: Some(0),
    safetensors_name: Some("F32"),
    file_types: &[FileType::new("F32", Some(0))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    for (bytes, out) in bytes.as_chunks().0.iter().zip(out) {
        *out = f32::from_le_bytes(*bytes);
    }
}

fn encode(src: &[f32], out: &mut [u8]) {
    for (x, bytes) in src.iter().zip(out.as_chunks_mut().0) {
        *bytes = x.to_le_bytes();
    }
}
