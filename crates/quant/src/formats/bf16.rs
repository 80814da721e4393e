//! BF16: the upper half of an f32, little-endian; rounds to nearest, ties to even.

use half::bf16;

use super::Format;
use crate::budget;

pub(crate) const FORMAT: Format = Format {
    block_rows: 1,
    block_elems: 1,
    block_bytes: 2,
    decode,
    encode,
    budget: budget::BF16,
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
