//! Q8_0: 32 elements, `w = d·q`. Bytes: f16 d, 32 of i8.

use super::{
    DType, FileType, Format, decode_each, encode_each, get_f16, put_f16, reciprocal,
    round_half_away,
};

const BYTES: usize = 34;
const ELEMS: usize = 32;

pub(crate) const FORMAT: Format = Format {
    name: "q8_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 255 levels, one scale in 32.
    error_budget: 0.00541,
    gguf_type: Some(8),
    safetensors_name: None,
    file_types: &[FileType::new("Q8_0", Some(7))],
    narrower: DType::F16,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (q, out) in block[2..].iter().zip(out) {
        *out = f32::from(*q as i8) * d;
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    let d = quantise(x, &mut block[2..]).0;
    put_f16(block, 0, d);
}

/// Writes the i8 levels of 32 elements. Returns the scale before it is rounded, and the sum of the levels.
pub(super) fn quantise(x: &[f32; ELEMS], q: &mut [u8]) -> (f32, i32) {
    let d = x.iter().fold(0.0, |amax: f32, v| amax.max(v.abs())) / 127.0;
    let inverse = reciprocal(d);
    let mut sum = 0;
    for (v, q) in x.iter().zip(q) {
        let level = round_half_away(v * inverse).clamp(-127, 127);
        sum += level;
        *q = level as i8 as u8;
    }
    (d, sum)
}
