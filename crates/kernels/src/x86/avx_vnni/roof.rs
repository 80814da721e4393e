//! Loops whose speed is a limit of the machine; see [`crate::roof`].

use crate::roof::RegisterLoop;
use std::arch::x86_64::*;
use std::hint::black_box;

/// Independent sums: they cover the latency of two instructions a cycle, and leave registers for the operands.
const SUMS: usize = 12;

/// Dot products of four bytes.
pub(crate) const INT8: RegisterLoop = RegisterLoop {
    run: byte_products,
    ops_a_round: SUMS * 32 * 2,
};

#[target_feature(enable = "avx2,avxvnni")]
fn byte_products(rounds: usize) {
    let w = _mm256_set1_epi8(black_box(3));
    let x = _mm256_set1_epi8(black_box(5));
    let mut sums = [_mm256_setzero_si256(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_dpbusd_avx_epi32(*sum, w, x);
        }
    }
    black_box(sums);
}
