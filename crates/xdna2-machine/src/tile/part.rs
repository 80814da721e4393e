//! Kernels on a part of a buffer, whose place is a scalar, and in place. The drained GEMM, the compiler-generated GEMM
//! and the GEMV by few rows call them.

use super::math::{bf16s, bf16s_mut, f32s, f32s_mut, round, truncate, widen};
use super::shape::{dim, work};
use super::{CallShape, TileCall, TileWork};
use millrace_kernels::tile::matvec_bf16;
use millrace_npu::Element::{Bf16, F32};

/// Rows of a matrix that are multiplied at a time.
const ROWS_AT_A_TIME: usize = 64;

/// Checks that a part is within its whole.
pub(super) fn within(part: (&str, u64), whole: (&str, u64)) -> Result<(), String> {
    if part.1 <= whole.1 {
        return Ok(());
    }
    Err(format!(
        "{} = {} must be at most {} = {}",
        part.0, part.1, whole.0, whole.1
    ))
}

/// Start of a part of `n` of `total`: the scalar, clamped to the range. A program that passes a larger one computes the
/// wrong part, as on the hardware.
pub(super) fn start(call: &TileCall<'_>, n: usize, total: usize) -> usize {
    let scalar = usize::try_from(call.scalars[0]).unwrap_or(0);
    scalar.min(total - n)
}

pub(super) fn check_truncate(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("x", F32, n)])
}

pub(super) fn work_truncate(dims: &[u32], _: &[i64]) -> TileWork {
    let n = dim(dims, 0);
    work(&[], &[n], &[&[n, 8]])
}

pub(super) fn truncate_f32(call: &mut TileCall<'_>) {
    for x in f32s_mut(call.outputs[0]) {
        *x = widen(truncate(*x));
    }
}

pub(super) fn check_cast(shape: &CallShape<'_>) -> Result<(), String> {
    let [n, total] = shape.dims(["n", "total"])?;
    within(("n", n), ("total", total))?;
    shape.extras(1, 0)?;
    shape.operands(&[("x", F32, total), ("y", Bf16, n)])
}

pub(super) fn work_cast(dims: &[u32], _: &[i64]) -> TileWork {
    let n = dim(dims, 0);
    work(&[], &[n], &[&[n, 6]])
}

pub(super) fn cast(call: &mut TileCall<'_>) {
    let (n, total) = (call.dims[0] as usize, call.dims[1] as usize);
    let first = start(call, n, total);
    let x = &f32s(call.inputs[0])[first..][..n];
    for (y, &x) in bf16s_mut(call.outputs[0]).iter_mut().zip(x) {
        *y = round(x);
    }
}

pub(super) fn check_matvec(shape: &CallShape<'_>) -> Result<(), String> {
    let [m, k, total] = shape.dims(["m", "k", "total"])?;
    within(("m", m), ("total", total))?;
    shape.extras(1, 0)?;
    shape.operands(&[("W", Bf16, m * k), ("x", Bf16, k), ("y", Bf16, total)])
}

pub(super) fn work_matvec(dims: &[u32], _: &[i64]) -> TileWork {
    let (m, k) = (dim(dims, 0), dim(dims, 1));
    work(&[m, k], &[], &[&[m, k, 2], &[k, 2], &[m, 2]])
}

pub(super) fn matvec(call: &mut TileCall<'_>) {
    let (m, total) = (call.dims[0] as usize, call.dims[2] as usize);
    let first = start(call, m, total);
    let (w, x) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let y = &mut bf16s_mut(call.outputs[0])[first..][..m];
    // Rows are independent, and calls are many and small: nothing is allocated.
    let mut sums = [0.0; ROWS_AT_A_TIME];
    for (i, y) in y.chunks_mut(ROWS_AT_A_TIME).enumerate() {
        let w = &w[i * ROWS_AT_A_TIME * x.len()..][..y.len() * x.len()];
        let sums = &mut sums[..y.len()];
        matvec_bf16(call.cpu, w, x, sums);
        for (y, &sum) in y.iter_mut().zip(&*sums) {
            *y = round(sum);
        }
    }
}
