//! The parts of a token's attention where the cores of its projections attend: keys and values come row by row in
//! the bytes of a block of weights, query, new key, new value and position in the vector of a projection.
//!
//! A core has some of the keys of one key-value head. It keeps the scores of all of them, or of as many as it has room for at
//! a time, so the probabilities need no running maximum; states are joined by [`join`], a *part* at a time.
//!
//! | operand | meaning | order of dimensions |
//! |---|---|---|
//! | block | keys or values, row by row: 5,120 bytes are `r = 2560 / d` rows of bf16 | `[r][d]` |
//! | v | query, new key, new value, then `at` as in the [kernels of prompts](super::cached); sums of groups after them | `[heads][d]`, `[kv_heads][d]`, `[kv_heads][d]`, `[16]` |
//! | S | scores, then probabilities, f32; `keys` is a multiple of r | `[group][keys]` |
//! | state | O, then maximum and sum of the scores of each head, f32 | `[group][d]`, `[group]`, `[group]` |
//! | part | of each head O / sum in pieces of 32, rounded, then the rest of the rounding; a piece with maximum and sum, each as three bf16 that add up to it; pieces of the cores of a column side by side | `[group][d/16 + 1][unit][32]` |
//!
//! The array has `kv_heads · spread` columns of `unit` cores; block `i` of a core, counted from a first one, holds rows
//! from `((i · spread + x mod spread) · unit + y) · r` on, of head `x / spread`. Row s of a cache of R rows is the
//! latest key before the position whose number is s modulo R. Visible keys are those that exist: not before the first
//! that counts, and within the window. The new key is the first core's of its head, with the first block. Scores, sums
//! and O are f32, probabilities bf16.

use super::attention::halves;
use super::cached::{AT, DIGITS, position};
use super::math::{Exp2, LOWEST, bf16s, bf16s_mut, f32s, f32s_mut, round, widen};
use super::q4nx::{BYTES, with_sums};
use super::shape::{dim, work};
use super::{CallShape, TileCall, TileWork};
use half::bf16;
use millrace_npu::Element::{Bf16, F32, U8};

/// Elements of a piece of a part, which a core of projections sends at once.
const PIECE: usize = 32;

/// bf16 values that add up to a maximum or a sum.
const TERMS: usize = 3;

/// Sizes that all kernels but the joining ones have.
struct Sizes {
    total: usize,
    head_dim: usize,
    n_heads: usize,
    n_kv_heads: usize,
    spread: usize,
    unit: usize,
    keys: usize,
}

const NAMES: [&str; 7] = ["total", "d", "heads", "kv_heads", "spread", "unit", "keys"];

impl Sizes {
    fn of(dims: [u64; 7]) -> Sizes {
        let [total, head_dim, n_heads, n_kv_heads, spread, unit, keys] = dims.map(|d| d as usize);
        Sizes {
            total,
            head_dim,
            n_heads,
            n_kv_heads,
            spread,
            unit,
            keys,
        }
    }

    /// Sizes of a call that was checked.
    fn of_call(call: &TileCall<'_>) -> Sizes {
        Sizes::of(std::array::from_fn(|i| dim(call.dims, i)))
    }

    fn check(shape: &CallShape<'_>) -> Result<Sizes, String> {
        let s = Sizes::of(shape.dims(NAMES)?);
        heads((s.head_dim, s.n_heads, s.n_kv_heads))?;
        if !s.keys.is_multiple_of(s.rows()) {
            let (keys, rows) = (s.keys, s.rows());
            return Err(format!(
                "keys must be a multiple of the {rows} of a block, it is {keys}"
            ));
        }
        let needed = s.at() + AT;
        if !s.total.is_multiple_of(256) || s.total < needed {
            return Err(format!(
                "total must be a multiple of 256 and at least {needed}, it is {}",
                s.total
            ));
        }
        Ok(s)
    }

    fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// Keys of a block.
    fn rows(&self) -> usize {
        BYTES as usize / (2 * self.head_dim)
    }

    /// Start of the new key in v.
    fn key(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn value(&self) -> usize {
        self.key() + self.n_kv_heads * self.head_dim
    }

    fn at(&self) -> usize {
        self.value() + self.n_kv_heads * self.head_dim
    }

    fn state(&self) -> u64 {
        state_elements(self.head_dim as u64, self.group() as u64)
    }

    /// The head of a core in column x, and the column's number among the head's.
    fn place(&self, x: i64) -> (usize, usize) {
        let x = usize::try_from(x).unwrap_or(0) % (self.n_kv_heads * self.spread);
        (x / self.spread, x % self.spread)
    }

    fn scores(&self) -> u64 {
        (self.group() * self.keys) as u64
    }
}

fn heads((head_dim, n_heads, n_kv_heads): (usize, usize, usize)) -> Result<(), String> {
    let d = head_dim as u64;
    if !d.is_multiple_of(PIECE as u64) || !BYTES.is_multiple_of(2 * d) {
        return Err(format!(
            "d must be a multiple of {PIECE} that divides {}, it is {d}",
            BYTES / 2
        ));
    }
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(format!(
            "heads must be a multiple of kv_heads = {n_kv_heads}, it is {n_heads}"
        ));
    }
    Ok(())
}

fn state_elements(d: u64, group: u64) -> u64 {
    group * (d + 2)
}

/// Pieces of a head: two of every 32 of its elements, and one of its numbers.
fn pieces(head_dim: usize) -> usize {
    2 * (head_dim / PIECE) + 1
}

fn part_elements(d: u64, group: u64, unit: u64) -> u64 {
    group * (pieces(d as usize) * PIECE) as u64 * unit
}

/// A scalar as an index below `n`, which is not 0.
fn index(scalar: i64, n: usize) -> usize {
    usize::try_from(scalar).unwrap_or(0).min(n.max(1) - 1)
}

pub(super) fn check_scores(shape: &CallShape<'_>) -> Result<(), String> {
    let s = Sizes::check(shape)?;
    shape.extras(6, 0)?;
    shape.operands(&[
        ("block", U8, BYTES),
        ("v", Bf16, with_sums(s.total as u64)),
        ("S", F32, s.scores()),
    ])
}

pub(super) fn check_soften(shape: &CallShape<'_>) -> Result<(), String> {
    let s = Sizes::check(shape)?;
    shape.extras(4, 1)?;
    shape.operands(&[
        ("v", Bf16, with_sums(s.total as u64)),
        ("S", F32, s.scores()),
        ("state", F32, s.state()),
    ])
}

pub(super) fn check_values(shape: &CallShape<'_>) -> Result<(), String> {
    let s = Sizes::check(shape)?;
    shape.extras(1, 0)?;
    shape.operands(&[
        ("block", U8, BYTES),
        ("S", F32, s.scores()),
        ("state", F32, s.state()),
    ])
}

pub(super) fn check_give(shape: &CallShape<'_>) -> Result<(), String> {
    let s = Sizes::check(shape)?;
    shape.extras(1, 0)?;
    shape.operands(&[("state", F32, s.state()), ("y", Bf16, PIECE as u64)])
}

fn joining(shape: &CallShape<'_>) -> Result<[u64; 3], String> {
    let [d, group, unit] = shape.dims(["d", "group", "unit"])?;
    heads((d as usize, group as usize, 1))?;
    Ok([d, group, unit])
}

pub(super) fn check_join(shape: &CallShape<'_>) -> Result<(), String> {
    let [d, group, unit] = joining(shape)?;
    shape.extras(1, 1)?;
    shape.operands(&[
        ("part", Bf16, part_elements(d, group, unit)),
        ("state", F32, state_elements(d, group)),
    ])
}

pub(super) fn check_finish(shape: &CallShape<'_>) -> Result<(), String> {
    let [d, group, _] = joining(shape)?;
    shape.extras(0, 0)?;
    shape.operands(&[
        ("state", F32, state_elements(d, group)),
        ("y", Bf16, group * d),
    ])
}

/// Heads of a group by the elements of a block.
fn work_of_block(dims: &[u32]) -> TileWork {
    let group = dim(dims, 2) / dim(dims, 3).max(1);
    work(
        &[group, BYTES / 2],
        &[],
        &[&[BYTES], &[group, dim(dims, 1), 6]],
    )
}

pub(super) fn work_scores(dims: &[u32], _: &[i64]) -> TileWork {
    work_of_block(dims)
}

pub(super) fn work_values(dims: &[u32], _: &[i64]) -> TileWork {
    work_of_block(dims)
}

pub(super) fn work_soften(dims: &[u32], scalars: &[i64]) -> TileWork {
    let group = dim(dims, 2) / dim(dims, 3).max(1);
    let rows = BYTES / (2 * dim(dims, 1)).max(1);
    let rounds = scalars.first().copied().unwrap_or(0).max(0) as u64;
    let keys = rounds.saturating_mul(rows).min(dim(dims, 6)) + 1;
    work(&[], &[group, keys], &[&[group, keys, 8]])
}

pub(super) fn work_give(_: &[u32], _: &[i64]) -> TileWork {
    work(&[], &[PIECE as u64], &[&[PIECE as u64, 6]])
}

pub(super) fn work_join(dims: &[u32], _: &[i64]) -> TileWork {
    let [d, group, unit] = [0, 1, 2].map(|i| dim(dims, i));
    work(&[], &[2, d, group, unit], &[&[d, group, unit, 12]])
}

pub(super) fn work_finish(dims: &[u32], _: &[i64]) -> TileWork {
    let [d, group] = [0, 1].map(|i| dim(dims, i));
    work(&[], &[d, group], &[&[d, group, 6]])
}

/// Products of two rows of bf16, added in eight lanes, then the lanes.
fn dot(a: &[bf16], b: &[bf16]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += widen(*a) * widen(*b);
        }
    }
    halves(&mut lanes)
}

/// `v`'s query of a head of the group.
fn query<'v>(s: &Sizes, v: &'v [bf16], kv_head: usize, head: usize) -> &'v [bf16] {
    let at = (kv_head * s.group() + head) * s.head_dim;
    &v[at..at + s.head_dim]
}

/// Scalars: the core's block, the first block, x, y, the window (0 for none), the cache's rows.
pub(super) fn scores(call: &mut TileCall<'_>) {
    let s = Sizes::of_call(call);
    let [_, first, x, y, window, n_rows] = std::array::from_fn(|i| call.scalars[i]);
    let block = index(call.scalars[0], s.keys / s.rows());
    let (rows, v) = (bf16s(call.inputs[0]), bf16s(call.inputs[1]));
    let (kv_head, column) = s.place(x);
    let mut at = v[s.at()..s.at() + AT].chunks_exact(DIGITS).map(position);
    let [new, oldest] = std::array::from_fn(|_| at.next().unwrap_or(0));
    let [first, y] = [first, y].map(|n| usize::try_from(n).unwrap_or(0));
    let part = first
        .saturating_add(block)
        .saturating_mul(s.spread * s.unit);
    let part = part.saturating_add(column * s.unit + y);
    let out = f32s_mut(call.outputs[0]);
    for (head, scores) in out.chunks_exact_mut(s.keys).enumerate() {
        let q = query(&s, v, kv_head, head);
        let scores = &mut scores[block * s.rows()..][..s.rows()];
        for (i, (score, k)) in (scores.iter_mut())
            .zip(rows.chunks_exact(s.head_dim))
            .enumerate()
        {
            let row = part.saturating_mul(s.rows()).saturating_add(i) as i64;
            let last = new.saturating_sub(1);
            let key = last.saturating_sub(last.saturating_sub(row).rem_euclid(n_rows.max(1)));
            let seen = key >= oldest.max(0);
            let seen = seen && (window <= 0 || key > new.saturating_sub(window));
            *score = if seen { dot(q, k) } else { f32::NEG_INFINITY };
        }
    }
}

/// A factor of scores within the exponent of two.
fn exponent_scale(constants: &[u32]) -> f32 {
    (f64::from(f32::from_bits(constants[0])) * std::f64::consts::LOG2_E) as f32
}

/// Scalars: number of blocks with scores, the first of them, x, y.
pub(super) fn soften(call: &mut TileCall<'_>) {
    let s = Sizes::of_call(call);
    let scale = exponent_scale(call.constants);
    let blocks = usize::try_from(call.scalars[0]).unwrap_or(0);
    let n = blocks.saturating_mul(s.rows()).min(s.keys);
    let (kv_head, column) = s.place(call.scalars[2]);
    let has_new = column == 0 && call.scalars[3] == 0 && call.scalars[1] == 0;
    let v = bf16s(call.inputs[0]);
    let own = kv_head * s.head_dim;
    let (k, value) = (&v[s.key() + own..], &v[s.value() + own..]);
    let exp2 = Exp2::new();
    let [scores, state] = &mut call.outputs[..] else {
        return;
    };
    let (o, rest) = f32s_mut(state).split_at_mut(s.group() * s.head_dim);
    let (maxima, sums) = rest.split_at_mut(s.group());
    let heads = f32s_mut(scores)
        .chunks_exact_mut(s.keys)
        .zip(o.chunks_exact_mut(s.head_dim))
        .zip(maxima.iter_mut().zip(sums));
    for (head, ((scores, o), (max, sum))) in heads.enumerate() {
        let scores = &mut scores[..n];
        let new = match has_new {
            true => dot(query(&s, v, kv_head, head), &k[..s.head_dim]),
            false => f32::NEG_INFINITY,
        };
        let seen = scores
            .iter()
            .fold(new, |max, &s| if s > max { s } else { max });
        *max = seen.max(widen(LOWEST));
        let mut lanes = [0.0_f32; 8];
        for (i, score) in scores.iter_mut().enumerate() {
            *score = widen(exp2.of(scale * (*score - *max)));
            lanes[i % 8] += *score;
        }
        let p = widen(exp2.of(scale * (new - *max)));
        *sum = halves(&mut lanes) + p;
        for (o, value) in o.iter_mut().zip(value) {
            *o = match has_new {
                true => p * widen(*value),
                false => 0.0,
            };
        }
    }
}

/// Scalar: the core's block.
pub(super) fn values(call: &mut TileCall<'_>) {
    let s = Sizes::of_call(call);
    let block = index(call.scalars[0], s.keys / s.rows());
    let (rows, p) = (bf16s(call.inputs[0]), f32s(call.inputs[1]));
    let state = f32s_mut(call.outputs[0]);
    let heads = state
        .chunks_exact_mut(s.head_dim)
        .zip(p.chunks_exact(s.keys));
    for (o, p) in heads.take(s.group()) {
        let p = &p[block * s.rows()..][..s.rows()];
        for (p, row) in p.iter().zip(rows.chunks_exact(s.head_dim)) {
            // An unseen row may hold anything, and adds nothing.
            if *p > 0.0 {
                o.iter_mut().zip(row).for_each(|(o, v)| *o += p * widen(*v));
            }
        }
    }
}

/// bf16 values that add up to x: each is the remainder of the ones before it, rounded.
fn terms<const N: usize>(x: f32) -> [bf16; N] {
    let mut left = x;
    std::array::from_fn(|_| {
        let term = round(left);
        left -= widen(term);
        term
    })
}

/// Scalar: which piece of the part.
pub(super) fn give(call: &mut TileCall<'_>) {
    let s = Sizes::of_call(call);
    let pieces = pieces(s.head_dim);
    let at = index(call.scalars[0], s.group() * pieces);
    let (head, piece) = (at / pieces, at % pieces);
    let (o, rest) = f32s(call.inputs[0]).split_at(s.group() * s.head_dim);
    let (maxima, sums) = rest.split_at(s.group());
    let y = bf16s_mut(call.outputs[0]);
    if piece + 1 < pieces {
        let inverse = 1.0 / sums[head];
        let o = &o[head * s.head_dim + piece / 2 * PIECE..];
        for (y, o) in y.iter_mut().zip(o) {
            // A core that sees no key sends zeros.
            let whole = if sums[head] > 0.0 { o * inverse } else { 0.0 };
            *y = terms::<2>(whole)[piece % 2];
        }
        return;
    }
    y.fill(bf16::ZERO);
    y[..TERMS].copy_from_slice(&terms::<TERMS>(maxima[head]));
    y[TERMS..2 * TERMS].copy_from_slice(&terms::<TERMS>(sums[head]));
}

/// Scalar: which part of the head; the first one begins the state.
pub(super) fn join(call: &mut TileCall<'_>) {
    let [d, group, unit] = [0, 1, 2].map(|i| call.dims[i] as usize);
    let (exp2, scale) = (Exp2::new(), exponent_scale(call.constants));
    let part = bf16s(call.inputs[0]);
    let pieces = pieces(d);
    let (all_o, rest) = f32s_mut(call.outputs[0]).split_at_mut(group * d);
    let (maxima, sums) = rest.split_at_mut(group);
    if call.scalars[0] == 0 {
        all_o.fill(0.0);
        maxima.fill(widen(LOWEST));
        sums.fill(0.0);
    }
    for core in 0..unit {
        let piece = |head: usize, piece: usize| {
            &part[((head * pieces + piece) * unit + core) * PIECE..][..PIECE]
        };
        for head in 0..group {
            let numbers = piece(head, pieces - 1);
            let number = |at: usize| numbers[at..at + TERMS].iter().map(|t| widen(*t)).sum();
            let (max, sum): (f32, f32) = (number(0), number(TERMS));
            let newest = if max > maxima[head] {
                max
            } else {
                maxima[head]
            };
            let of = |older: f32| widen(exp2.of(scale * (older - newest)));
            let (older, newer) = (of(maxima[head]), of(max) * sum);
            maxima[head] = newest;
            sums[head] = sums[head] * older + newer;
            let o = &mut all_o[head * d..][..d];
            for (i, o) in o.iter_mut().enumerate() {
                let term = |term: usize| widen(piece(head, i / PIECE * 2 + term)[i % PIECE]);
                *o = *o * older + newer * (term(0) + term(1));
            }
        }
    }
}

pub(super) fn finish(call: &mut TileCall<'_>) {
    let [d, group] = [0, 1].map(|i| call.dims[i] as usize);
    let (o, rest) = f32s(call.inputs[0]).split_at(group * d);
    let sums = &rest[group..];
    let heads = o.chunks_exact(d).zip(sums);
    for (y, (o, sum)) in bf16s_mut(call.outputs[0]).chunks_exact_mut(d).zip(heads) {
        let inverse = 1.0 / sum;
        for (y, o) in y.iter_mut().zip(o) {
            *y = round(o * inverse);
        }
    }
}
