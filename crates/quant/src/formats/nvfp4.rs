//! NVFP4: 64 elements of E2M1 in 4 sub-blocks of 16, each with a scale in E4M3 without sign.
//!
//! Bytes: 4 of scales, 32 of nibbles (8 bytes a sub-block: low nibbles are its first half). Values reach only 2688:
//! files have a factor for the whole tensor beside it, `<name>.scale`.

use super::mxfp4::{DOUBLED, nearest};
use super::{DType, FileType, Format, decode_each, encode_weighted};
use crate::search::{error_of, largest_magnitude, weights};

const BYTES: usize = 36;
const ELEMS: usize = 64;
const SUB: usize = 16;

pub(crate) const FORMAT: Format = Format {
    name: "nvfp4",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 15 floating-point levels, an 8-bit floating-point scale in 16.
    error_budget: 0.083,
    gguf_type: Some(40),
    safetensors_name: None,
    file_types: &[FileType::new("NVFP4", Some(39))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: true,
    needs_importance: false,
};

/// The largest scale; 0x7F is NaN in E4M3 and read as 0, as the reference does.
const LAST_SCALE: u8 = 0x7E;

/// Half of E4M3's value, since levels are doubled. The eighth bit is ignored.
fn half_scale(bits: u8) -> f32 {
    let (exponent, mantissa) = (bits >> 3 & 0x0F, f32::from(bits & 7));
    match (bits, exponent) {
        (0 | 0x7F, _) => 0.0,
        // 2⁻¹⁰ and, below, 2^(exponent − 8).
        (_, 0) => mantissa * f32::from_bits(117 << 23),
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 119) << 23),
    }
}

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    for (j, out) in out.as_chunks_mut::<SUB>().0.iter_mut().enumerate() {
        let scale = half_scale(block[j]);
        let packed = &block[4 + 8 * j..][..8];
        for (i, out) in out.iter_mut().enumerate() {
            let q = packed[i % 8] >> (4 * (i / 8)) & 0x0F;
            *out = scale * DOUBLED[usize::from(q)];
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    for (j, x) in x.as_chunks::<SUB>().0.iter().enumerate() {
        let importance = importance.map(|of| &of.as_chunks::<SUB>().0[j]);
        let (scale, q) = encode_sub(x, importance);
        block[j] = scale;
        for i in 0..8 {
            block[4 + 8 * j + i] = q[i] | q[i + 8] << 4;
        }
    }
}

/// The scale of least weighted squared error among those that put the largest magnitude between 4 and 8, and its levels.
fn encode_sub(x: &[f32; SUB], importance: Option<&[f32; SUB]>) -> (u8, [u8; SUB]) {
    let (amax, w) = (largest_magnitude(x), weights(x, importance));
    let (mut best, mut least) = ((0, [0; SUB]), f32::INFINITY);
    // Scales ascend with their bits: the first is the least that leaves 8 or less.
    let first = (0..LAST_SCALE).find(|bits| 16.0 * half_scale(*bits) >= amax);
    for bits in first.unwrap_or(LAST_SCALE)..=LAST_SCALE {
        let scale = half_scale(bits);
        let q = x.map(|v| nearest(v, scale));
        let error = error_of(x, &w, &q.map(|q| DOUBLED[usize::from(q)]), scale);
        if error < least {
            (best, least) = ((bits, q), error);
        }
        if 8.0 * scale > amax {
            break;
        }
    }
    best
}
