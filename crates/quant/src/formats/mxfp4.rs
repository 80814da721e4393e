//! MXFP4 (OCP Microscaling Formats 1.0): 32 elements of E2M1 sharing an E8M0 exponent. Bytes: u8
//! exponent, 16 of nibbles, the low nibbles first.

use super::{DType, FileType, Format, decode_each, encode_each, pack_nibbles, unpack_nibbles};

const BYTES: usize = 17;
const ELEMS: usize = 32;

/// The values of E2M1, doubled so that they are whole numbers; the scale is halved to compensate.
pub(super) const DOUBLED: [f32; 16] = [
    0., 1., 2., 3., 4., 6., 8., 12., 0., -1., -2., -3., -4., -6., -8., -12.,
];

/// Midpoints between neighbouring magnitudes of [`DOUBLED`].
const MIDPOINTS: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5., 7., 10.];

pub(crate) const FORMAT: Format = Format {
    name: "mxfp4",
    block_rows: 1,
    block_elems: ELEMS,
    block_bytes: BYTES,
    decode: |bytes, out| decode_each(bytes, out, decode),
    encode: |src, _, out| encode_each(src, out, encode),
    // 15 floating-point levels, a power of two as scale in 32.
    error_budget: 0.1165,
    gguf_type: Some(39),
    safetensors_name: None,
    file_types: &[FileType::new("MXFP4", Some(38))],
    narrower: DType::F16,
    has_coarse_scales: true,
    needs_importance: false,
};

/// 2^(exponent − 128), half of E8M0's value; 2⁻¹²⁸ and 2⁻¹²⁷ are subnormal. The bit pattern 255
/// (NaN in E8M0) is read as 2¹²⁷, as the reference does.
pub(super) fn half_scale(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 => 0x0020_0000,
        1 => 0x0040_0000,
        e => (u32::from(e) - 1) << 23,
    })
}

fn decode(block: &[u8; BYTES], out: &mut [f32; ELEMS]) {
    let scale = half_scale(block[0]);
    for (q, out) in unpack_nibbles(&block[1..]).into_iter().zip(out) {
        *out = scale * DOUBLED[usize::from(q)];
    }
}

fn encode(x: &[f32; ELEMS], block: &mut [u8; BYTES]) {
    let (exponent, q) = levels(x);
    block[0] = exponent;
    pack_nibbles(&q, &mut block[1..]);
}

/// The exponent and the levels of a block.
pub(super) fn levels(x: &[f32; ELEMS]) -> (u8, [u8; ELEMS]) {
    let amax = x.iter().fold(0.0, |amax: f32, v| amax.max(v.abs()));
    // The largest E2M1 number is 1.5·2², so the shared exponent is the block's minus two.
    let exponent = (amax.to_bits() >> 23).saturating_sub(2) as u8;
    let scale = half_scale(exponent);
    (exponent, x.map(|v| nearest(v, scale)))
}

/// The level nearest to `v` with a scale that is halved. Ties go to the smaller magnitude, and zero is always +0.
pub(super) fn nearest(v: f32, scale: f32) -> u8 {
    let magnitude = MIDPOINTS
        .iter()
        .fold(0, |n, mid| n + u8::from(v.abs() > mid * scale));
    let sign = u8::from(v < 0.0 && magnitude > 0) << 3;
    sign | magnitude
}
