//! Loops whose speed is a limit of the machine; see [`crate::roof`].

use super::products::{ByteProducts, DotProd, Widening};
use crate::level::Level;
use crate::matmul::ahead::prefetch;
use crate::matmul::panel::LINE_BYTES;
use crate::roof::{READ_STEP, ReadArgs, RegisterLoop};
use std::arch::aarch64::*;
use std::hint::black_box;

/// Independent sums: they cover the latency of two instructions a cycle, and leave registers for the operands.
const SUMS: usize = 12;

/// Fused multiply-adds of f32.
pub(crate) const F32: RegisterLoop = RegisterLoop {
    run: multiply_add,
    ops_a_round: SUMS * 4 * 2,
};

/// Products of bytes, added in i32, as `level` has them.
pub(crate) fn int8(level: Level) -> RegisterLoop {
    let (run, products): (unsafe fn(usize), usize) = match level {
        Level::I8mm => (pair_products, 32),
        Level::DotProd => (dot_products, 16),
        _ => (widening_products, 16),
    };
    RegisterLoop {
        run,
        ops_a_round: SUMS * products * 2,
    }
}

fn multiply_add(rounds: usize) {
    // SAFETY: every AArch64 has these.
    unsafe {
        let a = vdupq_n_f32(black_box(0.5));
        let b = vdupq_n_f32(black_box(1.0));
        let mut sums = [vdupq_n_f32(0.0); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = vfmaq_f32(b, *sum, a);
            }
        }
        black_box(sums);
    }
}

fn widening_products(rounds: usize) {
    // SAFETY: every AArch64 has these.
    unsafe { byte_products::<Widening>(rounds) }
}

/// # Safety
/// The CPU has FEAT_DotProd.
#[target_feature(enable = "neon,dotprod")]
unsafe fn dot_products(rounds: usize) {
    // SAFETY: forwarded.
    unsafe { byte_products::<DotProd>(rounds) }
}

/// The sum is also a factor: a product that does not change would be computed once.
///
/// # Safety
/// The CPU has the level.
#[inline(always)]
unsafe fn byte_products<P: ByteProducts>(rounds: usize) {
    // SAFETY: forwarded.
    unsafe {
        let w = vdupq_n_s8(black_box(3));
        let mut sums = [vdupq_n_s32(black_box(5)); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = P::dot(*sum, w, vreinterpretq_s8_s32(*sum));
            }
        }
        black_box(sums);
    }
}

#[target_feature(enable = "neon,i8mm")]
fn pair_products(rounds: usize) {
    let w = vdupq_n_s8(black_box(3));
    let mut sums = [vdupq_n_s32(black_box(5)); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = super::products::smmla(*sum, w, vreinterpretq_s8_s32(*sum));
        }
    }
    black_box(sums);
}

/// Reads every byte, fetching ahead.
pub(crate) fn read(args: &ReadArgs<'_>) {
    let stream_bytes = args.bytes.len() / args.n_streams;
    // SAFETY: loads within the lines; every AArch64 has the instructions.
    unsafe {
        let mut sums = [vdupq_n_u8(0); 4];
        for at in (0..stream_bytes).step_by(READ_STEP) {
            for step in args.bytes[at..].chunks(stream_bytes).take(args.n_streams) {
                for line in step[..READ_STEP].chunks_exact(LINE_BYTES) {
                    prefetch::<true>(line.as_ptr().wrapping_add(args.ahead_bytes));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = vorrq_u8(*sum, vld1q_u8(line.as_ptr().add(16 * i)));
                    }
                }
            }
        }
        black_box(sums);
    }
}
