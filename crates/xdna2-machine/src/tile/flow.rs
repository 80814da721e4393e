//! The parts of a token's attention on pairs of cores (FlowKV, the Gemma 3 paper's §3.2.2): one core has the keys, scores and
//! exponentials, its neighbour the values. For every chunk of keys they pass F, C and l of its equations 8 to 10.
//!
//! | operand | meaning | order of dimensions |
//! |---|---|---|
//! | K, V | a chunk of keys, of values, `[lc, d]` bf16 | `[d/8][lc/8][8][8 d]` |
//! | Q | queries `[tq, d]` bf16, the heads that share keys, padded to eights | `[tq/8][d/8][8 query][8 d]` |
//! | at | as in the [kernels of prompts](super::cached) | `[16]` bf16 |
//! | F | exponentials `[tq, lc]` bf16 | `[tq/8][lc/8][8 query][8 key]` |
//! | C | of each slice of eight queries the factors of older numerators, then denominators, f32 | `[tq/8][2][8]` |
//! | state | of each slice maxima, then denominators, f32 | `[tq/8][2][8]` |
//! | Y | numerators `[tq, d]` f32 | `[tq/8][d/8][8 query][8 d]` |
//!
//! Row s of a cache of R rows is the latest key up to the token's own whose position is s modulo R. Keys that do not
//! exist, and those out of the window, are not seen. Rounding points and the order of sums are those of attention by
//! one core, for which a chunk is a tile.

use super::attention::{exponent_scale, keys_as_b};
use super::cached::{AT, DIGITS, position, query_of, softmax, take_at, take_rows};
use super::math::{Exp2, LOWEST, bf16s, bf16s_mut, f32s, f32s_mut, round, widen};
use super::matmul::matmul_shape;
use super::shape::{dim, multiple_of_8, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_kernels::tile::matmul_bf16;
use millrace_npu::Element::{Bf16, F32};

/// Queries of a slice.
const SLICE: usize = 8;

/// Two numbers a query.
fn pairs(tq: u64) -> u64 {
    2 * tq
}

pub(super) fn check_take(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, lc, d] = shape.dims(["tq", "lc", "d"])?;
    multiple_of_8(&["tq", "lc", "d"], &[tq, lc, d])?;
    if tq > lc {
        return Err(format!("tq = {tq} must be at most lc = {lc}"));
    }
    shape.extras(0, 0)?;
    shape.operands(&[("K", Bf16, lc * d), ("Q", Bf16, tq * d)])
}

pub(super) fn check_at(shape: &CallShape<'_>) -> Result<(), String> {
    let [lc, d] = shape.dims(["lc", "d"])?;
    multiple_of_8(&["lc", "d"], &[lc, d])?;
    shape.extras(0, 0)?;
    shape.operands(&[("K", Bf16, lc * d), ("at", Bf16, AT as u64)])
}

pub(super) fn check_init(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq] = shape.dims(["tq"])?;
    multiple_of_8(&["tq"], &[tq])?;
    shape.extras(0, 0)?;
    shape.operands(&[("state", F32, pairs(tq))])
}

pub(super) fn check_scores(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, lc, d] = shape.dims(["tq", "lc", "d"])?;
    multiple_of_8(&["tq", "lc", "d"], &[tq, lc, d])?;
    shape.extras(3, 1)?;
    shape.operands(&[
        ("Q", Bf16, tq * d),
        ("K", Bf16, lc * d),
        ("at", Bf16, AT as u64),
        ("F", Bf16, tq * lc),
        ("C", F32, pairs(tq)),
        ("state", F32, pairs(tq)),
    ])
}

pub(super) fn check_values(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, lc, d] = shape.dims(["tq", "lc", "d"])?;
    multiple_of_8(&["tq", "lc", "d"], &[tq, lc, d])?;
    shape.extras(0, 0)?;
    shape.operands(&[
        ("F", Bf16, tq * lc),
        ("C", F32, pairs(tq)),
        ("V", Bf16, lc * d),
        ("Y", F32, tq * d),
        ("l", F32, tq),
    ])
}

pub(super) fn check_finish(shape: &CallShape<'_>) -> Result<(), String> {
    let [rows, tq, d] = shape.dims(["rows", "tq", "d"])?;
    multiple_of_8(&["tq", "d"], &[tq, d])?;
    if rows > tq {
        return Err(format!("rows = {rows} must be at most tq = {tq}"));
    }
    shape.extras(0, 0)?;
    shape.operands(&[("Y", F32, tq * d), ("l", F32, tq), ("y", Bf16, rows * d)])
}

pub(super) fn work_take(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, d) = (dim(dims, 0), dim(dims, 2));
    work(&[], &[tq, d], &[&[tq, d, 4]])
}

pub(super) fn work_at(_: &[u32], _: &[i64]) -> TileWork {
    work(&[], &[AT as u64], &[&[AT as u64, 4]])
}

pub(super) fn work_init(dims: &[u32], _: &[i64]) -> TileWork {
    let tq = dim(dims, 0);
    work(&[], &[pairs(tq)], &[&[pairs(tq), 4]])
}

pub(super) fn work_scores(dims: &[u32], _: &[i64]) -> TileWork {
    let [tq, lc, d] = [0, 1, 2].map(|i| dim(dims, i));
    work(
        &[tq, lc, d],
        &[tq, lc],
        &[&[tq, d, 2], &[lc, d, 2], &[tq, lc, 4]],
    )
}

pub(super) fn work_values(dims: &[u32], _: &[i64]) -> TileWork {
    let [tq, lc, d] = [0, 1, 2].map(|i| dim(dims, i));
    work(&[tq, lc, d], &[], &[&[lc, d, 2], &[tq, lc, 2], &[tq, d, 8]])
}

pub(super) fn work_finish(dims: &[u32], _: &[i64]) -> TileWork {
    let (rows, d) = (dim(dims, 0), dim(dims, 2));
    work(&[], &[rows, d], &[&[rows, d, 6], &[rows, 4]])
}

/// The first queries of a chunk that holds them in the places of keys.
pub(super) fn take(call: &mut TileCall<'_>) {
    let [tq, lc, d] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let block = bf16s(call.inputs[0]);
    take_rows(block, bf16s_mut(call.outputs[0]), [lc, d], 0, tq);
}

/// The position, out of a chunk that begins with it.
pub(super) fn at(call: &mut TileCall<'_>) {
    let [lc, d] = [0, 1].map(|i| call.dims[i] as usize);
    let block = bf16s(call.inputs[0]);
    take_at(block, bf16s_mut(call.outputs[0]), [lc, d]);
}

/// No key seen yet.
pub(super) fn init(call: &mut TileCall<'_>) {
    for slice in f32s_mut(call.outputs[0]).chunks_exact_mut(2 * SLICE) {
        let (max, sum) = slice.split_at_mut(SLICE);
        max.fill(widen(LOWEST));
        sum.fill(0.0);
    }
}

/// Equations 6 to 10 for a chunk: scores, maxima, exponentials, correction, denominators.
pub(super) fn scores(call: &mut TileCall<'_>) {
    let [lc, d] = [1, 2].map(|i| call.dims[i]);
    let (exp2, scale) = (Exp2::new(), exponent_scale(call.constants));
    let [first_row, window, n_rows] = [0, 1, 2].map(|i| call.scalars[i]);
    let token = bf16s(call.inputs[2]).chunks_exact(DIGITS).next();
    let token = token.map_or(0, position);
    let sees = |key: usize| {
        let row = first_row.saturating_add(key as i64);
        let back = token.saturating_sub(row).rem_euclid(n_rows.max(1));
        back <= token && (window <= 0 || back < window)
    };
    let q = bf16s(call.inputs[0]);
    let by_key = keys_as_b(bf16s(call.inputs[1]), lc as usize, d as usize);
    let [f, c, state] = &mut call.outputs[..] else {
        return;
    };
    let slices = (q.chunks_exact(SLICE * d as usize))
        .zip(bf16s_mut(f).chunks_exact_mut(SLICE * lc as usize))
        .zip(f32s_mut(c).chunks_exact_mut(2 * SLICE))
        .zip(f32s_mut(state).chunks_exact_mut(2 * SLICE));
    let mut scores = vec![0.0; SLICE * lc as usize];
    for (((q, f), c), state) in slices {
        scores.fill(0.0);
        let shape = matmul_shape(SLICE as u32, lc, d);
        matmul_bf16(call.cpu, shape, q, &by_key, &mut scores);
        for (i, (f, &score)) in f.iter_mut().zip(&scores).enumerate() {
            *f = match sees(i / 64 * 8 + i % 8) {
                true => round(score),
                false => bf16::NEG_INFINITY,
            };
        }
        let (max, sum) = state.split_at_mut(SLICE);
        let rescale = softmax(f, max, sum, &exp2, scale);
        c[..SLICE].copy_from_slice(&rescale);
        c[SLICE..].copy_from_slice(sum);
    }
}

/// Equation 11 for a chunk: numerators.
pub(super) fn values(call: &mut TileCall<'_>) {
    let [lc, d] = [1, 2].map(|i| call.dims[i]);
    let (f, c, v) = (
        bf16s(call.inputs[0]),
        f32s(call.inputs[1]),
        bf16s(call.inputs[2]),
    );
    let [y, l] = &mut call.outputs[..] else {
        return;
    };
    let slices = (f.chunks_exact(SLICE * lc as usize))
        .zip(c.chunks_exact(2 * SLICE))
        .zip(f32s_mut(y).chunks_exact_mut(SLICE * d as usize))
        .zip(f32s_mut(l).chunks_exact_mut(SLICE));
    for (((f, c), y), l) in slices {
        let (rescale, sum) = c.split_at(SLICE);
        for (i, y) in y.iter_mut().enumerate() {
            *y *= rescale[query_of(i)];
        }
        matmul_bf16(call.cpu, matmul_shape(SLICE as u32, d, lc), f, v, y);
        l.copy_from_slice(sum);
    }
}

/// Equation 12: numerators over denominators.
pub(super) fn finish(call: &mut TileCall<'_>) {
    let d = call.dims[2] as usize;
    let (numerators, l) = (f32s(call.inputs[0]), f32s(call.inputs[1]));
    for (row, y) in bf16s_mut(call.outputs[0]).chunks_exact_mut(d).enumerate() {
        let slice = &numerators[row / SLICE * SLICE * d..][..SLICE * d];
        let inverse = 1.0 / l[row];
        for (i, y) in y.iter_mut().enumerate() {
            *y = round(slice[i / 8 * 64 + row % SLICE * 8 + i % 8] * inverse);
        }
    }
}
