//! GEMM by its definition, with the rounding points of each output path.

use super::{Gemm, GemmDims, Path};
use crate::mapping::blocked::{self, BLOCK};
use crate::mapping::data::{bf16_bytes, f32_bytes, floats, truncate};
use millrace_xdna2_machine::Numerics;
use std::ops::Range;

/// C in the layout of the slots after a run.
pub(super) fn run(
    numerics: Numerics,
    gemm: &Gemm,
    p: &GemmDims,
    slots: &[Vec<u8>],
) -> Vec<(usize, Vec<u8>)> {
    let (a, mut b) = (floats(&slots[0]), floats(&slots[1]));
    let (n, kl2) = (p.n as usize, p.kl2 as usize);
    if gemm.bt {
        b = transposed(&b, p.k as usize);
    }
    let mut c = vec![0.0; p.m as usize * n];
    for first in (0..p.k as usize).step_by(kl2) {
        let sizes = [p.k as usize, n];
        accumulate(numerics, &mut c, &a, &b, sizes, first..first + kl2);
        // Sums are truncated to bf16 after every L2 tile on the direct path, kept in f32 elsewhere.
        if gemm.path == Path::Direct {
            c.iter_mut().for_each(|c| *c = truncate(*c));
        }
    }
    match gemm.path {
        Path::F32 | Path::DirectF32 => vec![(2, f32_bytes(&c))],
        Path::FusedCast => vec![(2, f32_bytes(&c)), (3, bf16_bytes(&c))],
        Path::Drain | Path::Direct => vec![(2, bf16_bytes(&c))],
    }
}

/// The transpose of a matrix with rows of `k`.
pub(in crate::mapping) fn transposed(bt: &[f32], k: usize) -> Vec<f32> {
    let columns = (0..k).map(|row| bt.iter().skip(row).step_by(k));
    columns.flatten().copied().collect()
}

/// `C += A · B` over a range of k of A `[_, k]` and B `[k, n]`. Each sum takes k in ascending pairs,
/// the odd one of a pair first, one f32 rounding an addition: the order of x86's `VDPBF16PS`, which
/// the tile kernels define as theirs. Products of bf16 values are exact in f32. Through block floating
/// point each sum takes k in blocks of eight.
pub(in crate::mapping) fn accumulate(
    numerics: Numerics,
    c: &mut [f32],
    a: &[f32],
    b: &[f32],
    [k, n]: [usize; 2],
    range: Range<usize>,
) {
    if numerics == Numerics::Bfp16 {
        return accumulate_blocked(c, a, b, [k, n], range);
    }
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let rows = (c.len() / n).div_ceil(n_threads).max(1);
    std::thread::scope(|scope| {
        for (c, a) in c.chunks_mut(rows * n).zip(a.chunks(rows * k)) {
            let range = range.clone();
            scope.spawn(move || accumulate_rows(c, a, b, [k, n], range));
        }
    });
}

fn accumulate_blocked(
    c: &mut [f32],
    a: &[f32],
    b: &[f32],
    [k, n]: [usize; 2],
    range: Range<usize>,
) {
    assert!(range.start.is_multiple_of(BLOCK) && k.is_multiple_of(BLOCK));
    let a = blocked::represented_rows(a);
    let columns: Vec<Vec<f32>> = (0..n)
        .map(|col| {
            let column: Vec<f32> = b.iter().skip(col).step_by(n).copied().collect();
            blocked::represented_rows(&column)
        })
        .collect();
    for (row, a) in c.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
        for (c, b) in row.iter_mut().zip(&columns) {
            *c = blocked::dot(*c, &a[range.clone()], &b[range.clone()]);
        }
    }
}

fn accumulate_rows(c: &mut [f32], a: &[f32], b: &[f32], [k, n]: [usize; 2], range: Range<usize>) {
    // Panels of B stay in a cache over all rows.
    for first in range.clone().step_by(64) {
        let last = range.end.min(first + 64);
        let panel = &b[first * n..last * n];
        for (c, a) in c.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
            let pairs = a[first..last].chunks_exact(2);
            for (pair, rows) in pairs.zip(panel.chunks_exact(2 * n)) {
                let (even, odd) = rows.split_at(n);
                for ((c, even), odd) in c.iter_mut().zip(even).zip(odd) {
                    *c = (*c + pair[1] * odd) + pair[0] * even;
                }
            }
        }
    }
}
