//! Loops whose speed is a limit of the machine; see [`crate::roof`].

use super::float_columns::dot_pairs;
use crate::matmul::panel::LINE_BYTES;
use crate::roof::{READ_STEP, ReadArgs, RegisterLoop};
use crate::x86::streams::{Fetch, fetched};
use std::arch::x86_64::*;
use std::hint::black_box;

/// Independent sums: they cover the latency of two instructions a cycle, and leave registers for the operands.
const SUMS: usize = 24;

/// Fused multiply-adds of f32.
pub(crate) const F32: RegisterLoop = RegisterLoop {
    run: multiply_add,
    ops_a_round: SUMS * 16 * 2,
};

/// Dot products of bf16 pairs.
pub(crate) const BF16: RegisterLoop = RegisterLoop {
    run: pair_products,
    ops_a_round: SUMS * 32 * 2,
};

/// Dot products of four bytes.
pub(crate) const INT8: RegisterLoop = RegisterLoop {
    run: byte_products,
    ops_a_round: SUMS * 64 * 2,
};

#[target_feature(enable = "avx512f")]
fn multiply_add(rounds: usize) {
    let a = _mm512_set1_ps(black_box(0.5));
    let b = _mm512_set1_ps(black_box(1.0));
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn pair_products(rounds: usize) {
    // Pairs of 0.5 and of 1.0.
    let w = _mm512_set1_epi32(black_box(0x3f00_3f00));
    let x = _mm512_set1_epi32(black_box(0x3f80_3f80));
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            // SAFETY: this function's own feature.
            *sum = unsafe { dot_pairs(*sum, w, x) };
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn byte_products(rounds: usize) {
    let w = _mm512_set1_epi8(black_box(3));
    let x = _mm512_set1_epi8(black_box(5));
    let mut sums = [_mm512_setzero_si512(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, w, x);
        }
    }
    black_box(sums);
}

/// Reads every byte, fetching ahead to where kernels do.
#[target_feature(enable = "avx512f")]
pub(crate) fn read(args: &ReadArgs<'_>) {
    fetched!(SECOND => read_fetched::<SECOND>(args));
}

#[inline]
#[target_feature(enable = "avx512f")]
fn read_fetched<const SECOND: bool>(args: &ReadArgs<'_>) {
    let stream_bytes = args.bytes.len() / args.n_streams;
    let mut sums = [_mm512_setzero_si512(); READ_STEP / LINE_BYTES];
    for at in (0..stream_bytes).step_by(READ_STEP) {
        for step in args.bytes[at..].chunks(stream_bytes).take(args.n_streams) {
            let lines = step[..READ_STEP].chunks_exact(LINE_BYTES);
            for (sum, line) in sums.iter_mut().zip(lines) {
                Fetch::<SECOND>::lines(line.as_ptr().wrapping_add(args.ahead_bytes), LINE_BYTES);
                // SAFETY: a line has 64 bytes.
                let loaded = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
                *sum = _mm512_or_si512(*sum, loaded);
            }
        }
    }
    black_box(sums);
}
