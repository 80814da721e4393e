//! IQ3_XXS: 256 elements in 8 sub-blocks of 32, `w = d·(scale + ½)/2·point`, points of 4 magnitudes out of 256.
//!
//! Bytes: f16 d, 64 of points, and a u32 a sub-block: four times seven signs (the eighth makes the number of negative
//! ones even), and the scale in its upper four bits.

use std::sync::LazyLock;

use super::codebook::{self, even_signs, index_of, signed, signs_of};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::codebook::{CodebookFit, Scales, fit};
use crate::search::points::{Points, magnitudes};

const BYTES: usize = 98;
const ELEMS: usize = 256;
const SIGNS: usize = 66;

pub(crate) const FORMAT: Format = Format {
    name: "iq3_xxs",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 8 magnitudes of which 4 make 8 bits, 4-bit scale in 32.
    error_budget: 0.182,
    gguf_type: Some(18),
    safetensors_name: None,
    file_types: &[FileType::new("IQ3_XXS", Some(23))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: false,
};

static POINTS: LazyLock<Points<4>> = LazyLock::new(|| Points::new(&codebook::IQ3_XXS));

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    let words = block[SIGNS..].as_chunks::<4>().0;
    for ((j, out), word) in out
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .enumerate()
        .zip(words)
    {
        let word = u32::from_le_bytes(*word);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let indices = &block[2 + 8 * j..][..8];
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let signs = even_signs(word >> (7 * g));
            let point = |i: usize| &codebook::IQ3_XXS[usize::from(indices[2 * g + i])];
            signed(scale, point(0), signs, &mut out[..4]);
            signed(scale, point(1), signs >> 4, &mut out[4..]);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &std::array::from_fn::<f32, 16, _>(|scale| 0.5 * (scale as f32 + 0.5)),
        ends: &[(4.0, 28.0, 4), (38.0, 76.0, 20)],
    };
    let points = &*POINTS;
    let fit: CodebookFit<32, 8> = fit(x, importance, &scales, |x, w, inverse| {
        magnitudes(points, true, x, w, inverse)
    });
    put_f16(block, 0, fit.d);
    let (indices, words) = block[2..].split_at_mut(SIGNS - 2);
    for (j, word) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let mut stored = (fit.scales[j] as u32) << 28;
        for (g, q) in fit.q[j].as_chunks::<8>().0.iter().enumerate() {
            stored |= u32::from(signs_of(q) & 0x7F) << (7 * g);
            for i in 0..2 {
                indices[8 * j + 2 * g + i] = index_of(points, &q[4 * i..]) as u8;
            }
        }
        *word = stored.to_le_bytes();
    }
}
