//! One token of a gated delta net: a few columns of a head's state fade, are corrected at the key and read at the query.
//!
//! | operand | meaning | order of dimensions |
//! |---|---|---|
//! | row | of a head: query, key, values, then decay and strength of the correction; f32 | `[k]`, `[k]`, `[v]`, `[16]` |
//! | state | columns of the head's matrix by 16, f32 | `[blocks][k][16]` |
//! | y | result of the query, bf16 | `[blocks][16]` |
//!
//! A vector of the core is 16 columns, so that no sum crosses lanes: key and query walk down the rows, and each lane adds in their
//! order. Products and sums are f32, each rounded once; the vector unit emulates them by products of bf16 parts (UG1603,
//! accuracy `safe`), which is taken to round as IEEE does.

use super::math::{bf16s_mut, f32s, f32s_mut, round};
use super::shape::{dim, work};
use super::{CallShape, TileCall, TileWork};
use millrace_npu::Element::{Bf16, F32};

/// Columns of a vector.
const LANES: usize = 16;

pub(super) fn check_step(shape: &CallShape<'_>) -> Result<(), String> {
    let [blocks, k, v] = shape.dims(["blocks", "k", "v"])?;
    let lanes = LANES as u64;
    if !v.is_multiple_of(lanes) || blocks * lanes > v {
        return Err(format!(
            "v = {v} must be a multiple of {lanes} and at least {blocks} blocks of as many"
        ));
    }
    shape.extras(1, 0)?;
    shape.operands(&[
        ("row", F32, 2 * k + v + lanes),
        ("state", F32, blocks * k * lanes),
        ("after", F32, blocks * k * lanes),
        ("y", Bf16, blocks * lanes),
    ])
}

pub(super) fn work_step(dims: &[u32], _: &[i64]) -> TileWork {
    let (blocks, k, v) = (dim(dims, 0), dim(dims, 1), dim(dims, 2));
    let lanes = LANES as u64;
    work(
        &[],
        &[blocks, k, lanes],
        &[
            &[blocks, k, lanes, 8],
            &[k, 8],
            &[v, 4],
            &[blocks, lanes, 2],
        ],
    )
}

/// The scalar is the number of the first block among those of the head.
pub(super) fn step(call: &mut TileCall<'_>) {
    let [_, k_dim, v_dim] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let (row, state) = (f32s(call.inputs[0]), f32s(call.inputs[1]));
    let (q, rest) = row.split_at(k_dim);
    let (k, rest) = rest.split_at(k_dim);
    let (v, gates) = rest.split_at(v_dim);
    let (decay, strength) = (gates[0], gates[1]);
    let first = usize::try_from(call.scalars[0]).unwrap_or(0) * LANES;
    let [after, y] = &mut call.outputs[..] else {
        return;
    };
    let blocks = (state.chunks_exact(k_dim * LANES))
        .zip(f32s_mut(after).chunks_exact_mut(k_dim * LANES))
        .zip(bf16s_mut(y).chunks_exact_mut(LANES));
    for (block, ((state, after), y)) in blocks.enumerate() {
        let mut seen = [0.0_f32; LANES];
        for (state, k) in state.chunks_exact(LANES).zip(k) {
            for (seen, state) in seen.iter_mut().zip(state) {
                *seen += state * k;
            }
        }
        // A program that counts beyond the head's blocks reads no values.
        let v = v.get(first + block * LANES..).unwrap_or_default();
        let mut correction = [f32::NAN; LANES];
        for ((correction, seen), v) in correction.iter_mut().zip(seen).zip(v) {
            *correction = strength * (v - decay * seen);
        }
        let mut sums = [0.0_f32; LANES];
        let rows = state.chunks_exact(LANES).zip(after.chunks_exact_mut(LANES));
        for (((state, after), k), q) in rows.zip(k).zip(q) {
            let lanes = state.iter().zip(correction).zip(after).zip(&mut sums);
            for (((state, correction), after), sum) in lanes {
                *after = decay * state + k * correction;
                *sum += *after * q;
            }
        }
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = round(sum);
        }
    }
}
