//! F32: four little-endian bytes a number.

use super::Format;
use crate::budget;

pub(crate) const FORMAT: Format = Format {
    block_rows: 1,
    block_elems: 1,
    block_bytes: 4,
    decode,
    encode,
    budget: budget::F32,
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
