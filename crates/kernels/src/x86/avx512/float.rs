//! Sixteen rows of 16-bit numbers as lines, for the tiles of AMX.

use super::transpose::load_lines;
use crate::matmul::panel::{PANEL_ROWS, PanelSource};
use std::arch::x86_64::*;

/// Bytes that [`load_lines`] reads from each row.
const STEP_BYTES: usize = 64;

/// Formats; the codes are const parameters.
pub(in crate::x86) const F16: u8 = 1;
pub(in crate::x86) const BF16: u8 = 2;

/// The lines of a panel that a vector of 4 bytes a row becomes: one column of f32 or a pair of bf16,
/// or two columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::x86) fn widen<const FORMAT: u8>(v: __m512i) -> [__m512i; 2] {
    match FORMAT {
        F16 => {
            // Even columns to the lower half, odd ones to the upper.
            let order = _mm512_set_epi16(
                31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, //
                30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0,
            );
            let v = _mm512_permutexvar_epi16(order, v);
            let widen = |v| _mm512_castps_si512(_mm512_cvtph_ps(v));
            [
                widen(_mm512_castsi512_si256(v)),
                widen(_mm512_extracti64x4_epi64::<1>(v)),
            ]
        }
        BF16 => {
            let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
            [_mm512_slli_epi32::<16>(v), _mm512_and_si512(v, upper)]
        }
        _ => [v; 2],
    }
}

/// Gives `use_vector` vector `i` of the chunk: bytes `4i..4i + 4` of each row, zeros beyond the last column.
///
/// # Safety
/// As [`crate::matmul::panel::PackFn`], for columns of `elem_bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::x86) unsafe fn each_vector(
    source: &PanelSource,
    elem_bytes: usize,
    mut use_vector: impl FnMut(usize, __m512i),
) {
    let n_bytes = source.k * elem_bytes;
    let steps = n_bytes / STEP_BYTES;
    let mut ahead = source.ahead;
    for step in 0..steps {
        ahead.fetch(PANEL_ROWS);
        // SAFETY: whole steps are within the rows.
        let lines = unsafe { load_lines(source.base.add(step * STEP_BYTES), source.stride) };
        for (i, v) in lines.into_iter().enumerate() {
            use_vector(16 * step + i, v);
        }
    }
    let left = n_bytes % STEP_BYTES;
    if left > 0 {
        let mut tail = [0_u8; PANEL_ROWS * STEP_BYTES];
        for (r, to) in tail.chunks_exact_mut(STEP_BYTES).enumerate() {
            // SAFETY: the last bytes of each row's chunk; `to` is longer.
            unsafe {
                let from = source.base.add(r * source.stride + steps * STEP_BYTES);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), left);
            }
        }
        // SAFETY: sixteen rows of 64 bytes.
        let lines = unsafe { load_lines(tail.as_ptr(), STEP_BYTES) };
        for (i, v) in lines.into_iter().enumerate().take(left.div_ceil(4)) {
            use_vector(16 * steps + i, v);
        }
    }
}
