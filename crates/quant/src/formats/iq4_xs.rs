//! IQ4_XS: 256 elements in 8 sub-blocks of 32, `w = d·(scale − 32)·LEVELS[q]` with the levels of IQ4_NL.
//!
//! Bytes: f16 d, u16 of the upper two bits of the scales, 4 of their lower four bits, 128 of nibbles (16 bytes a
//! sub-block: low nibbles are its first half).

use super::iq4_nl::{LEVELS, nearest};
use super::{DType, FileType, Format, decode_each, encode_weighted, get_f16, put_f16};
use super::{pack_nibbles, unpack_nibbles};
use crate::search::codebook::{CodebookFit, Scales, fit};

const BYTES: usize = 136;
const ELEMS: usize = 256;
const SUB: usize = 32;
const NIBBLES: usize = 8;

pub(crate) const FORMAT: Format = Format {
    name: "iq4_xs",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, importance, out| encode_weighted(src, importance, out, encode),
    // 16 uneven levels, 6-bit scale in 32.
    error_budget: 0.0752,
    gguf_type: Some(23),
    safetensors_name: None,
    file_types: &[FileType::new("IQ4_XS", Some(30))],
    narrower: DType::Iq4Nl,
    has_coarse_scales: false,
    needs_importance: false,
};

/// The possible stored scales, in the order of their six bits.
const SCALES: [f32; 64] = {
    let mut scales = [0.0; 64];
    let mut stored = 0;
    while stored < 64 {
        scales[stored] = stored as f32 - 32.0;
        stored += 1;
    }
    scales
};

/// The extreme is tried within 16 % of the level that ends its side, for both signs.
const ENDS: [(f32, f32, u8); 2] = [
    (0.84 * LEVELS[0], 1.16 * LEVELS[0], 17),
    (0.84 * LEVELS[15], 1.16 * LEVELS[15], 17),
];

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let d = get_f16(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for (j, out) in out.as_chunks_mut::<SUB>().0.iter_mut().enumerate() {
        let low = block[4 + j / 2] >> (4 * (j % 2)) & 0x0F;
        let scale = d * SCALES[usize::from(low) | usize::from(high >> (2 * j) & 3) << 4];
        let packed = &block[NIBBLES + 16 * j..][..16];
        for (q, out) in unpack_nibbles(packed).into_iter().zip(out) {
            *out = scale * LEVELS[usize::from(q)];
        }
    }
}

fn encode(x: &[f32; ELEMS], importance: Option<&[f32; ELEMS]>, block: &mut [u8; BYTES]) {
    let scales = Scales {
        stored: &SCALES,
        ends: &ENDS,
    };
    let fit: CodebookFit<SUB, 8> = fit(x, importance, &scales, |x, _, inverse| {
        x.map(|v| LEVELS[usize::from(nearest(v * inverse))])
    });
    put_f16(block, 0, fit.d);
    let high = (0..8).fold(0, |high, j| high | (fit.scales[j] as u16 >> 4) << (2 * j));
    block[2..4].copy_from_slice(&high.to_le_bytes());
    for (j, byte) in block[4..NIBBLES].iter_mut().enumerate() {
        *byte = fit.scales[2 * j] as u8 & 0x0F | (fit.scales[2 * j + 1] as u8) << 4;
    }
    for (q, packed) in fit.q.iter().zip(block[NIBBLES..].as_chunks_mut::<16>().0) {
        pack_nibbles(&q.map(nearest), packed);
    }
}
