//! Matrix products on blocked tiles, and matrix times vector.
//!
//! The order of additions and the treatment of subnormal numbers are those of [`millrace_kernels::tile::matmul_bf16`].
//! Every element of C is a chain of fused multiply-adds over `k`, begun with the old C. Products emulated by block
//! floating point are in [`bfp16`](super::bfp16).

use super::math::{bf16s, bf16s_mut, f32s_mut, round, truncate, widen};
use super::shape::{dim, multiple_of_8, work};
use super::{CallShape, TileCall, TileWork};
use millrace_kernels::tile::{MatmulShape, matmul_bf16, matmul_bt_bf16, matvec_bf16};
use millrace_npu::Element::{self, Bf16, F32};

fn check(shape: &CallShape<'_>, c: Element) -> Result<(), String> {
    let [m, n, k] = shape.dims(["m", "n", "k"])?;
    multiple_of_8(&["m", "n", "k"], &[m, n, k])?;
    shape.extras(0, 0)?;
    shape.operands(&[("A", Bf16, m * k), ("B", Bf16, k * n), ("C", c, m * n)])
}

pub(super) fn check_f32(shape: &CallShape<'_>) -> Result<(), String> {
    check(shape, F32)
}

pub(super) fn check_bf16(shape: &CallShape<'_>) -> Result<(), String> {
    check(shape, Bf16)
}

fn work_of(dims: &[u32], c_bytes: u64) -> TileWork {
    let [m, n, k] = [0, 1, 2].map(|i| dim(dims, i));
    // C is read and written.
    work(
        &[m, n, k],
        &[],
        &[&[m, k, 2], &[k, n, 2], &[m, n, c_bytes, 2]],
    )
}

pub(super) fn work_f32(dims: &[u32], _: &[i64]) -> TileWork {
    work_of(dims, 4)
}

pub(super) fn work_bf16(dims: &[u32], _: &[i64]) -> TileWork {
    work_of(dims, 2)
}

/// `[m, n, k]` of a checked call.
pub(super) fn matmul_shape(m: u32, n: u32, k: u32) -> MatmulShape {
    MatmulShape {
        m: m as usize,
        n: n as usize,
        k: k as usize,
    }
}

pub(super) fn run_f32(call: &mut TileCall<'_>) {
    let shape = matmul_shape(call.dims[0], call.dims[1], call.dims[2]);
    let (a, b) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    matmul_bf16(call.cpu, shape, a, b, f32s_mut(call.outputs[0]));
}

/// [`run_f32`] with the transpose of B.
pub(super) fn run_bt_f32(call: &mut TileCall<'_>) {
    let shape = matmul_shape(call.dims[0], call.dims[1], call.dims[2]);
    let (a, bt) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    matmul_bt_bf16(call.cpu, shape, a, bt, f32s_mut(call.outputs[0]));
}

pub(super) fn run_bf16(call: &mut TileCall<'_>) {
    let shape = matmul_shape(call.dims[0], call.dims[1], call.dims[2]);
    let (a, b) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let c = bf16s_mut(call.outputs[0]);
    let mut sums: Vec<f32> = c.iter().map(|&c| widen(c)).collect();
    matmul_bf16(call.cpu, shape, a, b, &mut sums);
    for (c, &sum) in c.iter_mut().zip(&sums) {
        *c = truncate(sum);
    }
}

fn check_matvec(shape: &CallShape<'_>, y: Element) -> Result<(), String> {
    let [m, k] = shape.dims(["m", "k"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("W", Bf16, m * k), ("x", Bf16, k), ("y", y, m)])
}

pub(super) fn check_matvec_f32(shape: &CallShape<'_>) -> Result<(), String> {
    check_matvec(shape, F32)
}

pub(super) fn check_matvec_bf16(shape: &CallShape<'_>) -> Result<(), String> {
    check_matvec(shape, Bf16)
}

fn work_matvec(dims: &[u32], y_bytes: u64) -> TileWork {
    let (m, k) = (dim(dims, 0), dim(dims, 1));
    work(&[m, k], &[], &[&[m, k, 2], &[k, 2], &[m, y_bytes]])
}

pub(super) fn work_matvec_f32(dims: &[u32], _: &[i64]) -> TileWork {
    work_matvec(dims, 4)
}

pub(super) fn work_matvec_bf16(dims: &[u32], _: &[i64]) -> TileWork {
    work_matvec(dims, 2)
}

pub(super) fn run_matvec_f32(call: &mut TileCall<'_>) {
    let (w, x) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    matvec_bf16(call.cpu, w, x, f32s_mut(call.outputs[0]));
}

pub(super) fn run_matvec_bf16(call: &mut TileCall<'_>) {
    let (w, x) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let y = bf16s_mut(call.outputs[0]);
    let mut sums = vec![0.0; y.len()];
    matvec_bf16(call.cpu, w, x, &mut sums);
    for (y, &sum) in y.iter_mut().zip(&sums) {
        *y = round(sum);
    }
}
