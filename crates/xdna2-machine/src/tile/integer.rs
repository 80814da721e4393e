//! Products of 8-bit integers with sums in 32 bits, and the zeroing and copies that go with them.
//!
//! The matrix unit multiplies 8 × 8 × 8 bytes in an instruction, 512 multiply-accumulates a cycle and core (mlir-aie
//! `aie_kernels/aie2p/mm.cc`, `matmul_vectorized_8x8x8_i8_i32`: `aie::mmul<8, 8, 8, int8, int8>`), so tiles are blocked as those
//! of bf16 are. Sums wrap in 32 bits and are otherwise exact: their order does not matter.

use super::part::{start, within};
use super::shape::{dim, multiple_of_8, work};
use super::{CallShape, TileCall, TileWork};
use bytemuck::{cast_slice, cast_slice_mut};
use millrace_kernels::tile::products_i16;
use millrace_npu::Element::{I8, I32};

/// Edge of the matrix unit's blocks.
const EDGE: usize = 8;

/// Depth that [`products_i16`] takes in whole steps.
const STEP: usize = 32;

/// Rows of B that are multiplied at a time: they stay in a near cache while rows of A pass.
const ROWS_AT_A_TIME: usize = 16;

pub(super) fn check_matmul(shape: &CallShape<'_>) -> Result<(), String> {
    let [m, n, k] = shape.dims(["m", "n", "k"])?;
    multiple_of_8(&["m", "n", "k"], &[m, n, k])?;
    shape.extras(0, 0)?;
    shape.operands(&[("A", I8, m * k), ("B", I8, k * n), ("C", I32, m * n)])
}

/// Beside products every element of C is loaded and stored once a call.
pub(super) fn work_matmul(dims: &[u32], _: &[i64]) -> TileWork {
    let [m, n, k] = [0, 1, 2].map(|i| dim(dims, i));
    work(&[m, n, k], &[m, n], &[&[m, k], &[k, n], &[m, n, 8]])
}

/// A tile `[k/8][rows/8][8 rows][8 k]` in rows of 16 bits, k filled up with zeros.
fn rows_of(tile: &[u8], rows: usize, k: usize, depth: usize) -> Vec<i16> {
    let mut out = vec![0; rows * depth];
    for (at, block) in tile.as_chunks::<{ EDGE * EDGE }>().0.iter().enumerate() {
        let (column, group) = (at / (rows / EDGE), at % (rows / EDGE));
        debug_assert!(column < k / EDGE);
        for (row, bytes) in block.as_chunks::<EDGE>().0.iter().enumerate() {
            let to = (group * EDGE + row) * depth + column * EDGE;
            for (to, byte) in out[to..to + EDGE].iter_mut().zip(bytes) {
                *to = i16::from(byte.cast_signed());
            }
        }
    }
    out
}

/// `C += A · B` with Bᵀ given.
pub(super) fn matmul_bt(call: &mut TileCall<'_>) {
    let [m, n, k] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let depth = k.next_multiple_of(STEP);
    let a = rows_of(call.inputs[0], m, k, depth);
    let b = rows_of(call.inputs[1], n, k, depth);
    let c: &mut [i32] = cast_slice_mut(call.outputs[0]);
    let level = call.cpu.level();
    let mut sums = vec![0; m * ROWS_AT_A_TIME];
    for (at, b) in b.chunks(ROWS_AT_A_TIME * depth).enumerate() {
        let columns = b.len() / depth;
        let sums = &mut sums[..m * columns];
        products_i16(level, depth, &a, b, sums);
        for (row, sums) in sums.chunks_exact(columns).enumerate() {
            for (part, sums) in sums.chunks_exact(EDGE).enumerate() {
                let block = at * ROWS_AT_A_TIME / EDGE + part;
                let to = (block * m + row) * EDGE;
                for (c, sum) in c[to..to + EDGE].iter_mut().zip(sums) {
                    *c = c.wrapping_add(*sum);
                }
            }
        }
    }
}

pub(super) fn check_matvec(shape: &CallShape<'_>) -> Result<(), String> {
    let [m, k, total] = shape.dims(["m", "k", "total"])?;
    within(("m", m), ("total", total))?;
    shape.extras(1, 0)?;
    shape.operands(&[("W", I8, m * k), ("x", I8, k), ("y", I32, total)])
}

pub(super) fn work_matvec(dims: &[u32], _: &[i64]) -> TileWork {
    let (m, k) = (dim(dims, 0), dim(dims, 1));
    work(&[m, k], &[], &[&[m, k], &[k], &[m, 4]])
}

/// `y[first ..] = W · x`.
pub(super) fn matvec_part(call: &mut TileCall<'_>) {
    let [m, k, total] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let first = start(call, m, total);
    let (w, x) = (call.inputs[0], call.inputs[1]);
    let y: &mut [i32] = cast_slice_mut(call.outputs[0]);
    for (y, w) in y[first..][..m].iter_mut().zip(w.chunks_exact(k)) {
        let product =
            |(w, x): (&u8, &u8)| i32::from(i16::from(w.cast_signed()) * i16::from(x.cast_signed()));
        *y = w.iter().zip(x).map(product).fold(0, i32::wrapping_add);
    }
}

pub(super) fn check_zero(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("y", I32, n)])
}

pub(super) fn check_copy(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("x", I8, n), ("y", I8, n)])
}

pub(super) fn work_copy(dims: &[u32], _: &[i64]) -> TileWork {
    let n = dim(dims, 0);
    work(&[], &[n], &[&[n, 2]])
}

pub(super) fn check_copy_part(shape: &CallShape<'_>) -> Result<(), String> {
    let [n, total] = shape.dims(["n", "total"])?;
    within(("n", n), ("total", total))?;
    shape.extras(1, 0)?;
    shape.operands(&[("x", I32, total), ("y", I32, n)])
}

pub(super) fn work_copy_part(dims: &[u32], _: &[i64]) -> TileWork {
    let n = dim(dims, 0);
    work(&[], &[n], &[&[n, 8]])
}

/// `y = x[first ..]`.
pub(super) fn copy_part(call: &mut TileCall<'_>) {
    let (n, total) = (call.dims[0] as usize, call.dims[1] as usize);
    let first = start(call, n, total);
    let x: &[i32] = cast_slice(call.inputs[0]);
    let y: &mut [i32] = cast_slice_mut(call.outputs[0]);
    y.copy_from_slice(&x[first..][..n]);
}
