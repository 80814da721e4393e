//! Q1_0: 128 elements, `w = ±d`. Bytes: f16 d, 16 of signs: a set bit is +d, the lowest bit first.

use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};

const BYTES: usize = 18;
const ELEMS: usize = 128;

pub(crate) const FORMAT: Format = Format {
    name: "q1_0",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 2 levels, one scale in 128.
    error_budget: 0.607,
    gguf_type: Some(41),
    safetensors_name: None,
    file_types: &[FileType::new("Q1_0", Some(40))],
    narrower: DType::Q4_0,
    has_coarse_scales: false,
    needs_importance: false,
};

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = if block[2 + i / 8] >> (i % 8) & 1 == 1 {
            d
        } else {
            -d
        };
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    // The least-squares scale of given signs is the mean magnitude.
    let (mut sum, mut weights) = (0.0, 0.0);
    for (i, v) in x.iter().enumerate() {
        let weight = importance.map_or(1.0, |of| of[i]);
        sum += weight * v.abs();
        weights += weight;
    }
    put_f16(block, 0, sum / weights);
    for (x, byte) in x.as_chunks::<8>().0.iter().zip(&mut block[2..]) {
        let set = x.iter().enumerate();
        *byte = set.fold(0, |bits, (i, v)| bits | u8::from(*v >= 0.0) << i);
    }
}
