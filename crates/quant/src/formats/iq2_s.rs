//! IQ2_S: 256 elements in 16 sub-blocks of 16, `w = d·(scale + ½)/4·point`, points of 8 magnitudes out of 1024.
//!
//! Bytes: f16 d, 32 of the lower eight bits of points, 32 of signs, 8 of the upper two bits of points (bits 2i and 2i+1 of
//! byte j belong to point 4·j + i), 8 of scales, the low nibbles first.

use std::sync::LazyLock;

use super::codebook::{self, index_of, signed, signs_of};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::codebook::{CodebookFit, Scales, fit};
use crate::search::points::{Points, magnitudes};

const BYTES: usize = 82;
const ELEMS: usize = 256;
const SIGNS: usize = 34;
const HIGH: usize = 66;
const SCALES: usize = 74;

pub(crate) const FORMAT: Format = Format {
    name: "iq2_s",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 magnitudes of which 8 make 10 bits, 4-bit scale in 16.
    error_budget: 0.246,
    gguf_type: Some(22),
    safetensors_name: None,
    file_types: &[FileType::new("IQ2_M", Some(29))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: true,
};

static POINTS: LazyLock<Points<8>> = LazyLock::new(|| Points::new(&codebook::IQ2_S));

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = block[SCALES + g / 4] >> (4 * (g / 2 % 2)) & 0x0F;
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        let high = block[HIGH + g / 4] >> (2 * (g % 4)) & 3;
        let index = usize::from(block[2 + g]) | usize::from(high) << 8;
        signed(scale, &codebook::IQ2_S[index], block[SIGNS + g], out);
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &codebook::QUARTERS,
        ends: &codebook::ENDS,
    };
    let points = &*POINTS;
    let fit: CodebookFit<16, 16> = fit(x, importance, &scales, |x, w, inverse| {
        magnitudes(points, false, x, w, inverse)
    });
    put_f16(block, 0, fit.d);
    block[HIGH..SCALES].fill(0);
    for (g, q) in fit.q.as_flattened().as_chunks::<8>().0.iter().enumerate() {
        let index = index_of(points, q);
        block[2 + g] = index as u8;
        block[HIGH + g / 4] |= ((index >> 8) as u8) << (2 * (g % 4));
        block[SIGNS + g] = signs_of(q);
    }
    codebook::put_scales(&fit.scales, &mut block[SCALES..]);
}
