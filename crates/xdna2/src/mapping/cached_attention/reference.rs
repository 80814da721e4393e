//! Attention over a cache by the online softmax, one query at a time, with the rounding points of the
//! tile kernels: scores, probabilities and maxima are bf16, sums and outputs f32.

use super::POSITION_DIGITS;
use super::shape::CachedAttentionDims;
use crate::mapping::attention::reference::{LOWEST, difference, dot, exp2, exponent_scale};
use crate::mapping::data::{bf16_bytes, floats, in_parallel, round};
use std::ops::Range;

/// Running state of one query.
#[derive(Clone)]
struct CachedQueryState {
    max: f32,
    sum: f32,
    o: Vec<f32>,
}

/// Keys that a query at a position sees: those up to its own from `oldest` on, and those of its image. In a ring, a row
/// has the latest key up to the query's own whose position is the row's number modulo the number of rows.
struct VisibleKeys {
    position: u64,
    oldest: u64,
    image: Range<u64>,
    ring: Option<u64>,
}

impl VisibleKeys {
    /// Whether it sees the key of a row, with a window of so many keys or all (0).
    fn sees(&self, row: u64, window: u64) -> bool {
        let latest = match self.ring {
            Some(n_rows) => {
                let key = self.position / n_rows * n_rows + row;
                match key > self.position {
                    true => key.checked_sub(n_rows),
                    false => Some(key),
                }
            }
            None => Some(row),
        };
        let Some(key) = latest else {
            return false;
        };
        let there = key <= self.position || self.image.contains(&key);
        there && key >= self.oldest && (window == 0 || key + window > self.position)
    }
}

/// The output slot from the contents of the others. The cache is a `ring` of so many rows, or has them in their order.
pub(super) fn run(p: &CachedAttentionDims, ring: Option<u64>, slots: &[Vec<u8>]) -> Vec<u8> {
    let [q, k, v, at] = [0, 1, 2, 3].map(|slot| floats(&slots[slot]));
    let number = |digits: &[f32]| {
        let digits = digits.iter().rev();
        digits.fold(0, |number, &digit| 256 * number + digit as u64)
    };
    let [first, oldest, start, end] =
        std::array::from_fn(|i| number(&at[i * POSITION_DIGITS..(i + 1) * POSITION_DIGITS]));
    let d = p.head_dim as usize;
    let of_token = |token: usize| -> Vec<f32> {
        let position = first + token as u64;
        let image = match (start..end).contains(&position) {
            true => start..end,
            false => 0..0,
        };
        let of_head = |head: usize| {
            let cache = head as u64 / p.group() * p.max_tokens * p.head_dim;
            let rows = cache as usize..(cache + p.n_keys * p.head_dim) as usize;
            let at = (token * p.n_heads as usize + head) * d;
            let state = joined(
                p,
                &q[at..at + d],
                &VisibleKeys {
                    position,
                    oldest,
                    image: image.clone(),
                    ring,
                },
                &k[rows.clone()],
                &v[rows],
            );
            let inverse = 1.0 / state.sum;
            state.o.into_iter().map(move |o| round(o * inverse))
        };
        (0..p.n_heads as usize).flat_map(of_head).collect()
    };
    let tokens = in_parallel(p.n_queries as usize, of_token);
    bf16_bytes(&tokens.concat())
}

/// The states of all parts of the keys as one: from the top row to row 0, then from column to column.
fn joined(
    p: &CachedAttentionDims,
    q: &[f32],
    seen: &VisibleKeys,
    k: &[f32],
    v: &[f32],
) -> CachedQueryState {
    let scale = exponent_scale(p.scale());
    let column = |column: u64| {
        let states = (0..p.rows).rev().map(|row| {
            let part = column * p.rows + row;
            part_state(p, q, seen, part, k, v)
        });
        states.reduce(|above, own| join(&above, &own, scale))
    };
    let columns = (0..p.spread).filter_map(column);
    columns
        .reduce(|west, own| join(&west, &own, scale))
        .unwrap_or_else(|| empty(q.len()))
}

fn empty(d: usize) -> CachedQueryState {
    CachedQueryState {
        max: LOWEST,
        sum: 0.0,
        o: vec![0.0; d],
    }
}

/// A part's own tiles of keys, for a query.
fn part_state(
    p: &CachedAttentionDims,
    q: &[f32],
    seen: &VisibleKeys,
    part: u64,
    k: &[f32],
    v: &[f32],
) -> CachedQueryState {
    let (tile, d) = (p.tile_kv as usize, p.head_dim as usize);
    let mut state = empty(d);
    let n_parts = (p.rows * p.spread) as usize;
    for first in (part as usize..p.n_keys as usize / tile).step_by(n_parts) {
        let first = first * tile;
        let sees = |key: usize| seen.sees(key as u64, p.window);
        let score = |key: usize| match sees(key) {
            true => {
                let pairs = q.chunks_exact(2).zip(k[key * d..][..d].chunks_exact(2));
                round(dot(0.0, pairs.map(|(q, k)| [(q[0], k[0]), (q[1], k[1])])))
            }
            false => f32::NEG_INFINITY,
        };
        let scores: Vec<f32> = (first..first + tile).map(score).collect();
        // A tile without a visible key leaves the state as it is.
        if scores.iter().any(|s| s.is_finite()) {
            let scale = exponent_scale(p.scale());
            update(&mut state, &scores, &v[first * d..][..tile * d], scale);
        }
    }
    state
}

/// One tile of keys.
fn update(state: &mut CachedQueryState, scores: &[f32], values: &[f32], scale: f32) {
    let newest = scores.iter().fold(state.max, |max, &s| max.max(s));
    let rescale = exp2(scale * difference(state.max, newest));
    state.max = newest;
    let p: Vec<f32> = (scores.iter())
        .map(|&s| exp2(scale * difference(s, newest)))
        .collect();
    let mut lanes = [0.0_f32; 8];
    for (i, p) in p.iter().enumerate() {
        lanes[i % 8] += p;
    }
    let four: [f32; 4] = std::array::from_fn(|i| lanes[i] + lanes[i + 4]);
    let newer = (four[0] + four[2]) + (four[1] + four[3]);
    state.sum = state.sum * rescale + newer;
    let d = state.o.len();
    for (column, o) in state.o.iter_mut().enumerate() {
        let pairs = p.chunks_exact(2).zip(values.chunks_exact(2 * d));
        let products = pairs.map(|(p, v)| [(p[0], v[column]), (p[1], v[d + column])]);
        *o = dot(*o * rescale, products);
    }
}

/// The states of two sets of keys as one.
fn join(a: &CachedQueryState, b: &CachedQueryState, scale: f32) -> CachedQueryState {
    let max = a.max.max(b.max);
    let (of_a, of_b) = (
        exp2(scale * difference(a.max, max)),
        exp2(scale * difference(b.max, max)),
    );
    let columns = a.o.iter().zip(&b.o);
    CachedQueryState {
        max,
        sum: a.sum * of_a + b.sum * of_b,
        o: columns.map(|(a, b)| a * of_a + b * of_b).collect(),
    }
}
