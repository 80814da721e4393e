//! Loops whose speed is a limit of the machine; see [`crate::roof`].

use crate::matmul::panel::LINE_BYTES;
use crate::roof::{READ_STEP, ReadArgs, RegisterLoop};
use std::arch::x86_64::*;
use std::hint::black_box;

/// Independent sums: they cover the latency of two instructions a cycle, and leave registers for the operands.
const SUMS: usize = 12;

/// Fused multiply-adds of f32.
pub(crate) const F32: RegisterLoop = RegisterLoop {
    run: multiply_add,
    ops_a_round: SUMS * 8 * 2,
};

/// Products of bytes, added in i16.
pub(crate) const INT8: RegisterLoop = RegisterLoop {
    run: byte_products,
    ops_a_round: SUMS * 32 * 2,
};

#[target_feature(enable = "avx2,fma")]
fn multiply_add(rounds: usize) {
    let a = _mm256_set1_ps(black_box(0.5));
    let b = _mm256_set1_ps(black_box(1.0));
    let mut sums = [_mm256_setzero_ps(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}

/// The sum is also a factor: a product that does not change would be computed once.
#[target_feature(enable = "avx2")]
fn byte_products(rounds: usize) {
    let w = _mm256_set1_epi8(black_box(3));
    let mut sums = [_mm256_set1_epi8(black_box(5)); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(w, *sum));
        }
    }
    black_box(sums);
}

/// Reads every byte, fetching ahead.
#[target_feature(enable = "avx2")]
pub(crate) fn read(args: &ReadArgs<'_>) {
    let stream_bytes = args.bytes.len() / args.n_streams;
    let mut sums = [_mm256_setzero_si256(); 4];
    for at in (0..stream_bytes).step_by(READ_STEP) {
        for step in args.bytes[at..].chunks(stream_bytes).take(args.n_streams) {
            for line in step[..READ_STEP].chunks_exact(2 * LINE_BYTES) {
                let start = line.as_ptr();
                for i in 0..2 {
                    let ahead = start.wrapping_add(args.ahead_bytes + i * LINE_BYTES);
                    // SAFETY: a prefetch may have any address.
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: four vectors of 32 bytes make two lines.
                    let loaded = unsafe { _mm256_loadu_si256(start.add(32 * i).cast()) };
                    *sum = _mm256_or_si256(*sum, loaded);
                }
            }
        }
    }
    black_box(sums);
}
