//! The parts of attention over a cache: a few queries against any number of keys, whose first
//! position is known when the program runs.
//!
//! Queries come in *slices* of eight, the rows of the matrix unit. A state is f32: over the
//! thousands of tiles of a long cache, sums in bf16 would stop growing.
//!
//! | operand | meaning | order of dimensions |
//! |---|---|---|
//! | block | a tile of keys and one of values, `[2, tk, d]` bf16 | `[2][d/8][tk/8][8][8 d]` |
//! | Q | `[tq, d]` bf16 | `[tq/8][d/8][8 query][8 d]` |
//! | P | `[tq, tk]` bf16 | `[tq/8][tk/8][8 query][8 key]` |
//! | at | position of the first query, number of the first key that counts, first position of an image and the one behind it (0 and 0 without), in base 256, lowest digit first | `[4][4]` bf16 |
//! | state | of each slice O `[8, d]`, then maximum `[8]`, then sum `[8]`, f32 | `[tq/8]` × (`[d/8][8][8]`, `[8]`, `[8]`) |
//!
//! Row `r` of Q belongs to token `q0 + r / group`: the heads that share keys are neighbours. Rounding
//! points are those of flash attention for scores and probabilities (bf16); maxima are bf16 values,
//! sums and outputs stay f32.

use super::attention::{difference, exponent_scale, halves, keys_as_b};
use super::math::{Exp2, LOWEST, bf16s, bf16s_mut, f32s, f32s_mut, round, widen};
use super::matmul::matmul_shape;
use super::shape::{dim, multiple_of_8, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_kernels::tile::matmul_bf16;
use millrace_npu::Element::{Bf16, F32};

/// Queries of a slice.
const SLICE: usize = 8;

/// Digits of a position.
pub(super) const DIGITS: usize = 4;

/// Elements of `at`: a position, a key, and an image's two ends.
pub(super) const AT: usize = 4 * DIGITS;

/// Elements of a slice's state.
fn slice_elements(d: u64) -> u64 {
    SLICE as u64 * (d + 2)
}

fn state_elements(tq: u64, d: u64) -> u64 {
    tq / SLICE as u64 * slice_elements(d)
}

pub(super) fn check_take(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, d] = shape.dims(["tq", "tk", "d"])?;
    multiple_of_8(&["tq", "tk", "d"], &[tq, tk, d])?;
    shape.extras(1, 0)?;
    shape.operands(&[
        ("block", Bf16, 2 * tk * d),
        ("Q", Bf16, tq * d),
        ("at", Bf16, AT as u64),
    ])
}

pub(super) fn check_take_apart(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, d] = shape.dims(["tq", "tk", "d"])?;
    multiple_of_8(&["tq", "tk", "d"], &[tq, tk, d])?;
    shape.extras(1, 0)?;
    shape.operands(&[
        ("K", Bf16, tk * d),
        ("V", Bf16, tk * d),
        ("Q", Bf16, tq * d),
        ("at", Bf16, AT as u64),
    ])
}

pub(super) fn check_init(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, d] = shape.dims(["tq", "d"])?;
    multiple_of_8(&["tq", "d"], &[tq, d])?;
    shape.extras(0, 0)?;
    shape.operands(&[("state", F32, state_elements(tq, d))])
}

pub(super) fn check_attend(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, d, _, _] = shape.dims(["tq", "tk", "d", "group", "span"])?;
    multiple_of_8(&["tq", "tk", "d"], &[tq, tk, d])?;
    shape.extras(4, 1)?;
    shape.operands(&[
        ("Q", Bf16, tq * d),
        ("block", Bf16, 2 * tk * d),
        ("at", Bf16, AT as u64),
        ("P", Bf16, tq * tk),
        ("state", F32, state_elements(tq, d)),
    ])
}

pub(super) fn check_attend_apart(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, tk, d, _, _] = shape.dims(["tq", "tk", "d", "group", "span"])?;
    multiple_of_8(&["tq", "tk", "d"], &[tq, tk, d])?;
    shape.extras(4, 1)?;
    shape.operands(&[
        ("Q", Bf16, tq * d),
        ("K", Bf16, tk * d),
        ("V", Bf16, tk * d),
        ("at", Bf16, AT as u64),
        ("P", Bf16, tq * tk),
        ("state", F32, state_elements(tq, d)),
    ])
}

pub(super) fn check_send(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, d] = shape.dims(["tq", "d"])?;
    multiple_of_8(&["tq", "d"], &[tq, d])?;
    shape.extras(1, 0)?;
    shape.operands(&[
        ("state", F32, state_elements(tq, d)),
        ("slice", F32, slice_elements(d)),
    ])
}

pub(super) fn check_join(shape: &CallShape<'_>) -> Result<(), String> {
    let [tq, d] = shape.dims(["tq", "d"])?;
    multiple_of_8(&["tq", "d"], &[tq, d])?;
    shape.extras(1, 1)?;
    shape.operands(&[
        ("slice", F32, slice_elements(d)),
        ("state", F32, state_elements(tq, d)),
    ])
}

pub(super) fn check_finish(shape: &CallShape<'_>) -> Result<(), String> {
    let [rows, tq, d] = shape.dims(["rows", "tq", "d"])?;
    multiple_of_8(&["tq", "d"], &[tq, d])?;
    if rows > tq {
        return Err(format!("rows = {rows} must be at most tq = {tq}"));
    }
    // The first row, where it is not the state's.
    shape.extras(if shape.n_scalars == 1 { 1 } else { 0 }, 0)?;
    shape.operands(&[("state", F32, state_elements(tq, d)), ("y", Bf16, rows * d)])
}

pub(super) fn work_take(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, d) = (dim(dims, 0), dim(dims, 2));
    work(&[], &[tq, d], &[&[tq, d, 4]])
}

pub(super) fn work_init(dims: &[u32], _: &[i64]) -> TileWork {
    let (tq, d) = (dim(dims, 0), dim(dims, 1));
    work(&[], &[tq, d], &[&[tq, d, 4], &[tq, 8]])
}

pub(super) fn work_attend(dims: &[u32], _: &[i64]) -> TileWork {
    let [tq, tk, d] = [0, 1, 2].map(|i| dim(dims, i));
    work(
        &[2, tq, tk, d],
        &[tq, tk],
        &[&[tq, d, 2], &[tk, d, 4], &[tq, tk, 4], &[tq, d, 8]],
    )
}

/// With rescaling O, which the fitted rates of wide tiles do not show: few keys against a wide head bring as many
/// multiplications of an f32 by its factor as products. One of a vector's 16 takes as long as eight
/// multiply-accumulates at the rate of products (133 a cycle).
pub(super) fn work_attend_chunk(dims: &[u32], scalars: &[i64]) -> TileWork {
    let rescaled = work(&[8, dim(dims, 0), dim(dims, 2)], &[], &[]).macs;
    let attend = work_attend(dims, scalars);
    TileWork {
        macs: attend.macs.saturating_add(rescaled),
        ..attend
    }
}

pub(super) fn work_slice(dims: &[u32], _: &[i64]) -> TileWork {
    let d = dim(dims, 1);
    work(&[], &[SLICE as u64, d], &[&[SLICE as u64, d, 12]])
}

pub(super) fn work_finish(dims: &[u32], _: &[i64]) -> TileWork {
    let (rows, d) = (dim(dims, 0), dim(dims, 2));
    work(&[], &[rows, d], &[&[rows, d, 6], &[rows, 4]])
}

/// O, maximum and sum of a slice.
fn split(slice: &[f32]) -> (&[f32], &[f32], &[f32]) {
    let (o, rest) = slice.split_at(slice.len() - 2 * SLICE);
    let (max, sum) = rest.split_at(SLICE);
    (o, max, sum)
}

fn split_mut(slice: &mut [f32]) -> (&mut [f32], &mut [f32], &mut [f32]) {
    let (o, rest) = slice.split_at_mut(slice.len() - 2 * SLICE);
    let (max, sum) = rest.split_at_mut(SLICE);
    (o, max, sum)
}

/// Query, within its slice, of element `i` of O or P.
pub(super) fn query_of(i: usize) -> usize {
    i / 8 % SLICE
}

/// Takes queries from a block of the stream's size that holds queries in the place of keys and the position in the
/// place of values. The scalar, clamped to the range, is the first query that is taken.
pub(super) fn take(call: &mut TileCall<'_>) {
    let n_keys = (call.dims[1] * call.dims[2]) as usize;
    let (queries, at) = bf16s(call.inputs[0]).split_at(n_keys);
    take_from(call, queries, at);
}

/// The same with a block of keys and one of values.
pub(super) fn take_apart(call: &mut TileCall<'_>) {
    let (queries, at) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    take_from(call, queries, at);
}

fn take_from(call: &mut TileCall<'_>, queries: &[bf16], values: &[bf16]) {
    let [tq, tk, d] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let [q, at] = &mut call.outputs[..] else {
        return;
    };
    let n = tk.min(tq);
    let first = usize::try_from(call.scalars[0]).unwrap_or(0);
    take_rows(queries, bf16s_mut(q), [tk, d], first.min(tq - n), n);
    take_at(values, bf16s_mut(at), [tk, d]);
}

/// `n` rows of a block `[d/8][tk/8][8][8]` as queries from `first` on, in whole slices.
pub(super) fn take_rows(
    block: &[bf16],
    q: &mut [bf16],
    [tk, d]: [usize; 2],
    first: usize,
    n: usize,
) {
    for slice in 0..n / SLICE {
        for d_block in 0..d / 8 {
            let from = (d_block * (tk / SLICE) + slice) * 64;
            let to = ((first / SLICE + slice) * (d / 8) + d_block) * 64;
            q[to..to + 64].copy_from_slice(&block[from..from + 64]);
        }
    }
}

/// The first elements of such a block's first row: eight an 8 × 8 block.
pub(super) fn take_at(block: &[bf16], at: &mut [bf16], [tk, d]: [usize; 2]) {
    for (i, at) in at.chunks_exact_mut(8).enumerate() {
        match block.get(i * tk * 8..).filter(|_| i < d / 8) {
            Some(from) => at.copy_from_slice(&from[..at.len()]),
            None => at.fill(bf16::ZERO),
        }
    }
}

pub(super) fn init(call: &mut TileCall<'_>) {
    let d = call.dims[1] as usize;
    for slice in f32s_mut(call.outputs[0]).chunks_exact_mut(SLICE * (d + 2)) {
        let (o, max, sum) = split_mut(slice);
        o.fill(0.0);
        max.fill(widen(LOWEST));
        sum.fill(0.0);
    }
}

/// The position that digits spell.
pub(super) fn position(at: &[bf16]) -> i64 {
    let digits = at.iter().rev();
    // Invalid digits, as in unwritten memory, give some position.
    digits.fold(0_i64, |position, digit| {
        position
            .wrapping_mul(256)
            .wrapping_add(widen(*digit) as i64)
    })
}

/// The keys that each row sees.
struct Mask {
    /// Position of the tile's first key.
    key: i64,
    /// Position of the tile's first token.
    token: i64,
    group: usize,
    /// Keys that a query sees at most; 0 for all.
    window: i64,
    /// The first key that counts: earlier ones are not rows of the cache.
    oldest: i64,
    /// Positions that see each other, the last excluded.
    image: [i64; 2],
}

impl Mask {
    /// The mask from the position, which is that input.
    fn of(call: &TileCall<'_>, at: usize) -> Mask {
        let [k0, part, q0, window] = [0, 1, 2, 3].map(|i| call.scalars[i]);
        let span = i64::from(call.dims[4]);
        let mut at = bf16s(call.inputs[at]).chunks_exact(DIGITS).map(position);
        let [first, oldest, start, end] = std::array::from_fn(|_| at.next().unwrap_or(0));
        Mask {
            key: k0.saturating_add(part.rem_euclid(span)),
            token: first.saturating_add(q0),
            group: call.dims[3] as usize,
            window,
            oldest,
            image: [start, end],
        }
    }

    fn sees(&self, row: usize, key: usize) -> bool {
        let query = self.token.saturating_add((row / self.group) as i64);
        let key = self.key.saturating_add(key as i64);
        let [start, end] = self.image;
        let seen = |at: i64| at >= start && at < end;
        let there = (key <= query || seen(key) && seen(query)) && key >= self.oldest;
        there && (self.window <= 0 || key > query.saturating_sub(self.window))
    }
}

pub(super) fn attend(call: &mut TileCall<'_>) {
    let n_keys = (call.dims[1] * call.dims[2]) as usize;
    let (keys, values) = bf16s(call.inputs[1]).split_at(n_keys);
    attend_to(call, keys, values, &Mask::of(call, 2));
}

/// The same with keys and values in separate blocks.
pub(super) fn attend_apart(call: &mut TileCall<'_>) {
    let (keys, values) = (bf16s(call.inputs[1]), bf16s(call.inputs[2]));
    attend_to(call, keys, values, &Mask::of(call, 3));
}

fn attend_to(call: &mut TileCall<'_>, keys: &[bf16], values: &[bf16], mask: &Mask) {
    let [tk, d] = [1, 2].map(|i| call.dims[i]);
    let (exp2, scale) = (Exp2::new(), exponent_scale(call.constants));
    let q = bf16s(call.inputs[0]);
    let by_key = keys_as_b(keys, tk as usize, d as usize);
    let [p, state] = &mut call.outputs[..] else {
        return;
    };
    let (p, state) = (bf16s_mut(p), f32s_mut(state));
    let slices = (q.chunks_exact(SLICE * d as usize))
        .zip(p.chunks_exact_mut(SLICE * tk as usize))
        .zip(state.chunks_exact_mut(SLICE * (d as usize + 2)));
    let mut scores = vec![0.0; SLICE * tk as usize];
    for (slice, ((q, p), state)) in slices.enumerate() {
        scores.fill(0.0);
        let shape = matmul_shape(SLICE as u32, tk, d);
        matmul_bf16(call.cpu, shape, q, &by_key, &mut scores);
        for (i, (p, &score)) in p.iter_mut().zip(&scores).enumerate() {
            let (row, key) = (slice * SLICE + query_of(i), i / 64 * 8 + i % 8);
            *p = match mask.sees(row, key) {
                true => round(score),
                false => bf16::NEG_INFINITY,
            };
        }
        let (o, max, sum) = split_mut(state);
        let rescale = softmax(p, max, sum, &exp2, scale);
        for (i, o) in o.iter_mut().enumerate() {
            *o *= rescale[query_of(i)];
        }
        matmul_bf16(call.cpu, matmul_shape(SLICE as u32, d, tk), p, values, o);
    }
}

/// Turns scores into probabilities, and updates maxima and sums. Returns the factors for older values.
pub(super) fn softmax(
    p: &mut [bf16],
    max: &mut [f32],
    sum: &mut [f32],
    exp2: &Exp2,
    scale: f32,
) -> [f32; SLICE] {
    let mut rescale = [0.0; SLICE];
    for (query, rescale) in rescale.iter_mut().enumerate() {
        let older = round(max[query]);
        let blocks = p.chunks_exact(64);
        let scores = blocks.flat_map(|block| &block[query * 8..][..8]);
        let newest = scores.fold(older, |max, &p| if p > max { p } else { max });
        *rescale = widen(exp2.of(scale * widen(difference(older, newest))));
        max[query] = widen(newest);
        let mut lanes = [0.0_f32; 8];
        for block in p.chunks_exact_mut(64) {
            for (lane, p) in lanes.iter_mut().zip(&mut block[query * 8..][..8]) {
                *p = exp2.of(scale * widen(difference(*p, newest)));
                *lane += widen(*p);
            }
        }
        sum[query] = sum[query] * *rescale + halves(&mut lanes);
    }
    rescale
}

/// The slice that a scalar names, drawn into range.
fn slice_range(call: &TileCall<'_>) -> std::ops::Range<usize> {
    let n = SLICE * (call.dims[1] as usize + 2);
    let slices = call.dims[0] as usize / SLICE;
    let slice = usize::try_from(call.scalars[0])
        .unwrap_or(0)
        .min(slices - 1);
    slice * n..(slice + 1) * n
}

pub(super) fn send(call: &mut TileCall<'_>) {
    let range = slice_range(call);
    f32s_mut(call.outputs[0]).copy_from_slice(&f32s(call.inputs[0])[range]);
}

pub(super) fn join(call: &mut TileCall<'_>) {
    let (exp2, scale) = (Exp2::new(), exponent_scale(call.constants));
    let range = slice_range(call);
    let (a_o, a_max, a_sum) = split(f32s(call.inputs[0]));
    let (o, max, sum) = split_mut(&mut f32s_mut(call.outputs[0])[range]);
    let mut factors = [(0.0, 0.0); SLICE];
    for (query, factors) in factors.iter_mut().enumerate() {
        let (a, b) = (round(a_max[query]), round(max[query]));
        let newest = if b > a { b } else { a };
        let factor = |older| widen(exp2.of(scale * widen(difference(older, newest))));
        *factors = (factor(a), factor(b));
        max[query] = widen(newest);
        sum[query] = a_sum[query] * factors.0 + sum[query] * factors.1;
    }
    for (i, (o, a)) in o.iter_mut().zip(a_o).enumerate() {
        let (of_a, of_b) = factors[query_of(i)];
        *o = a * of_a + *o * of_b;
    }
}

/// Writes rows from the one that the scalar names on, clamped to the range, or from the state's first.
pub(super) fn finish(call: &mut TileCall<'_>) {
    let [rows, tq, d] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let first = call.scalars.first().copied().unwrap_or(0);
    let first = usize::try_from(first).unwrap_or(0).min(tq - rows);
    let state = f32s(call.inputs[0]);
    for (row, y) in bf16s_mut(call.outputs[0]).chunks_exact_mut(d).enumerate() {
        let row = first + row;
        let slice = &state[row / SLICE * SLICE * (d + 2)..][..SLICE * (d + 2)];
        let (o, _, sum) = split(slice);
        let inverse = 1.0 / sum[row % SLICE];
        for (i, y) in y.iter_mut().enumerate() {
            *y = round(o[i / 8 * 64 + row % SLICE * 8 + i % 8] * inverse);
        }
    }
}
