//! F16: IEEE 754 binary16, little-endian.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::{DType, FileType, Format};

pub(crate) const FORMAT: Format = Format {
    name: "f16",
    block_rows: 1,
    block_elems: 1,
    block_bytes: 2,
    decode,
    encode: |src, _, out| encode(src, out),
    // 11 significant bits.
    error_budget: 0.000211,
    gguf_type: Some(1),
    safetensors_name: Some("F16"),
    file_types: &[FileType::new("F16", Some(1))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

/// Numbers converted at a time: `half` looks for the CPU's conversion instruction once a slice.
const RUN: usize = 64;

fn decode(bytes: &[u8], out: &mut [f32]) {
    let mut run = [f16::ZERO; RUN];
    for (bytes, out) in bytes.chunks(2 * RUN).zip(out.chunks_mut(RUN)) {
        let run = &mut run[..out.len()];
        for (h, bytes) in run.iter_mut().zip(bytes.as_chunks().0) {
            *h = f16::from_le_bytes(*bytes);
        }
        run.convert_to_f32_slice(out);
    }
}

fn encode(src: &[f32], out: &mut [u8]) {
    let mut run = [f16::ZERO; RUN];
    for (src, out) in src.chunks(RUN).zip(out.chunks_mut(2 * RUN)) {
        let run = &mut run[..src.len()];
        run.convert_from_f32_slice(src);
        for (h, bytes) in run.iter().zip(out.as_chunks_mut().0) {
            *bytes = h.to_le_bytes();
        }
    }
}
