//! IQ4_NL: 32 elements, `w = d·LEVELS[q]` with 16 uneven levels. Bytes: f16 d, 16 of nibbles.

use super::{DType, FileType, Format, decode_each, encode_weighted, extreme, get_f16, put_f16};
use super::{pack_nibbles, unpack_nibbles};
use crate::search::{ScaleSearch, weights};

const BYTES: usize = 18;
const ELEMS: usize = 32;

/// ggml's `kvalues_iq4nl`: denser around zero, where normal data are.
pub(super) const LEVELS: [f32; 16] = [
    -127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.,
];

pub(crate) const FORMAT: Format = Format {
    name: "iq4_nl",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 16 uneven levels, one scale in 32.
    error_budget: 0.0745,
    gguf_type: Some(20),
    safetensors_name: None,
    file_types: &[FileType::new("IQ4_NL", Some(25))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (q, out) in unpack_nibbles(&block[2..]).into_iter().zip(out) {
        *out = d * LEVELS[usize::from(q)];
    }
}

/// The level nearest to `v`.
pub(super) fn nearest(v: f32) -> u8 {
    LEVELS
        .windows(2)
        .fold(0, |n, pair| n + u8::from(v > 0.5 * (pair[0] + pair[1])))
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let d = search_scale(x, importance);
    put_f16(block, 0, d);
    // Levels are chosen for the scale as stored.
    let d = get_f16(block, 0);
    let q = if d == 0.0 {
        [nearest(0.0); ELEMS]
    } else {
        x.map(|v| nearest(v / d))
    };
    pack_nibbles(&q, &mut block[2..]);
}

/// The scale of least weighted squared error. For both signs, the extreme is tried around the level
/// that ends its side, and each choice of levels is given its least-squares scale.
fn search_scale(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>) -> f32 {
    let extreme = extreme(x);
    if extreme == 0.0 {
        return 0.0;
    }
    let weights = weights(x, importance);
    let mut best = ScaleSearch::default();
    for end in [LEVELS[0], LEVELS[15]] {
        for step in -8..=8 {
            let inverse = end * (1.0 + 0.02 * step as f32) / extreme;
            if !inverse.is_finite() {
                return 0.0;
            }
            let q = x.map(|v| LEVELS[usize::from(nearest(v * inverse))]);
            best.offer(x, &weights, &q);
        }
    }
    best.scale
}
