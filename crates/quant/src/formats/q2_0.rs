//! Q2_0: 64 elements, `w = d·(q − 1)` with levels 0 to 3. Bytes: f16 d, 16 of two-bit levels, the lowest bits first.

use super::{DType, FileType, Format, decode_each, encode_weighted, extreme, get_f16, put_f16};
use crate::search::{ScaleSearch, TINY, weights};

const BYTES: usize = 18;
const ELEMS: usize = 64;

pub(crate) const FORMAT: Format = Format {
    name: "q2_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 4 levels around zero, one scale in 64.
    error_budget: 0.362,
    gguf_type: Some(42),
    safetensors_name: None,
    file_types: &[FileType::new("Q2_0", Some(41))],
    narrower: DType::Q4_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from((block[2 + i / 4] >> (i % 4 * 2) & 3) as i8 - 1);
    }
}

/// The level nearest to `v`, −1 to 2.
fn nearest(v: f32) -> f32 {
    -1.0 + f32::from(u8::from(v > -0.5) + u8::from(v > 0.5) + u8::from(v > 1.5))
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    put_f16(block, 0, search_scale(x, importance));
    let d = get_f16(block, 0);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    for (x, byte) in x.as_chunks::<4>().0.iter().zip(&mut block[2..]) {
        let q = x.map(|v| (nearest(v * inverse) + 1.0) as u8);
        *byte = (0..4).fold(0, |bits, i| bits | q[i] << (2 * i));
    }
}

/// The scale of least weighted squared error, of both signs: the extreme is tried from below level 1 to beyond level 2.
fn search_scale(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>) -> f32 {
    let extreme = extreme(x);
    if extreme.abs() < TINY {
        return 0.0;
    }
    let weights = weights(x, importance);
    let mut best = ScaleSearch::default();
    for step in 0..=40 {
        for sign in [1.0, -1.0] {
            let inverse = sign * (0.9 + 0.06 * step as f32) / extreme;
            best.offer(x, &weights, &x.map(|v| nearest(v * inverse)));
        }
    }
    best.scale
}
