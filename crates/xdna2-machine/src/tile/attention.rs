//! The parts of flash attention, for one tile of `tq` queries against one of `tk` keys.
//!
//! | operand | meaning | order of dimensions |
//! |---|---|---|
//! | Q | `[tq, d]`, as A of a product | `[d/8][tq/8][8 query][8 d]` |
//! | K | `[tk, d]`, blocked alike | `[d/8][tk/8][8 key][8 d]` |
//! | S, P | `[tq, tk]`, as C and as A | `[tk/8][tq/8][8 query][8 key]` |
//! | V | `[tk, dv]`, as B | `[dv/8][tk/8][8 key][8 dv]` |
//! | state | O `[tq, dv]` as C, then maximum `[tq]`, then sum `[tq]`, all bf16, in one buffer | `[dv/8][tq/8][8 query][8 dv]`, `[tq]`, `[tq]` |
//!
//! Every kind is reached from row-major DDR by runs of eight elements, so DMA can do it. A cascade
//! passes the state on as one block.
//!
//! Rounding points (those of MLIR-AIR's `kernel_fusion_based` kernels, read in 2026): S, P, maxima,
//! sums and O are bf16; products sum in f32; the scale enters with log₂e inside the exponential,
//! as one bf16 factor. Sums over keys are f32 in eight lanes (key mod 8), added in halves.

use super::math::{Exp2, LOWEST, add, bf16s, bf16s_mut, mul, round, widen};
use super::matmul::matmul_shape;
use super::shape::{dim, multiple_of_8, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_kernels::tile::matmul_bf16;
use millrace_npu::Element::Bf16;

/// Elements of a state.
fn state_elements(tq: u64, dv: u64) -> u64 {
    tq * dv + 2 * tq
}

pub(super) fn check_take(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, total, d] = shape.dims(["tq", "total", "d"])?;
    multiple_of_8(&["tq", "total", "d"], &[tq, total, d])?;
    if tq > total {
        return Err(format!("tq = {tq} must be at most total = {total}"));
    }
    shape.extras(1, 0)?;
    shape.operands(&[("block", Bf16, total * d), ("Q", Bf16, tq * d)])
}

pub(super) fn check_init(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, dv] = shape.dims(["tq", "dv"])?;
    multiple_of_8(&["tq", "dv"], &[tq, dv])?;
    shape.extras(0, 0)?;
    shape.operands(&[("state", Bf16, state_elements(tq, dv))])
}

pub(super) fn check_scores(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, d] = shape.dims(["tq", "tk", "d"])?;
    multiple_of_8(&["tq", "tk", "d"], &[tq, tk, d])?;
    // The first query, the first key, and with local attention the window.
    shape.extras(if shape.n_scalars == 3 { 3 } else { 2 }, 0)?;
    shape.operands(&[
        ("Q", Bf16, tq * d),
        ("K", Bf16, tk * d),
        ("S", Bf16, tq * tk),
    ])
}

pub(super) fn check_softmax(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, dv] = shape.dims(["tq", "tk", "dv"])?;
    multiple_of_8(&["tq", "tk", "dv"], &[tq, tk, dv])?;
    shape.extras(0, 1)?;
    shape.operands(&[
        ("S", Bf16, tq * tk),
        ("state", Bf16, state_elements(tq, dv)),
        ("r", Bf16, tq),
    ])
}

pub(super) fn check_values(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, dv] = shape.dims(["tq", "tk", "dv"])?;
    multiple_of_8(&["tq", "tk", "dv"], &[tq, tk, dv])?;
    shape.extras(0, 0)?;
    shape.operands(&[
        ("P", Bf16, tq * tk),
        ("V", Bf16, tk * dv),
        ("r", Bf16, tq),
        ("state", Bf16, state_elements(tq, dv)),
    ])
}

pub(super) fn check_merge(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, dv] = shape.dims(["tq", "dv"])?;
    multiple_of_8(&["tq", "dv"], &[tq, dv])?;
    shape.extras(0, 1)?;
    let n = state_elements(tq, dv);
    shape.operands(&[("a", Bf16, n), ("b", Bf16, n), ("c", Bf16, n)])
}

pub(super) fn check_join(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, dv] = shape.dims(["tq", "dv"])?;
    multiple_of_8(&["tq", "dv"], &[tq, dv])?;
    shape.extras(0, 1)?;
    let n = state_elements(tq, dv);
    shape.operands(&[("a", Bf16, n), ("b", Bf16, n)])
}

pub(super) fn check_finish(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, dv] = shape.dims(["tq", "dv"])?;
    multiple_of_8(&["tq", "dv"], &[tq, dv])?;
    shape.extras(0, 0)?;
    shape.operands(&[
        ("state", Bf16, state_elements(tq, dv)),
        ("y", Bf16, tq * dv),
    ])
}

pub(super) fn work_take(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, d) = (dim(dims, 0), dim(dims, 2));
    work(&[], &[tq, d], &[&[tq, d, 4]])
}

pub(super) fn work_init(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, dv) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[tq, dv], &[&[tq, dv, 2], &[tq, 4]])
}

pub(super) fn work_scores(dims: &[u32], _: &[i64]) -> TileWork {
    let [tq, tk, d] = [0, 1, 2].map(|i| dim(dims, i));
    work(&[tq, tk, d], &[], &[&[tq, d, 2], &[tk, d, 2], &[tq, tk, 2]])
}

pub(super) fn work_softmax(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, tk) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[tq, tk], &[&[tq, tk, 4], &[tq, 10]])
}

pub(super) fn work_values(dims: &[u32], _: &[i64]) -> TileWork {
    let [tq, tk, dv] = [0, 1, 2].map(|i| dim(dims, i));
    work(
        &[tq, tk, dv],
        &[tq, dv],
        &[&[tq, tk, 2], &[tk, dv, 2], &[tq, dv, 4], &[tq, 2]],
    )
}

pub(super) fn work_merge(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, dv) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[tq, dv], &[&[tq, dv, 6], &[tq, 12]])
}

pub(super) fn work_finish(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, dv) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[tq, dv], &[&[tq, dv, 4], &[tq, 2]])
}

/// O, maximum and sum of a state.
fn split(state: &[bf16], tq: usize) -> (&[bf16], &[bf16], &[bf16]) {
    let (o, rest) = state.split_at(state.len() - 2 * tq);
    let (max, sum) = rest.split_at(tq);
    (o, max, sum)
}

fn split_mut(state: &mut [bf16], tq: usize) -> (&mut [bf16], &mut [bf16], &mut [bf16]) {
    let (o, rest) = state.split_at_mut(state.len() - 2 * tq);
    let (max, sum) = rest.split_at_mut(tq);
    (o, max, sum)
}

/// Query of element `i` of a blocked `[tq, _]` tile.
fn query_of(i: usize, tq: usize) -> usize {
    i / 8 % tq
}

/// log₂e times the scale, as the kernels compile it in.
pub(super) fn exponent_scale(constants: &[u32]) -> f32 {
    let scale = f64::from(f32::from_bits(constants[0]));
    widen(round((scale * std::f64::consts::LOG2_E) as f32))
}

/// `max(a − b, lowest)` in bf16: the difference of −∞ and a maximum stays a number.
pub(super) fn difference(a: bf16, b: bf16) -> bf16 {
    let difference = round(widen(a) - widen(b));
    if difference < LOWEST {
        LOWEST
    } else {
        difference
    }
}

/// The first query is drawn into range and to whole vectors, as addresses are on the hardware.
pub(super) fn take(call: &mut TileCall<'_>) {
    let (tq, total) = (call.dims[0] as usize, call.dims[1] as usize);
    let first = usize::try_from(call.scalars[0]).unwrap_or(0);
    let first = first.min(total - tq) / 8 * 8;
    let blocks = bf16s(call.inputs[0]).chunks_exact(8 * total);
    let parts = bf16s_mut(call.outputs[0]).chunks_exact_mut(8 * tq);
    for (part, block) in parts.zip(blocks) {
        part.copy_from_slice(&block[8 * first..][..8 * tq]);
    }
}

pub(super) fn init(call: &mut TileCall<'_>) {
    let tq = call.dims[0] as usize;
    let (o, max, sum) = split_mut(bf16s_mut(call.outputs[0]), tq);
    o.fill(bf16::ZERO);
    max.fill(LOWEST);
    sum.fill(bf16::ZERO);
}

/// Without a mask, pass a `q0` beyond every key.
pub(super) fn scores(call: &mut TileCall<'_>) {
    let sums = vec![0.0; bf16s(call.outputs[0]).len()];
    add_scores(call, sums);
}

/// The same, added to the present S: another part of the head dimension.
pub(super) fn scores_add(call: &mut TileCall<'_>) {
    let sums = bf16s(call.outputs[0]).iter().map(|&s| widen(s)).collect();
    add_scores(call, sums);
}

fn add_scores(call: &mut TileCall<'_>, mut sums: Vec<f32>) {
    let (tq, tk, d) = (call.dims[0], call.dims[1], call.dims[2]);
    let (q, k) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let by_key = keys_as_b(k, tk as usize, d as usize);
    let shape = matmul_shape(tq, tk, d);
    matmul_bf16(call.cpu, shape, q, &by_key, &mut sums);
    mask_and_round(call, &sums);
}

/// S from the sums of products. With a window a query sees that many keys, its own the last.
pub(super) fn mask_and_round(call: &mut TileCall<'_>, sums: &[f32]) {
    let (q0, k0) = (call.scalars[0], call.scalars[1]);
    let window = call.scalars.get(2).copied().unwrap_or(i64::MAX);
    let tq = call.dims[0] as usize;
    let s = bf16s_mut(call.outputs[0]);
    for (i, (s, &sum)) in s.iter_mut().zip(sums).enumerate() {
        let query = q0.saturating_add(query_of(i, tq) as i64);
        let key = k0.saturating_add((i / 8 / tq * 8 + i % 8) as i64);
        *s = if key > query || query.saturating_sub(key) >= window {
            bf16::NEG_INFINITY
        } else {
            round(sum)
        };
    }
}

/// K `[d/8][tk/8][8 key][8 d]` as B `[tk/8][d/8][8 d][8 key]`: the transposition inside a block is
/// the vector unit's, because DMA moves no less than four bytes.
pub(super) fn keys_as_b(k: &[bf16], tk: usize, d: usize) -> Vec<bf16> {
    let mut b = vec![bf16::ZERO; k.len()];
    let (key_blocks, d_blocks) = (tk / 8, d / 8);
    for (at, block) in k.chunks_exact(64).enumerate() {
        let (d_block, key_block) = (at / key_blocks, at % key_blocks);
        let to = &mut b[(key_block * d_blocks + d_block) * 64..][..64];
        for key in 0..8 {
            for i in 0..8 {
                to[i * 8 + key] = block[key * 8 + i];
            }
        }
    }
    b
}

pub(super) fn softmax(call: &mut TileCall<'_>) {
    let (tq, tk) = (call.dims[0] as usize, call.dims[1] as usize);
    let (exp2, scale) = (Exp2::new(), exponent_scale(call.constants));
    let [s, state, r] = &mut call.outputs[..] else {
        return;
    };
    let s = bf16s_mut(s);
    let (_, max, sum) = split_mut(bf16s_mut(state), tq);
    for (query, r) in bf16s_mut(r).iter_mut().enumerate() {
        let newest =
            row(s, query, tq, tk).fold(max[query], |max, &s| if s > max { s } else { max });
        *r = exp2.of(scale * widen(difference(max[query], newest)));
        max[query] = newest;
    }
    for (i, s) in s.iter_mut().enumerate() {
        *s = exp2.of(scale * widen(difference(*s, max[query_of(i, tq)])));
    }
    for (query, &r) in bf16s(r).iter().enumerate() {
        let mut lanes = [0.0_f32; 8];
        for (i, &p) in row(s, query, tq, tk).enumerate() {
            lanes[i % 8] += widen(p);
        }
        let newer = round(halves(&mut lanes));
        sum[query] = round(widen(sum[query]) * widen(r) + widen(newer));
    }
}

/// One query's elements of a blocked `[tq, tk]` tile, in order of keys.
fn row(s: &[bf16], query: usize, tq: usize, tk: usize) -> impl Iterator<Item = &bf16> {
    (0..tk / 8).flat_map(move |block| &s[(block * tq + query) * 8..][..8])
}

/// Lanes added in halves: 4 apart, then 2, then 1.
pub(super) fn halves(lanes: &mut [f32; 8]) -> f32 {
    for width in [4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

pub(super) fn values(call: &mut TileCall<'_>) {
    let (tq, tk, dv) = (call.dims[0], call.dims[1], call.dims[2]);
    let cpu = call.cpu;
    add_values(call, |p, v, sums| {
        matmul_bf16(cpu, matmul_shape(tq, dv, tk), p, v, sums);
    });
}

/// O = O·r + P·V with that product.
pub(super) fn add_values(
    call: &mut TileCall<'_>,
    multiply: impl FnOnce(&[bf16], &[bf16], &mut [f32]),
) {
    let tq = call.dims[0];
    let [p, v, r] = [0, 1, 2].map(|i| bf16s(call.inputs[i]));
    let (o, _, _) = split_mut(bf16s_mut(call.outputs[0]), tq as usize);
    let rescaled = |(i, &o): (usize, &bf16)| widen(mul(o, r[query_of(i, tq as usize)]));
    let mut sums: Vec<f32> = o.iter().enumerate().map(rescaled).collect();
    multiply(p, v, &mut sums);
    for (o, &sum) in o.iter_mut().zip(&sums) {
        *o = round(sum);
    }
}

pub(super) fn merge(call: &mut TileCall<'_>) {
    let (a, b) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    merge_states(call.dims, call.constants, a, b, bf16s_mut(call.outputs[0]));
}

/// The same with the sum in the place of `b`.
pub(super) fn join(call: &mut TileCall<'_>) {
    let c = bf16s_mut(call.outputs[0]);
    let b = c.to_vec();
    merge_states(call.dims, call.constants, bf16s(call.inputs[0]), &b, c);
}

fn merge_states(dims: &[u32], constants: &[u32], a: &[bf16], b: &[bf16], c: &mut [bf16]) {
    let tq = dims[0] as usize;
    let (exp2, scale) = (Exp2::new(), exponent_scale(constants));
    let (a_o, a_max, a_sum) = split(a, tq);
    let (b_o, b_max, b_sum) = split(b, tq);
    let (o, max, sum) = split_mut(c, tq);
    let mut factors = vec![(bf16::ZERO, bf16::ZERO); tq];
    for (query, factors) in factors.iter_mut().enumerate() {
        let (a, b) = (a_max[query], b_max[query]);
        max[query] = if b > a { b } else { a };
        let factor = |older| exp2.of(scale * widen(difference(older, max[query])));
        *factors = (factor(a), factor(b));
        let newer = mul(b_sum[query], factors.1);
        sum[query] = round(widen(a_sum[query]) * widen(factors.0) + widen(newer));
    }
    for (i, o) in o.iter_mut().enumerate() {
        let (a, b) = factors[query_of(i, tq)];
        *o = add(mul(a_o[i], a), mul(b_o[i], b));
    }
}

pub(super) fn finish(call: &mut TileCall<'_>) {
    let tq = call.dims[0] as usize;
    let (o, _, sum) = split(bf16s(call.inputs[0]), tq);
    let inverses: Vec<bf16> = sum.iter().map(|&sum| round(1.0 / widen(sum))).collect();
    for (i, (y, &o)) in bf16s_mut(call.outputs[0]).iter_mut().zip(o).enumerate() {
        // Onto a zero accumulator, which makes zeros positive.
        *y = round(widen(o) * widen(inverses[query_of(i, tq)]) + 0.0);
    }
}
