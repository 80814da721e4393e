//! Plain numbers: f32, f16 and bf16, packed as f32.

use super::lines::{HALF_LINE, HALF_ROWS, load_rows, store, widen_f16};
use crate::matmul::panel::{LINE_BYTES, PANEL_ROWS, PackArgs};
use std::arch::x86_64::*;

/// Bytes that [`load_rows`] takes from each row.
const STEP_BYTES: usize = 16;

/// Packs f32.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn f32(args: &PackArgs) {
    // SAFETY: forwarded; a vector is one column.
    unsafe { pack(args, 4, |v| [v, v]) }
}

/// Packs f16.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn f16(args: &PackArgs) {
    let widen = |v| _mm256_castps_si256(widen_f16(v));
    // SAFETY: forwarded; a vector is two columns.
    unsafe { pack(args, 2, |v| [widen(v), widen(_mm256_srli_epi32::<16>(v))]) }
}

/// Packs bf16.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn bf16(args: &PackArgs) {
    let upper = _mm256_set1_epi32(0xFFFF_0000_u32.cast_signed());
    // SAFETY: forwarded; a vector is two columns.
    unsafe {
        pack(args, 2, |v| {
            [_mm256_slli_epi32::<16>(v), _mm256_and_si256(v, upper)]
        })
    }
}

/// Packs columns of `elem_bytes`; `widen` makes the columns in 4 bytes of each row f32.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack(args: &PackArgs, elem_bytes: usize, widen: impl Fn(__m256i) -> [__m256i; 2]) {
    let source = &args.source;
    let n_bytes = source.k * elem_bytes;
    let columns = 4 / elem_bytes;
    let steps = n_bytes.div_ceil(STEP_BYTES);
    let mut ahead = source.ahead;
    for step in 0..steps {
        ahead.fetch(PANEL_ROWS * STEP_BYTES / LINE_BYTES);
        for half in 0..2 {
            let at = step * STEP_BYTES;
            // SAFETY: the rows have these bytes of the chunk; lines below `k` are the panel's.
            unsafe {
                let rows = source.base.add(half * HALF_ROWS * source.stride + at);
                let vectors = if at + STEP_BYTES <= n_bytes {
                    load_rows(rows, source.stride)
                } else {
                    load_tail(rows, source.stride, n_bytes - at)
                };
                for (i, v) in vectors.into_iter().enumerate() {
                    for (j, v) in widen(v).into_iter().take(columns).enumerate() {
                        let column = columns * (4 * step + i) + j;
                        if column < source.k {
                            store(args.panel.add(column * LINE_BYTES + half * HALF_LINE), v);
                        }
                    }
                }
            }
        }
    }
}

/// As [`load_rows`] of rows that end after `left` bytes.
///
/// # Safety
/// All eight rows have `left` readable bytes, fewer than 16.
#[target_feature(enable = "avx2")]
unsafe fn load_tail(first: *const u8, stride: usize, left: usize) -> [__m256i; 4] {
    let mut tail = [0_u8; HALF_ROWS * STEP_BYTES];
    for (r, to) in tail.chunks_exact_mut(STEP_BYTES).enumerate() {
        // SAFETY: forwarded; `to` is longer.
        unsafe { std::ptr::copy_nonoverlapping(first.add(r * stride), to.as_mut_ptr(), left) };
    }
    // SAFETY: eight rows of sixteen bytes.
    unsafe { load_rows(tail.as_ptr(), STEP_BYTES) }
}
