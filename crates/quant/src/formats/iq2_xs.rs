//! IQ2_XS: 256 elements in 16 sub-blocks of 16, `w = d·(scale + ½)/4·point`, points of 8 magnitudes out of 512.
//!
//! Bytes: f16 d, 32 of u16 (nine bits of a point, seven of signs; the eighth makes the number of negative ones even), 8 of
//! scales, the low nibbles first.

use std::sync::LazyLock;

use super::codebook::{self, even_signs, index_of, signed, signs_of};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::codebook::{CodebookFit, Scales, fit};
use crate::search::points::{Points, magnitudes};

const BYTES: usize = 74;
const ELEMS: usize = 256;
const SCALES: usize = 66;

pub(crate) const FORMAT: Format = Format {
    name: "iq2_xs",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 magnitudes of which 8 make 9 bits, 4-bit scale in 16.
    error_budget: 0.293,
    gguf_type: Some(17),
    safetensors_name: None,
    file_types: &[
        FileType::new("IQ2_XS", Some(20)),
        FileType::new("IQ2_S", Some(28)),
    ],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: true,
};

static POINTS: LazyLock<Points<8>> = LazyLock::new(|| Points::new(&codebook::IQ2_XS));

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    let words = block[2..SCALES].as_chunks::<2>().0;
    for ((g, word), out) in words.iter().enumerate().zip(out.as_chunks_mut::<8>().0) {
        let scale = block[SCALES + g / 4] >> (4 * (g / 2 % 2)) & 0x0F;
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        let word = u16::from_le_bytes(*word);
        let point = &codebook::IQ2_XS[usize::from(word & 0x1FF)];
        signed(scale, point, even_signs(u32::from(word >> 9)), out);
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &codebook::QUARTERS,
        ends: &codebook::ENDS,
    };
    let points = &*POINTS;
    let fit: CodebookFit<16, 16> = fit(x, importance, &scales, |x, w, inverse| {
        magnitudes(points, true, x, w, inverse)
    });
    put_f16(block, 0, fit.d);
    let groups = fit.q.as_flattened().as_chunks::<8>().0;
    for (q, word) in groups.iter().zip(block[2..SCALES].as_chunks_mut::<2>().0) {
        let stored = index_of(points, q) as u16 | u16::from(signs_of(q) & 0x7F) << 9;
        *word = stored.to_le_bytes();
    }
    codebook::put_scales(&fit.scales, &mut block[SCALES..]);
}
