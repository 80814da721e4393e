//! Plain numbers times one token: sixteen whole rows at a time, each from memory in order.
//!
//! Rounded sums depend on their order, so a lane is a row as in the tile. Every row is a stream of its own, and more than sixteen of them
//! were slower.

use super::float::{BF16, BF16_PAIRS, F16, F32, STEP_BYTES, elem_bytes, lines_a_vector, widen};
use super::tile_bf16::dot_pairs;
use super::transpose::load_lines_of;
use crate::matmul::Layout;
use crate::matmul::panel::{PANEL_ROWS, RowsArgs};
use std::arch::x86_64::*;

/// How far ahead of its use a line of a row is fetched, the fastest of those tried. Rows are many streams, and often a power of two bytes apart: their lines go to the
/// second cache, since in the nearest they would evict each other.
const AHEAD_BYTES: usize = 1024;

/// The same for pairs of bf16, which are AMD's alone (see [`crate::Level::preferred`]): a few lines ahead, past the second cache. On Zen 5
/// that reads 41 GB/s where the other way reads 37 (two threads, best of five in turn).
const PAIRS_AHEAD_BYTES: usize = 256;

/// Multiplies with one token.
///
/// # Safety
/// As [`crate::matmul::panel::RowsFn`]; bf16 pairs need AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn rows<const FORMAT: u8>(args: &RowsArgs) {
    let mut row = 0;
    // SAFETY: forwarded, for rows below `n`.
    unsafe {
        while row < args.n {
            let n_rows = PANEL_ROWS.min(args.n - row);
            panel::<FORMAT>(args, row, n_rows);
            row += n_rows;
        }
    }
}

/// A panel of `n_rows` rows from `row`.
///
/// # Safety
/// As [`rows`]; the rows are below `n`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn panel<const FORMAT: u8>(args: &RowsArgs, row: usize, n_rows: usize) {
    let layout = if FORMAT == BF16_PAIRS {
        Layout::Bf16
    } else {
        Layout::F32
    };
    let chunk_bytes = layout.chunk_k() * elem_bytes(FORMAT);
    let row_bytes = args.k * elem_bytes(FORMAT);
    // A panel of fewer rows repeats the last.
    let rows: [*const u8; PANEL_ROWS] = std::array::from_fn(|r| {
        let row = row + r.min(n_rows - 1);
        args.base.wrapping_add(row * args.row_bytes)
    });
    let zero = _mm512_setzero_ps();
    let (mut acc, mut sum) = (zero, zero);
    let mut from = 0;
    while from < row_bytes {
        let step_bytes = STEP_BYTES.min(row_bytes - from);
        // Beyond a row's end comes the next panel's row.
        let mut ahead = match FORMAT {
            BF16_PAIRS => from + PAIRS_AHEAD_BYTES,
            _ => from + AHEAD_BYTES,
        };
        if ahead >= row_bytes {
            ahead = ahead - row_bytes + PANEL_ROWS * args.row_bytes;
        }
        for row in rows {
            let line = row.wrapping_add(ahead).cast();
            match FORMAT {
                BF16_PAIRS => _mm_prefetch::<_MM_HINT_NTA>(line),
                _ => _mm_prefetch::<_MM_HINT_T1>(line),
            }
        }
        // SAFETY: forwarded: these bytes of the rows exist, and as many columns of the token.
        unsafe {
            let step = |r: usize| rows[r].wrapping_add(from);
            let x = args.x.add(from / elem_bytes(FORMAT) * x_bytes(FORMAT));
            let columns = step_bytes / elem_bytes(FORMAT);
            if step_bytes == STEP_BYTES {
                sum = add_step::<FORMAT, true>(sum, load_lines_of(step), x, columns);
            } else {
                let lines = load_tail(step, step_bytes);
                sum = add_step::<FORMAT, false>(sum, lines, x, columns);
            }
        }
        from += step_bytes;
        if from.is_multiple_of(chunk_bytes) || from == row_bytes {
            acc = _mm512_add_ps(acc, sum);
            sum = zero;
        }
    }
    let mask = u16::MAX >> (PANEL_ROWS - n_rows);
    // SAFETY: `out` has a number for each row.
    unsafe { _mm512_mask_storeu_ps(args.out.add(row), mask, acc) };
}

/// Bytes of an activation.
const fn x_bytes(format: u8) -> usize {
    if format == BF16_PAIRS { 2 } else { 4 }
}

/// `sum` plus the products of a step's lines, or of those that `columns` reach.
///
/// # Safety
/// At `x` are as many columns; of bf16, whole pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn add_step<const FORMAT: u8, const FULL: bool>(
    mut sum: __m512,
    lines: [__m512i; 16],
    x: *const u8,
    columns: usize,
) -> __m512 {
    const { assert!(matches!(FORMAT, F32 | F16 | BF16 | BF16_PAIRS)) };
    let per_vector = lines_a_vector(FORMAT);
    let n_lines = if FORMAT == BF16_PAIRS {
        columns.div_ceil(2)
    } else {
        columns
    };
    for (i, v) in lines.into_iter().enumerate() {
        for (j, v) in widen::<FORMAT>(v).into_iter().take(per_vector).enumerate() {
            let c = per_vector * i + j;
            if !FULL && c >= n_lines {
                continue;
            }
            // SAFETY: forwarded; a line is 4 bytes of activations.
            unsafe {
                let x = _mm512_set1_epi32(x.cast::<i32>().add(c).read_unaligned());
                sum = if FORMAT == BF16_PAIRS {
                    dot_pairs(sum, v, x)
                } else {
                    _mm512_fmadd_ps(_mm512_castsi512_ps(v), _mm512_castsi512_ps(x), sum)
                };
            }
        }
    }
    sum
}

/// The lines of a step of fewer bytes, zeros beyond.
///
/// # Safety
/// At the address of each of the sixteen rows are `n_bytes` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn load_tail(row: impl Fn(usize) -> *const u8, n_bytes: usize) -> [__m512i; 16] {
    let mut tail = [[0_u8; STEP_BYTES]; PANEL_ROWS];
    // SAFETY: forwarded; the copies are whole steps.
    unsafe {
        for (r, to) in tail.iter_mut().enumerate() {
            std::ptr::copy_nonoverlapping(row(r), to.as_mut_ptr(), n_bytes);
        }
        load_lines_of(|r| tail[r].as_ptr())
    }
}
