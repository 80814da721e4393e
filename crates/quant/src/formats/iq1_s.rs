//! IQ1_S: 256 elements in 8 sub-blocks of 32, `w = d·(2·scale + 1)·(point ± ⅛)`, points of 8 ternary levels out of 2048.
//!
//! Bytes: f16 d, 32 of the lower eight bits of points, and a u16 a sub-block: four times the upper three bits of a point,
//! three bits of scale, and whether ⅛ is taken off.

use std::sync::LazyLock;

use super::codebook::{self, DELTA, shifted, unshifted};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use crate::search::codebook::{CodebookFit, Scales, fit};
use crate::search::points::Points;

const BYTES: usize = 50;
const ELEMS: usize = 256;
const HIGH: usize = 34;

pub(crate) const FORMAT: Format = Format {
    name: "iq1_s",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 3 levels of which 8 make 11 bits, 3-bit scale and a shift in 32.
    error_budget: 0.46,
    gguf_type: Some(19),
    safetensors_name: None,
    file_types: &[FileType::new("IQ1_S", Some(24))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: true,
};

pub(super) static POINTS: LazyLock<Points<8>> = LazyLock::new(|| Points::new(&codebook::IQ1_S));

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    let words = block[HIGH..].as_chunks::<2>().0;
    for ((j, word), out) in words.iter().enumerate().zip(out.as_chunks_mut::<32>().0) {
        let word = u16::from_le_bytes(*word);
        let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
        let delta = if word >> 15 == 0 { DELTA } else { -DELTA };
        for (g, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = usize::from(word >> (3 * g) & 7);
            let point = &codebook::IQ1_S[usize::from(block[2 + 4 * j + g]) | high << 8];
            for (out, level) in out.iter_mut().zip(point) {
                *out = scale * (f32::from(*level) + delta);
            }
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &codebook::ODD,
        ends: &codebook::TERNARY_ENDS,
    };
    let points = &*POINTS;
    let fit: CodebookFit<32, 8> = fit(x, importance, &scales, |x, w, inverse| {
        shifted::<32, 32>(points, x, w, inverse)
    });
    put_f16(block, 0, fit.d);
    let (low, words) = block[2..].split_at_mut(HIGH - 2);
    for (j, word) in words.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let mut stored = (fit.scales[j] as u16) << 12;
        for (g, q) in fit.q[j].as_chunks::<8>().0.iter().enumerate() {
            let (index, is_negative) = unshifted(points, q);
            low[4 * j + g] = index as u8;
            stored |= (index as u16 >> 8) << (3 * g) | u16::from(is_negative) << 15;
        }
        *word = stored.to_le_bytes();
    }
}
