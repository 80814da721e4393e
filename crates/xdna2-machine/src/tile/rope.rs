//! Rotary position embedding, halves: element `i` pairs with `i + d/2`.

use super::math::{bf16s, bf16s_mut, round, widen};
use super::shape::{dim, work as work_from};
use super::{CallShape, TileCall, TileWork};
use millrace_npu::Element::Bf16;

pub(super) fn check(shape: &CallShape<'_>) -> Result<(), String> {
    let [rows, d] = shape.dims(["rows", "d"])?;
    if !d.is_multiple_of(2) {
        return Err(format!("d must be even, it is {d}"));
    }
    shape.extras(0, 0)?;
    let n = rows * d;
    shape.operands(&[("x", Bf16, n), ("table", Bf16, n), ("y", Bf16, n)])
}

pub(super) fn work(dims: &[u32], _: &[i64]) -> TileWork {
    let (rows, d) = (dim(dims, 0), dim(dims, 1));
    work_from(&[], &[rows, d], &[&[rows, d, 6]])
}

/// Products and the sum are f32; one rounding.
pub(super) fn run(call: &mut TileCall<'_>) {
    let d = call.dims[1] as usize;
    let (x, table) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let y = bf16s_mut(call.outputs[0]);
    let rows = x.chunks_exact(d).zip(table.chunks_exact(d));
    for (y, (x, table)) in y.chunks_exact_mut(d).zip(rows) {
        let (low, high) = y.split_at_mut(d / 2);
        for i in 0..d / 2 {
            let (a, b) = (widen(x[i]), widen(x[i + d / 2]));
            let (cos, sin) = (widen(table[i]), widen(table[i + d / 2]));
            low[i] = round(a * cos - b * sin);
            high[i] = round(a * sin + b * cos);
        }
    }
}
