//! IQ3_S: 256 elements in 8 sub-blocks of 32, `w = d·(2·scale + 1)·point`, points of 4 magnitudes out of 512.
//!
//! Bytes: f16 d, 64 of the lower eight bits of points, 8 of their ninth bits (bit i of byte j belongs to point 8·j + i),
//! 32 of signs, 4 of scales, the low nibbles first.

use std::sync::LazyLock;

use super::codebook::{self, index_of, signed, signs_of};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::codebook::{CodebookFit, Scales, fit};
use crate::search::points::{Points, magnitudes};

const BYTES: usize = 110;
const ELEMS: usize = 256;
const HIGH: usize = 66;
const SIGNS: usize = 74;
const SCALES: usize = 106;

pub(crate) const FORMAT: Format = Format {
    name: "iq3_s",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 8 magnitudes of which 4 make 9 bits, 4-bit scale in 32.
    error_budget: 0.133,
    gguf_type: Some(21),
    safetensors_name: None,
    file_types: &[
        FileType::new("IQ3_XS", Some(22)),
        FileType::new("IQ3_S", Some(26)),
        FileType::new("IQ3_M", Some(27)),
    ],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: false,
};

static POINTS: LazyLock<Points<4>> = LazyLock::new(|| Points::new(&codebook::IQ3_S));

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = block[SCALES + j / 2] >> (4 * (j % 2)) & 0x0F;
        let scale = d * f32::from(1 + 2 * scale);
        for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let index =
                usize::from(block[2 + 8 * j + i]) | usize::from(block[HIGH + j] >> i & 1) << 8;
            let signs = block[SIGNS + 4 * j + i / 2] >> (4 * (i % 2));
            signed(scale, &codebook::IQ3_S[index], signs, out);
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &std::array::from_fn::<f32, 16, _>(|scale| 1.0 + 2.0 * scale as f32),
        ends: &[(1.0, 5.0, 3), (9.0, 19.0, 20)],
    };
    let points = &*POINTS;
    let fit: CodebookFit<32, 8> = fit(x, importance, &scales, |x, w, inverse| {
        magnitudes(points, false, x, w, inverse)
    });
    put_f16(block, 0, fit.d);
    block[HIGH..SIGNS].fill(0);
    for (j, q) in fit.q.iter().enumerate() {
        for (i, q) in q.as_chunks::<4>().0.iter().enumerate() {
            let index = index_of(points, q);
            block[2 + 8 * j + i] = index as u8;
            block[HIGH + j] |= ((index >> 8) as u8) << i;
        }
        for (g, q) in q.as_chunks::<8>().0.iter().enumerate() {
            block[SIGNS + 4 * j + g] = signs_of(q);
        }
    }
    for (j, byte) in block[SCALES..].iter_mut().enumerate() {
        *byte = (fit.scales[2 * j] | fit.scales[2 * j + 1] << 4) as u8;
    }
}
