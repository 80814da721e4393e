//! IQ2_XXS: 256 elements in 8 sub-blocks of 32, `w = d·(scale + ½)/4·point`, points of 8 magnitudes out of 256.
//!
//! Bytes: f16 d, and eight bytes a sub-block: four points, and a u32 of four times seven signs (the eighth makes the
//! number of negative ones even) with the scale in its upper four bits.

use std::sync::LazyLock;

use super::codebook::{self, even_signs, index_of, signed, signs_of};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::codebook::{CodebookFit, Scales, fit};
use crate::search::points::{Points, magnitudes};

const BYTES: usize = 66;
const ELEMS: usize = 256;

pub(crate) const FORMAT: Format = Format {
    name: "iq2_xxs",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 magnitudes of which 8 make 8 bits, 4-bit scale in 32.
    error_budget: 0.339,
    gguf_type: Some(16),
    safetensors_name: None,
    file_types: &[FileType::new("IQ2_XXS", Some(19))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: true,
};

static POINTS: LazyLock<Points<8>> = LazyLock::new(|| Points::new(&codebook::IQ2_XXS));

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    let subs = block[2..].as_chunks::<8>().0;
    for (sub, out) in subs.iter().zip(out.as_chunks_mut::<32>().0) {
        let word = u32::from_le_bytes([sub[4], sub[5], sub[6], sub[7]]);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = &codebook::IQ2_XXS[usize::from(sub[g])];
            signed(scale, point, even_signs(word >> (7 * g)), out);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &codebook::QUARTERS,
        ends: &codebook::ENDS,
    };
    let points = &*POINTS;
    let fit: CodebookFit<32, 8> = fit(x, importance, &scales, |x, w, inverse| {
        magnitudes(points, true, x, w, inverse)
    });
    put_f16(block, 0, fit.d);
    for (j, sub) in block[2..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut word = (fit.scales[j] as u32) << 28;
        for (g, q) in fit.q[j].as_chunks::<8>().0.iter().enumerate() {
            word |= u32::from(signs_of(q) & 0x7F) << (7 * g);
            sub[g] = index_of(points, q) as u8;
        }
        sub[4..].copy_from_slice(&word.to_le_bytes());
    }
}
