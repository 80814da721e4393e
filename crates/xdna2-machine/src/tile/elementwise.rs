//! Element-wise kernels, 16 lanes at a time on the hardware; every intermediate named below is a
//! vector of bf16 there and is rounded here.

use super::math::{
    Tanh, add as add_bf16, bf16s, bf16s_mut, f32s, f32s_mut, mul, round, truncate, widen,
};
use super::shape::{dim, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_npu::Element::{Bf16, F32};

pub(super) fn check_zero_f32(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("y", F32, n)])
}

pub(super) fn check_zero_bf16(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("y", Bf16, n)])
}

pub(super) fn check_unary(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("x", Bf16, n), ("y", Bf16, n)])
}

pub(super) fn check_binary(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("a", Bf16, n), ("b", Bf16, n), ("y", Bf16, n)])
}

pub(super) fn check_binary_f32(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("a", F32, n), ("b", F32, n), ("y", F32, n)])
}

pub(super) fn check_narrow(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("x", F32, n), ("y", Bf16, n)])
}

pub(super) fn check_widen(shape: &CallShape<'_>) -> Result<(), String> {
    let [n] = shape.dims(["n"])?;
    shape.extras(0, 0)?;
    shape.operands(&[("x", Bf16, n), ("y", F32, n)])
}

/// Work over `n` elements of `bytes_each` bytes in all operands together.
fn per_element(dims: &[u32], bytes_each: u64) -> TileWork {
    let n = dim(dims, 0);
    work(&[], &[n], &[&[n, bytes_each]])
}

pub(super) fn work_zero_f32(dims: &[u32], _: &[i64]) -> TileWork {
    per_element(dims, 4)
}

pub(super) fn work_zero_bf16(dims: &[u32], _: &[i64]) -> TileWork {
    per_element(dims, 2)
}

pub(super) fn work_unary(dims: &[u32], _: &[i64]) -> TileWork {
    per_element(dims, 4)
}

pub(super) fn work_binary(dims: &[u32], _: &[i64]) -> TileWork {
    per_element(dims, 6)
}

pub(super) fn work_binary_f32(dims: &[u32], _: &[i64]) -> TileWork {
    per_element(dims, 12)
}

pub(super) fn work_narrow(dims: &[u32], _: &[i64]) -> TileWork {
    per_element(dims, 6)
}

pub(super) fn zero(call: &mut TileCall<'_>) {
    call.outputs[0].fill(0);
}

pub(super) fn copy(call: &mut TileCall<'_>) {
    call.outputs[0].copy_from_slice(call.inputs[0]);
}

pub(super) fn cast_f32_bf16(call: &mut TileCall<'_>) {
    let y = bf16s_mut(call.outputs[0]);
    for (y, &x) in y.iter_mut().zip(f32s(call.inputs[0])) {
        *y = round(x);
    }
}

pub(super) fn truncate_f32_bf16(call: &mut TileCall<'_>) {
    let y = bf16s_mut(call.outputs[0]);
    for (y, &x) in y.iter_mut().zip(f32s(call.inputs[0])) {
        *y = truncate(x);
    }
}

pub(super) fn cast_bf16_f32(call: &mut TileCall<'_>) {
    let y = f32s_mut(call.outputs[0]);
    for (y, &x) in y.iter_mut().zip(bf16s(call.inputs[0])) {
        *y = if x.is_nan() { f32::NAN } else { widen(x) };
    }
}

pub(super) fn add_f32(call: &mut TileCall<'_>) {
    let (a, b) = (f32s(call.inputs[0]), f32s(call.inputs[1]));
    let y = f32s_mut(call.outputs[0]);
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = a + b;
    }
}

fn binary(call: &mut TileCall<'_>, f: impl Fn(bf16, bf16) -> bf16) {
    let (a, b) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let y = bf16s_mut(call.outputs[0]);
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(a, b);
    }
}

pub(super) fn add(call: &mut TileCall<'_>) {
    binary(call, add_bf16);
}

const HALF: bf16 = bf16::from_f32_const(0.5);
const ONE: bf16 = bf16::ONE;

/// `gate · ½(1 + tanh(gate/2)) · up`.
pub(super) fn silu_mul(call: &mut TileCall<'_>) {
    let tanh = Tanh::new();
    binary(call, |gate, up| {
        let sigmoid = mul(add_bf16(tanh.of(mul(gate, HALF)), ONE), HALF);
        mul(mul(gate, sigmoid), up)
    });
}

/// `½x · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, the cube as `(x·x)·x`.
fn gelu_of(x: bf16, tanh: &Tanh) -> bf16 {
    const SQRT_2_OVER_PI: bf16 = bf16::from_f32_const(0.797_884_6);
    const BETA: bf16 = bf16::from_f32_const(0.044_715);
    let cube = mul(mul(x, x), x);
    let inner = mul(SQRT_2_OVER_PI, add_bf16(x, mul(BETA, cube)));
    mul(mul(HALF, x), add_bf16(ONE, tanh.of(inner)))
}

pub(super) fn gelu_mul(call: &mut TileCall<'_>) {
    let tanh = Tanh::new();
    binary(call, |gate, up| mul(gelu_of(gate, &tanh), up));
}

pub(super) fn gelu(call: &mut TileCall<'_>) {
    let tanh = Tanh::new();
    let y = bf16s_mut(call.outputs[0]);
    for (y, &x) in y.iter_mut().zip(bf16s(call.inputs[0])) {
        *y = gelu_of(x, &tanh);
    }
}
