//! Definition of a token's attention, bit for bit: for each head a softmax over each core's keys, joined core after
//! core.

use super::{TokenAttentionDims, UNIT};
use crate::mapping::data::{bf16_bytes, floats, in_parallel, round};

/// A head's state on a core, or of several.
struct HeadState {
    max: f32,
    sum: f32,
    o: Vec<f32>,
}

/// Initial value of maxima.
const LOWEST: f32 = f32::from_bits(0xff7f_0000);

fn exp2(x: f32) -> f32 {
    round(f64::from(x).exp2() as f32)
}

/// A number as the sum of two of bf16: the number rounded, then the remainder rounded.
fn two_terms(x: f32) -> f32 {
    let first = round(x);
    first + round(x - first)
}

/// Eight lanes, then the lanes in halves.
fn in_lanes(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0_f32; 8];
    for (i, value) in values.enumerate() {
        lanes[i % 8] += value;
    }
    let four: [f32; 4] = std::array::from_fn(|i| lanes[i] + lanes[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    in_lanes(a.iter().zip(b).map(|(a, b)| a * b))
}

impl TokenAttentionDims {
    /// The output: of each head a softmax over each core's keys, joined core after core.
    pub(super) fn reference(&self, slots: &[Vec<u8>]) -> Vec<u8> {
        let [q, k, v, at, keys, values] = std::array::from_fn(|slot| floats(&slots[slot]));
        let number = |at: &[f32]| at.iter().rev().fold(0, |n, digit| 256 * n + *digit as u64);
        let (position, oldest) = (number(&at[..4]), number(&at[4..8]));
        let h = &self.heads;
        let (d, group) = (h.head_dim as usize, h.group() as usize);
        let sees = |row: u64| {
            // The latest key of that row.
            let laps = position.checked_sub(row + 1)? / self.max_tokens;
            let key = row + laps * self.max_tokens;
            let recent = self.window == 0 || key + self.window > position;
            (key >= oldest && recent).then_some(())
        };
        let scale = (f64::from(h.scale()) * std::f64::consts::LOG2_E) as f32;
        let of_head = |head: usize| -> Vec<f32> {
            let q = &q[head * d..][..d];
            let kv_head = head / group;
            let row = |x: &[f32], key: u64| -> Vec<f32> {
                let at = (kv_head * self.max_tokens as usize + key as usize) * d;
                x[at..at + d].to_vec()
            };
            let own = |x: &[f32]| -> Vec<f32> { x[kv_head * d..][..d].to_vec() };
            let n_cores = h.spread * UNIT;
            let of_core = |(first, rounds): (u64, u64), core: u64| -> HeadState {
                let blocks = first..first + rounds;
                let blocks = blocks.map(|block| (block * n_cores + core) * h.rows());
                let mine: Vec<u64> = blocks.flat_map(|first| first..first + h.rows()).collect();
                let score = |&key: &u64| match sees(key) {
                    Some(()) => dot(q, &row(&keys, key)),
                    None => f32::NEG_INFINITY,
                };
                let scores: Vec<f32> = mine.iter().map(score).collect();
                let new = (core + first == 0).then(|| dot(q, &own(&k)));
                let max = scores.iter().chain(&new).fold(LOWEST, |max, &s| max.max(s));
                let weight = |score: f32| exp2(scale * (score - max));
                let p_new = new.map_or(0.0, weight);
                let p: Vec<f32> = scores.into_iter().map(weight).collect();
                let mut o: Vec<f32> = own(&v).iter().map(|v| p_new * v).collect();
                for (key, p) in mine.iter().zip(&p).filter(|(_, p)| **p > 0.0) {
                    let row = row(&values, *key);
                    o.iter_mut().zip(row).for_each(|(o, v)| *o += p * v);
                }
                let sum = in_lanes(p.into_iter()) + p_new;
                let inverse = if sum > 0.0 { 1.0 / sum } else { 0.0 };
                HeadState {
                    max,
                    sum,
                    o: o.into_iter().map(|o| two_terms(o * inverse)).collect(),
                }
            };
            let mut all = HeadState {
                max: LOWEST,
                sum: 0.0,
                o: vec![0.0; d],
            };
            let chunks = self.chunks();
            let parts = chunks
                .iter()
                .flat_map(|&chunk| (0..n_cores).map(move |c| (chunk, c)));
            for part in parts.map(|(chunk, core)| of_core(chunk, core)) {
                let max = all.max.max(part.max);
                let older = exp2(scale * (all.max - max));
                let newer = exp2(scale * (part.max - max)) * part.sum;
                all.sum = all.sum * older + newer;
                let joined = all
                    .o
                    .iter()
                    .zip(&part.o)
                    .map(|(o, p)| o * older + newer * p);
                all.o = joined.collect();
                all.max = max;
            }
            let inverse = 1.0 / all.sum;
            all.o.iter().map(|o| round(o * inverse)).collect()
        };
        bf16_bytes(&in_parallel(h.n_heads as usize, of_head).concat())
    }
}
