//! F16: IEEE 754 binary16, little-endian.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::Format;
use crate::budget;

pub(crate) const FORMAT: Format = Format {
    block_rows: 1,
    block_elems: 1,
    block_bytes: 2,
    decode,
    encode,
    budget: budget::F16,
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
