//! Q4NX blocks: the fused dequantisation and projection of a vector (FusedDQP, Gemma paper §3.2.1), and
//! the expansion of blocks for products of matrices (§3.1.1).
//!
//! Orders and roundings are those of [`millrace_kernels::tile::q4nx_matvec`] and
//! [`q4nx_expand`](millrace_kernels::tile::q4nx_expand).

use super::math::{bf16s, bf16s_mut, f32s_mut, round};
use super::shape::{dim, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_kernels::tile::{
    Q4NX_BYTES, Q4NX_COLS, Q4NX_GROUP, Q4NX_ROWS, Q4nxBlock, q4nx_expand, q4nx_matvec, q4nx_sums,
};
use millrace_npu::Element::{Bf16, F32, U8};

pub(super) const BYTES: u64 = Q4NX_BYTES as u64;
const ROWS: u64 = Q4NX_ROWS as u64;
const COLS: u64 = Q4NX_COLS as u64;
const GROUP: u64 = Q4NX_GROUP as u64;

/// Elements of a vector with the sums of its groups after it.
pub(super) fn with_sums(total: u64) -> u64 {
    total + total / GROUP
}

/// `total` must be whole blocks, `n` whole groups of it.
fn vector(n: u64, total: u64) -> Result<(), String> {
    if !total.is_multiple_of(COLS) {
        return Err(format!("total must be a multiple of {COLS}, it is {total}"));
    }
    if !n.is_multiple_of(GROUP) || n > total {
        return Err(format!(
            "n must be a multiple of {GROUP} up to total = {total}, it is {n}"
        ));
    }
    Ok(())
}

pub(super) fn check_take(shape: &CallShape<'_>) -> Result<(), String> {
    let [n, total] = shape.dims(["n", "total"])?;
    vector(n, total)?;
    shape.extras(1, 0)?;
    shape.operands(&[("x", Bf16, n), ("v", Bf16, with_sums(total))])
}

pub(super) fn work_take(dims: &[u32], _: &[i64]) -> TileWork {
    let n = dim(dims, 0);
    work(&[], &[n], &[&[n, 4]])
}

pub(super) fn take(call: &mut TileCall<'_>) {
    let (n, total) = (call.dims[0] as usize, call.dims[1] as usize);
    let first = usize::try_from(call.scalars[0]).unwrap_or(0);
    // A program that passes a part beyond the end writes the wrong one, as on the hardware.
    let first = (first / Q4NX_GROUP * Q4NX_GROUP).min(total - n);
    let x = bf16s(call.inputs[0]);
    let (v, sums) = bf16s_mut(call.outputs[0]).split_at_mut(total);
    if first == 0 {
        v.fill(bf16::ZERO);
        sums.fill(bf16::ZERO);
    }
    v[first..first + n].copy_from_slice(x);
    q4nx_sums(x, &mut sums[first / Q4NX_GROUP..][..n / Q4NX_GROUP]);
}

pub(super) fn check_project(shape: &CallShape<'_>) -> Result<(), String> {
    let [total] = shape.dims(["total"])?;
    vector(GROUP, total)?;
    shape.extras(1, 0)?;
    shape.operands(&[
        ("W", U8, BYTES),
        ("v", Bf16, with_sums(total)),
        ("sums", F32, ROWS),
        ("y", Bf16, ROWS),
    ])
}

pub(super) fn work_project(_: &[u32], _: &[i64]) -> TileWork {
    work(&[ROWS, COLS], &[], &[&[BYTES], &[COLS, 2], &[ROWS, 10]])
}

fn q4nx(bytes: &[u8]) -> &Q4nxBlock {
    match bytes.first_chunk() {
        Some(block) => block,
        None => &[0; Q4NX_BYTES],
    }
}

pub(super) fn project(call: &mut TileCall<'_>) {
    let total = call.dims[0] as usize;
    let step = usize::try_from(call.scalars[0]).unwrap_or(0);
    let step = step.min(total / Q4NX_COLS - 1);
    let (v, group_sums) = bf16s(call.inputs[1]).split_at(total);
    let [sums, y] = &mut call.outputs[..] else {
        return;
    };
    let sums = f32s_mut(sums);
    if step == 0 {
        sums.fill(0.0);
    }
    let n_groups = Q4NX_COLS / Q4NX_GROUP;
    q4nx_matvec(
        call.cpu,
        q4nx(call.inputs[0]),
        &v[step * Q4NX_COLS..][..Q4NX_COLS],
        &group_sums[step * n_groups..][..n_groups],
        sums,
    );
    for (y, &sum) in bf16s_mut(y).iter_mut().zip(sums.iter()) {
        *y = round(sum);
    }
}

pub(super) fn check_expand(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["columns"])?;
    if !n.is_multiple_of(8) || n > COLS {
        return Err(format!(
            "columns must be a multiple of 8 up to {COLS}, it is {n}"
        ));
    }
    shape.extras(1, 0)?;
    shape.operands(&[("W", U8, BYTES), ("B", Bf16, n * ROWS)])
}

pub(super) fn work_expand(dims: &[u32], _: &[i64]) -> TileWork {
    let n = dim(dims, 0);
    // A column's share of the block's bytes.
    work(&[], &[n, ROWS], &[&[n, BYTES / COLS], &[n, ROWS, 2]])
}

pub(super) fn expand(call: &mut TileCall<'_>) {
    let n = call.dims[0] as usize;
    let first = usize::try_from(call.scalars[0]).unwrap_or(0);
    let first = (first / 8 * 8).min(Q4NX_COLS - n);
    let block = q4nx(call.inputs[0]);
    q4nx_expand(
        call.cpu,
        block,
        first..first + n,
        bf16s_mut(call.outputs[0]),
    );
}
