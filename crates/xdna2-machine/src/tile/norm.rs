//! Row norms. Sums are f32 in 16 lanes (lane = column mod 16), then halved pairwise.

use super::math::{bf16s, bf16s_mut, round, widen};
use super::shape::{dim, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_npu::Element::Bf16;

const LANES: usize = 16;

pub(super) fn check_rms(shape: &CallShape<'_>) -> Result<(), String> {
    let [rows, cols] = shape.dims(["rows", "cols"])?;
    shape.extras(0, 1)?;
    let n = rows * cols;
    shape.operands(&[("x", Bf16, n), ("gamma", Bf16, cols), ("y", Bf16, n)])
}

pub(super) fn check_layer(shape: &CallShape<'_>) -> Result<(), String> {
    let [rows, cols] = shape.dims(["rows", "cols"])?;
    shape.extras(0, 1)?;
    let n = rows * cols;
    shape.operands(&[
        ("x", Bf16, n),
        ("gamma", Bf16, cols),
        ("beta", Bf16, cols),
        ("y", Bf16, n),
    ])
}

pub(super) fn work_rms(dims: &[u32], _: &[i64]) -> TileWork {
    let (rows, cols) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[rows, cols], &[&[rows, cols, 4], &[cols, 2]])
}

pub(super) fn work_layer(dims: &[u32], _: &[i64]) -> TileWork {
    let (rows, cols) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[rows, cols], &[&[rows, cols, 4], &[cols, 4]])
}

/// Sum of `f(x)` in lanes, with the lanes added in halves: 8 apart, then 4, 2, 1.
fn sum(row: &[bf16], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    for chunk in row.chunks(LANES) {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(widen(x));
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

pub(super) fn rms(call: &mut TileCall<'_>) {
    let cols = call.dims[1] as usize;
    let epsilon = f32::from_bits(call.constants[0]);
    let (x, gamma) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let y = bf16s_mut(call.outputs[0]);
    for (y, x) in y.chunks_exact_mut(cols).zip(x.chunks_exact(cols)) {
        let mean = sum(x, |x| x * x) / cols as f32;
        let inverse = 1.0 / (mean + epsilon).sqrt();
        for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = round(widen(x) * inverse * widen(gamma));
        }
    }
}

pub(super) fn layer(call: &mut TileCall<'_>) {
    let cols = call.dims[1] as usize;
    let epsilon = f32::from_bits(call.constants[0]);
    let [x, gamma, beta] = [0, 1, 2].map(|i| bf16s(call.inputs[i]));
    let y = bf16s_mut(call.outputs[0]);
    for (y, x) in y.chunks_exact_mut(cols).zip(x.chunks_exact(cols)) {
        let mean = sum(x, |x| x) / cols as f32;
        let variance = sum(x, |x| (x - mean) * (x - mean)) / cols as f32;
        let inverse = 1.0 / (variance + epsilon).sqrt();
        for (((y, &x), &gamma), &beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
            *y = round((widen(x) - mean) * inverse * widen(gamma) + widen(beta));
        }
    }
}
