//! Attention by the online softmax, one query at a time, with the rounding points of the tile
//! kernels: scores, probabilities, maxima, sums and outputs are bf16, products sum in f32.

use super::AttentionDims;
use crate::mapping::blocked;
use crate::mapping::data::{bf16_bytes, floats, in_parallel, round};
use millrace_xdna2_machine::Numerics;

/// Running state of one query.
#[derive(Clone)]
struct QueryState {
    max: f32,
    sum: f32,
    o: Vec<f32>,
}

/// The output slot for the contents of Q, K and V.
pub(super) fn run(numerics: Numerics, p: &AttentionDims, slots: &[Vec<u8>]) -> Vec<u8> {
    let [q, k, v] = [0, 1, 2].map(|slot| floats(&slots[slot]));
    let (q_at, kv_at) = (p.q_layout(), p.kv_layout());
    let d = p.head_dim as usize;
    let head_of = |head: usize| -> Vec<f32> {
        let head = head as u64;
        let kv_head = head * p.n_kv_heads / p.n_heads;
        let rows = |x: &[f32]| -> Vec<Vec<f32>> {
            let row = |i: u64| x[(kv_head * kv_at.head + i * kv_at.row) as usize..][..d].to_vec();
            (0..p.n_keys).map(row).collect()
        };
        let (keys, values) = (rows(&k), rows(&v));
        let of_query = |query: u64| {
            let at = (head * q_at.head + query * q_at.row) as usize;
            let last_key = if p.causal { query } else { p.n_keys };
            let state = cascade(numerics, p, &q[at..at + d], last_key, &keys, &values);
            let inverse = round(1.0 / state.sum);
            // A zero is positive.
            state.o.into_iter().map(move |o| o * inverse + 0.0)
        };
        (0..p.n_queries).flat_map(of_query).collect()
    };
    let mut y = vec![0.0; q.len()];
    for (head, result) in in_parallel(p.n_heads as usize, head_of).iter().enumerate() {
        for (query, result) in result.chunks_exact(d).enumerate() {
            let at = head * q_at.head as usize + query * q_at.row as usize;
            y[at..at + d].copy_from_slice(result);
        }
    }
    bf16_bytes(&y)
}

/// A scale times log₂e as the kernels compile it in.
pub(in crate::mapping) fn exponent_scale(scale: f32) -> f32 {
    round((f64::from(scale) * std::f64::consts::LOG2_E) as f32)
}

pub(in crate::mapping) fn exp2(x: f32) -> f32 {
    round(f64::from(x).exp2() as f32)
}

/// The most negative bf16: where maxima begin and differences end.
pub(in crate::mapping) const LOWEST: f32 = f32::from_bits(0xff7f_0000);

pub(in crate::mapping) fn difference(a: f32, b: f32) -> f32 {
    round(a - b).max(LOWEST)
}

/// All stages' states, joined from the last stage to the first.
fn cascade(
    numerics: Numerics,
    p: &AttentionDims,
    q: &[f32],
    last_key: u64,
    keys: &[Vec<f32>],
    values: &[Vec<f32>],
) -> QueryState {
    let scale = exponent_scale(p.scale());
    let tile = p.tile_kv as usize;
    let stage_state = |stage: u64| {
        let mut state = QueryState {
            max: LOWEST,
            sum: 0.0,
            o: vec![0.0; p.head_dim as usize],
        };
        let tiles = (0..p.n_keys as usize / tile).filter(|t| p.stage_of(*t as u64) == stage);
        for first in tiles.map(|t| t * tile) {
            let masked = |i: usize| {
                let key = (first + i) as u64;
                key > last_key || (p.window > 0 && last_key - key >= p.window)
            };
            // A fully masked tile leaves maximum, sum and output as they are.
            if (0..tile).all(masked) {
                continue;
            }
            let keys = &keys[first..first + tile];
            let scores: Vec<f32> = (keys.iter().enumerate())
                .map(|(i, key)| {
                    if masked(i) {
                        f32::NEG_INFINITY
                    } else {
                        score(numerics, p, q, key)
                    }
                })
                .collect();
            let values = &values[first..first + tile];
            update(numerics, &mut state, &scores, values, scale);
        }
        state
    };
    let mut joined = stage_state(p.stages - 1);
    for stage in (0..p.stages - 1).rev() {
        joined = join(&joined, &stage_state(stage), scale);
    }
    joined
}

/// Sum of products in pairs, the odd one first, begun with `sum`.
pub(in crate::mapping) fn dot(sum: f32, pairs: impl Iterator<Item = [(f32, f32); 2]>) -> f32 {
    pairs.fold(sum, |sum, [even, odd]| {
        (sum + odd.0 * odd.1) + even.0 * even.1
    })
}

/// q · key, rounded to bf16 after every chunk of the head dimension.
fn score(numerics: Numerics, p: &AttentionDims, q: &[f32], key: &[f32]) -> f32 {
    let chunk = p.tile_dk as usize;
    let chunks = q.chunks_exact(chunk).zip(key.chunks_exact(chunk));
    chunks.fold(0.0, |sum, (q, key)| {
        if numerics == Numerics::Bfp16 {
            let [q, key] = [q, key].map(blocked::represented_rows);
            return round(blocked::dot(sum, &q, &key));
        }
        let pairs = q.chunks_exact(2).zip(key.chunks_exact(2));
        round(dot(sum, pairs.map(|(q, k)| [(q[0], k[0]), (q[1], k[1])])))
    })
}

/// One tile of keys.
fn update(
    numerics: Numerics,
    state: &mut QueryState,
    scores: &[f32],
    values: &[Vec<f32>],
    scale: f32,
) {
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
    let newer = round((four[0] + four[2]) + (four[1] + four[3]));
    state.sum = round(state.sum * rescale + newer);
    let blocks = blocked::represented_rows(&p);
    for (column, o) in state.o.iter_mut().enumerate() {
        if numerics == Numerics::Bfp16 {
            let column: Vec<f32> = values.iter().map(|v| v[column]).collect();
            let column = blocked::represented_rows(&column);
            *o = round(blocked::dot(round(*o * rescale), &blocks, &column));
            continue;
        }
        let pairs = p.chunks_exact(2).zip(values.chunks_exact(2));
        let products = pairs.map(|(p, v)| [(p[0], v[0][column]), (p[1], v[1][column])]);
        *o = round(dot(round(*o * rescale), products));
    }
}

/// The states of two sets of keys as one.
fn join(a: &QueryState, b: &QueryState, scale: f32) -> QueryState {
    let max = a.max.max(b.max);
    let (of_a, of_b) = (
        exp2(scale * difference(a.max, max)),
        exp2(scale * difference(b.max, max)),
    );
    let columns = a.o.iter().zip(&b.o);
    QueryState {
        max,
        sum: round(a.sum * of_a + round(b.sum * of_b)),
        o: columns
            .map(|(a, b)| round(round(a * of_a) + round(b * of_b)))
            .collect(),
    }
}
