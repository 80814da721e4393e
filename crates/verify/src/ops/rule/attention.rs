//! Attention's rounding points.

use super::{Exact, LAMBDA, Operation, U, V, f};
use crate::reference::blocks::{BLOCK, HALF_STEP};
use millrace_graph as graph;
use std::ops::RangeInclusive;

/// Causal attention over keys of the same tokens, or over a cache.
///
/// For a query with scores s, maximum m, p = exp(scale·(s − m)), L = Σp, M = Σp·∣v∣:
///
/// - A probability's exponent is off by ε = scale·(u·(∣s∣ + ∣m∣) + 2u·(m − s)): s and m are rounded,
///   and so are their difference and the factor scale·log₂e. Rescaling to a later maximum adds
///   differences that telescope to m − s.
/// - Each of T steps (tiles of keys that a stage takes, then merges of stages) rounds the factor of
///   rescaling, the rescaled state and the new one: 3u. Probabilities themselves are rounded: u.
/// - The reciprocal of L and the last product are rounded: 2u.
///
/// Together: (Σp·∣v∣·(eᵋ − 1) + ∣y∣·Σp·(eᵋ − 1) + (3T + 1)·u·(M + ∣y∣·L)) / L + 2u·∣y∣, and the
/// error of f32 sums.
pub(in super::super) struct AttentionRule {
    pub(super) head_dim: usize,
    n_heads: usize,
    n_kv_heads: usize,
    scale: f64,
    /// Steps of a query's state.
    n_steps: f64,
    /// Parts of the head dimension whose scores are rounded one after the other.
    n_parts: f64,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// Position of the first query; key 0 is at position 0.
    first: usize,
    /// The first key that belongs to a token.
    oldest_key: usize,
    window: Option<usize>,
    /// Elements from a key to the next, and from a head to the next.
    key_stride: usize,
    head_stride: usize,
    /// Whether both products have operands in blocks with one exponent.
    in_blocks: bool,
}

impl AttentionRule {
    pub(super) fn new(a: &graph::Attention, op: &Operation<'_>) -> Result<AttentionRule, String> {
        let steps = op.arithmetic.attention;
        let steps = steps.ok_or_else(|| format!("no rule for `{}`", op.launch.kernel))?;
        let (key_stride, head_stride) = match steps.cache_rows {
            None if op.first == 0 => (a.n_kv_heads * a.head_dim, a.head_dim),
            None => return Err(format!("`{}` behind other tokens", op.launch.kernel)),
            Some(rows) => (a.head_dim, rows as usize * a.head_dim),
        };
        let n_keys = op.first + op.n_rows;
        let last_key = n_keys.saturating_sub(1) * key_stride;
        let needed = (a.n_kv_heads - 1) * head_stride + last_key + a.head_dim;
        let [q, k, v] = &op.operands[..] else {
            return Err("attention takes q, k and v".to_owned());
        };
        if k.len() < needed || v.len() < needed {
            return Err("the cache has fewer keys than there are positions".to_owned());
        }
        let rows = |x: &[f32]| {
            let mut x = x.to_vec();
            if op.arithmetic.in_blocks {
                x.chunks_exact_mut(a.head_dim).for_each(super::in_blocks);
            }
            x
        };
        Ok(AttentionRule {
            head_dim: a.head_dim,
            n_heads: a.n_heads,
            n_kv_heads: a.n_kv_heads,
            scale: f64::from(a.scale),
            n_steps: steps.n_steps as f64,
            n_parts: steps.n_parts as f64,
            q: rows(q),
            k: rows(k),
            v: v.clone(),
            first: op.first,
            oldest_key: op.oldest_key,
            window: a.window,
            key_stride,
            head_stride,
            in_blocks: op.arithmetic.in_blocks,
        })
    }

    /// Adds the most that a column's sum can change when probabilities and values are converted to blocks of keys.
    fn add_conversion(
        &self,
        p: &[f64],
        oldest: usize,
        v: impl Fn(usize) -> Vec<f64>,
        off: &mut [f64],
    ) {
        // Values of keys that the token does not see share exponents with those it does.
        let n_keys = self.v.len().saturating_sub(self.head_dim) / self.key_stride + 1;
        let mut start = oldest / BLOCK * BLOCK;
        while start < oldest + p.len() {
            let block: Vec<Vec<f64>> = (start..n_keys.min(start + BLOCK)).map(&v).collect();
            let seen = |key: usize| key.checked_sub(oldest).and_then(|i| p.get(i)).copied();
            let p: Vec<f64> = (start..start + BLOCK)
                .map(|key| seen(key).unwrap_or(0.0))
                .collect();
            let p_max = p.iter().copied().fold(0.0, f64::max);
            for (i, off) in off.iter_mut().enumerate() {
                let v_max = block.iter().fold(0.0, |max, v| f64::max(max, v[i].abs()));
                for (p, v) in p.iter().zip(&block) {
                    // Either's own error, and both together.
                    let [p_off, v_off] = [p_max, v_max].map(|max| 2.0 * HALF_STEP * max);
                    if *p > 0.0 {
                        *off += p_off * v[i].abs() + p * v_off + p_off * v_off;
                    }
                }
            }
            start += BLOCK;
        }
    }

    /// A key's row of a head.
    fn cached(&self, rows: &[f32], key: usize, kv_head: usize) -> Vec<f64> {
        let at = key * self.key_stride + kv_head * self.head_stride;
        rows[at..at + self.head_dim].iter().map(|x| f(*x)).collect()
    }

    /// Scores of a query with some keys, and the error of each.
    fn scores(&self, q: &[f32], keys: RangeInclusive<usize>, kv_head: usize) -> Vec<(f64, f64)> {
        let float = LAMBDA * (self.head_dim as f64).sqrt() * V;
        let score = |key: usize| {
            let (mut sum, mut size) = (0.0, 0.0);
            for (q, k) in q.iter().zip(self.cached(&self.k, key, kv_head)) {
                sum += f(*q) * k;
                size += f64::abs(f(*q) * k);
            }
            let off = U * (f64::abs(sum) + (self.n_parts - 1.0) * size) + float * size;
            (sum, off)
        };
        keys.map(score).collect()
    }

    /// A head of a token.
    pub(super) fn head(&self, row: usize, head: usize) -> Vec<Exact> {
        let d = self.head_dim;
        let kv_head = head / (self.n_heads / self.n_kv_heads);
        let q = &self.q[(row * self.n_heads + head) * d..][..d];
        let position = self.first + row;
        let oldest = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let oldest = oldest.max(self.oldest_key);
        let scores = self.scores(q, oldest..=position, kv_head);
        let values = |key: usize| self.cached(&self.v, key, kv_head);
        let (max, max_off) =
            scores.iter().fold(
                (f64::NEG_INFINITY, 0.0),
                |max, s| {
                    if s.0 > max.0 { *s } else { max }
                },
            );
        let (mut sum, mut sum_off) = (0.0, 0.0);
        let (mut y, mut size, mut off) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
        let n_keys = scores.len() as f64;
        let probability = |score: f64| (self.scale * (score - max)).exp();
        if self.in_blocks {
            let p: Vec<f64> = scores
                .iter()
                .map(|(score, _)| probability(*score))
                .collect();
            self.add_conversion(&p, oldest, values, &mut off);
        }
        for (key, (score, score_off)) in (oldest..).zip(scores) {
            let p = probability(score);
            let exponent = self.scale * (score_off + max_off + 2.0 * U * (max - score));
            let p_off = p * exponent.exp_m1();
            sum += p;
            sum_off += p_off;
            for (i, v) in values(key).into_iter().enumerate() {
                y[i] += p * v;
                size[i] += p * v.abs();
                off[i] += p_off * v.abs();
            }
        }
        let steps = (3.0 * self.n_steps + 1.0) * U + LAMBDA * n_keys.sqrt() * V;
        let one = |i: usize| {
            let value = y[i] / sum;
            let off = off[i] + value.abs() * sum_off + steps * (size[i] + value.abs() * sum);
            Exact {
                y: value,
                tolerance: off / sum + 2.0 * U * value.abs(),
            }
        };
        (0..d).map(one).collect()
    }
}
