//! Conversion of one token's activations to a form that panels are multiplied with.

use super::panel::{Input, Wide, X32, X256};
use crate::level::Level;

/// Converts the columns of one token.
///
/// # Safety
/// The CPU has the level the function was chosen for; `row` starts on a cache line and holds `x.len()` columns of the form
/// (an odd bf16 column padded to a pair).
pub(crate) type ConvertFn = unsafe fn(x: &[f32], row: &mut [u8]);

/// The conversion to `input` at `level`; every level computes the same bits.
pub(crate) fn converter(input: Input, level: Level) -> ConvertFn {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 {
        return crate::x86::avx512::quantize::converter(input);
    }
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        return crate::x86::avx2::quantize::converter(input);
    }
    #[cfg(target_arch = "aarch64")]
    if level >= Level::Neon {
        return crate::aarch64::quantize::converter(input);
    }
    let _ = level;
    match input {
        Input::F32 => unreachable!("f32 activations are used where they are"),
        Input::Bf16 => to_bf16,
        Input::I8x32 => to_x32,
        Input::I8x256 => to_x256,
    }
}

/// Rounds to bf16, nearest even; NaN stays NaN.
pub(crate) fn to_bf16(x: &[f32], row: &mut [u8]) {
    let (pairs, _) = row.as_chunks_mut::<2>();
    for (to, v) in pairs.iter_mut().zip(x) {
        *to = half::bf16::from_f32(*v).to_le_bytes();
    }
    if !x.len().is_multiple_of(2) {
        pairs[x.len()] = [0; 2];
    }
}

/// Quantises each 32 columns to an [`X32`].
pub(crate) fn to_x32(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<32>();
    let (records, _) = row.as_chunks_mut::<{ size_of::<X32>() }>();
    for (x, record) in blocks.iter().zip(records) {
        let mut q = [0; 32];
        let d = quantize(x, &mut q);
        let sum_of = |q: &[i8]| q.iter().map(|q| i32::from(*q)).sum::<i32>();
        let sum = sum_of(&q);
        for (to, q) in record.iter_mut().zip(q) {
            *to = q.cast_unsigned();
        }
        record[32..36].copy_from_slice(&d.to_ne_bytes());
        record[36..40].copy_from_slice(&(-128 * sum).to_ne_bytes());
        record[40..44].copy_from_slice(&(d * sum as f32).to_ne_bytes());
        record[44..].copy_from_slice(&(-128 * sum_of(&q[..16])).to_ne_bytes());
    }
}

/// Quantises each 256 columns to an [`X256`].
pub(crate) fn to_x256(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<256>();
    let (records, _) = row.as_chunks_mut::<{ size_of::<X256>() }>();
    for (x, record) in blocks.iter().zip(records) {
        let mut q = [0; 256];
        let d = quantize(x, &mut q);
        for (to, q) in record.iter_mut().zip(q) {
            *to = q.cast_unsigned();
        }
        let (sixteens, _) = q.as_chunks::<16>();
        let mut sums = [0_i16; 16];
        for (sum, q) in sums.iter_mut().zip(sixteens) {
            *sum = q.iter().map(|q| i16::from(*q)).sum();
        }
        for (j, sum) in sums.iter().enumerate() {
            record[256 + 4 * j..][..4].copy_from_slice(&(-32 * i32::from(*sum)).to_ne_bytes());
            record[320 + 2 * j..][..2].copy_from_slice(&sum.to_ne_bytes());
        }
        for (j, pair) in sums.as_chunks::<2>().0.iter().enumerate() {
            record[352 + 2 * j..][..2].copy_from_slice(&(pair[0] + pair[1]).to_ne_bytes());
        }
        let mut magnitudes = [0_i16; 16];
        for (sum, q) in magnitudes.iter_mut().zip(sixteens) {
            *sum = q.iter().map(|q| i16::from(*q).abs()).sum();
        }
        let wide = Wide::new(&magnitudes, &sums);
        record[368..372].copy_from_slice(&d.to_ne_bytes());
        record[372..374].copy_from_slice(&wide.six_bits.to_ne_bytes());
        record[374..376].copy_from_slice(&wide.five_bits.to_ne_bytes());
        record[376..].fill(0);
    }
}

/// Symmetric i8 quantisation; returns the scale. A block whose largest magnitude is too small for a finite reciprocal becomes
/// zeros.
pub(crate) fn quantize(x: &[f32], q: &mut [i8]) -> f32 {
    let largest = x.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
    let (d, inverse) = scales(largest);
    for (q, v) in q.iter_mut().zip(x) {
        *q = (v * inverse).round_ties_even() as i8;
    }
    d
}

/// Scale and its reciprocal for a block of that largest magnitude.
pub(crate) fn scales(largest: f32) -> (f32, f32) {
    if largest < SMALLEST {
        return (0.0, 0.0);
    }
    (largest / 127.0, 127.0 / largest)
}

/// Blocks of smaller magnitudes become zeros: 127 over them is not finite.
pub(crate) const SMALLEST: f32 = 1e-36;
