//! IQ1_M: 256 elements in 16 sub-blocks of 16, `w = d·(2·scale + 1)·(point ± ⅛)`, the points of IQ1_S.
//!
//! Bytes: 32 of the lower eight bits of points, 16 of nibbles (the upper three bits of a point, and whether ⅛ is taken off
//! it), 8 of u16: four times three bits of scale, and in the upper four bits a quarter of f16 d, the lowest first.

use super::codebook::{self, DELTA, shifted, unshifted};
use super::iq1_s::POINTS;
use super::{DType, FileType, Format, Half, decode_each, encode_weighted};
use crate::search::codebook::{CodebookFit, Scales, fit};

const BYTES: usize = 56;
const ELEMS: usize = 256;
const HIGH: usize = 32;
const SCALES: usize = 48;

pub(crate) const FORMAT: Format = Format {
    name: "iq1_m",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 levels of which 8 make 11 bits with a shift, 3-bit scale in 16.
    error_budget: 0.427,
    gguf_type: Some(29),
    safetensors_name: None,
    file_types: &[FileType::new("IQ1_M", Some(31))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: true,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let words: [u16; 4] = std::array::from_fn(|i| {
        u16::from_le_bytes([block[SCALES + 2 * i], block[SCALES + 2 * i + 1]])
    });
    let bits = (0..4).fold(0, |bits, i| bits | (words[i] >> 12) << (4 * i));
    let d = Half::from_bits(bits).to_f32();
    for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = words[g / 8] >> (3 * (g / 2 % 4)) & 7;
        let scale = d * f32::from(2 * scale + 1);
        let high = block[HIGH + g / 2] >> (4 * (g % 2));
        let delta = if high & 8 == 0 { DELTA } else { -DELTA };
        let point = &codebook::IQ1_S[usize::from(block[g]) | usize::from(high & 7) << 8];
        for (out, level) in out.iter_mut().zip(point) {
            *out = scale * (f32::from(*level) + delta);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &codebook::ODD,
        ends: &codebook::TERNARY_ENDS,
    };
    let points = &*POINTS;
    let fit: CodebookFit<16, 16> = fit(x, importance, &scales, |x, w, inverse| {
        shifted::<8, 16>(points, x, w, inverse)
    });
    block[HIGH..SCALES].fill(0);
    for (g, q) in fit.q.as_flattened().as_chunks::<8>().0.iter().enumerate() {
        let (index, is_negative) = unshifted(points, q);
        block[g] = index as u8;
        block[HIGH + g / 2] |= ((index >> 8) as u8 | u8::from(is_negative) << 3) << (4 * (g % 2));
    }
    let bits = Half::from_f32(fit.d).to_bits();
    for (i, word) in block[SCALES..]
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .enumerate()
    {
        let scales = (0..4).fold(0, |word, j| {
            word | (fit.scales[4 * i + j] as u16) << (3 * j)
        });
        *word = (scales | (bits >> (4 * i)) << 12).to_le_bytes();
    }
}
