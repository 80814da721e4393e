//! Conversion of activations; the same bits as the portable code in [`crate::matmul::quantize`].

use crate::matmul::panel::{Input, Wide, X32, X256};
use crate::matmul::quantize::{ConvertFn, scales};
use std::arch::aarch64::*;

/// The conversion to `input`.
pub(crate) fn converter(input: Input) -> ConvertFn {
    match input {
        Input::F32 => unreachable!("f32 activations are used where they are"),
        // The compiler vectorises it.
        Input::Bf16 => crate::matmul::quantize::to_bf16,
        Input::I8x32 => to_x32,
        Input::I8x256 => to_x256,
    }
}

/// # Safety
/// As [`ConvertFn`].
unsafe fn to_x32(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<32>();
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the row has a record for each block and starts on a cache line.
        let record = unsafe { &mut *row.as_mut_ptr().cast::<X32>().add(i) };
        let (d, inverse) = scales(largest(block));
        let mut sums = [0; 2];
        for ((x, q), sum) in block
            .as_chunks::<16>()
            .0
            .iter()
            .zip(record.q.as_chunks_mut::<16>().0)
            .zip(&mut sums)
        {
            *sum = i32::from(quantize(x, inverse, q).sum);
        }
        let sum = sums[0] + sums[1];
        record.d = d;
        record.offset_128 = -128 * sum;
        record.scaled_sum = d * sum as f32;
        record.first_offset_128 = -128 * sums[0];
    }
}

/// # Safety
/// As [`ConvertFn`].
unsafe fn to_x256(x: &[f32], row: &mut [u8]) {
    let (blocks, _) = x.as_chunks::<256>();
    for (i, block) in blocks.iter().enumerate() {
        // SAFETY: the row has a record for each block and starts on a cache line.
        let record = unsafe { &mut *row.as_mut_ptr().cast::<X256>().add(i) };
        let (d, inverse) = scales(largest(block));
        let mut magnitudes = [0; 16];
        for (j, (x, q)) in block
            .as_chunks::<16>()
            .0
            .iter()
            .zip(record.q.as_chunks_mut::<16>().0)
            .enumerate()
        {
            let of = quantize(x, inverse, q);
            record.sums_16[j] = of.sum;
            record.offset_32[j] = -32 * i32::from(of.sum);
            magnitudes[j] = of.magnitude;
        }
        for (sum, pair) in record
            .sums_32
            .iter_mut()
            .zip(record.sums_16.as_chunks::<2>().0)
        {
            *sum = pair[0] + pair[1];
        }
        record.d = d;
        record.wide = Wide::new(&magnitudes, &record.sums_16);
        record.pad = [0; 2];
    }
}

/// Largest magnitude; `x` is whole sixteens. NaN is ignored.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    // SAFETY: loads of sixteen numbers; every AArch64 has the instructions.
    unsafe {
        let mut most = [vdupq_n_f32(0.0); 4];
        for sixteen in x.as_chunks::<16>().0 {
            for (v, most) in most.iter_mut().enumerate() {
                *most = vmaxnmq_f32(*most, vabsq_f32(vld1q_f32(sixteen.as_ptr().add(4 * v))));
            }
        }
        let [a, b, c, d] = most;
        vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a, b), vmaxnmq_f32(c, d)))
    }
}

/// Sums over sixteen levels.
struct LevelSums {
    /// Σ q.
    sum: i16,
    /// Σ |q|.
    magnitude: i16,
}

/// Sixteen numbers as bytes, halves to even.
#[inline(always)]
fn quantize(x: &[f32; 16], inverse: f32, q: &mut [i8; 16]) -> LevelSums {
    // SAFETY: loads of sixteen numbers, a store of sixteen bytes; every AArch64 has the instructions.
    unsafe {
        let at = |v: usize| vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x.as_ptr().add(4 * v)), inverse));
        let low = vqmovn_high_s32(vqmovn_s32(at(0)), at(1));
        let high = vqmovn_high_s32(vqmovn_s32(at(2)), at(3));
        let v = vqmovn_high_s16(vqmovn_s16(low), high);
        vst1q_s8(q.as_mut_ptr(), v);
        LevelSums {
            sum: vaddlvq_s8(v),
            magnitude: vaddlvq_s8(vabsq_s8(v)),
        }
    }
}
