//! Flash attention's rounding points.

use super::{Exact, LAMBDA, U, V, f};
use half::bf16;
use millrace_model::graph;
use millrace_xdna2::lower::LogicalLaunch;

/// Causal attention of the plan's tokens, over keys of the same tokens.
///
/// Of a query with scores s, maximum m, p = exp(scale·(s − m)), L = Σp, M = Σp·∣v∣:
///
/// - A probability's exponent is off by ε = scale·(u·(∣s∣ + ∣m∣) + 2u·(m − s)): s and m are rounded,
///   and so are their difference and the factor scale·log₂e. Rescaling to a later maximum adds
///   differences that telescope to m − s.
/// - Each of T steps (tiles of keys that a stage takes, then merges of stages) rounds the factor of
///   rescaling, the rescaled state and the new one: 3u. Probabilities themselves are rounded: u.
/// - The reciprocal of L and the last product are rounded: 2u.
///
/// Together: (Σp·∣v∣·(eᵋ − 1) + ∣y∣·Σp·(eᵋ − 1) + (3T + 1)·u·(M + ∣y∣·L)) / L + 2u·∣y∣, and what
/// f32 sums add.
pub(in super::super) struct Attention {
    pub(super) head_dim: usize,
    n_heads: usize,
    n_kv_heads: usize,
    scale: f64,
    /// Steps of a query's state.
    n_steps: f64,
    /// Parts of the head dimension whose scores are rounded one after the other.
    n_parts: f64,
    q: Vec<bf16>,
    k: Vec<bf16>,
    v: Vec<bf16>,
}

impl Attention {
    pub(super) fn new(
        attention: &graph::Attention,
        launch: &LogicalLaunch,
        [q, k, v]: [Vec<bf16>; 3],
    ) -> Attention {
        let size = |name: &str| launch.tiling.get(name).max(1);
        let stages = size("stages");
        let tiles = launch.shape.get("n_keys").div_ceil(size("tile_kv"));
        let n_steps = tiles.div_ceil(stages) + stages;
        let n_parts = (attention.head_dim as u64).div_ceil(size("tile_dk"));
        Attention {
            head_dim: attention.head_dim,
            n_heads: attention.n_heads,
            n_kv_heads: attention.n_kv_heads,
            scale: f64::from(attention.scale),
            n_steps: n_steps as f64,
            n_parts: n_parts as f64,
            q,
            k,
            v,
        }
    }

    /// A head of a token.
    pub(super) fn head(&self, row: usize, head: usize) -> Vec<Exact> {
        let d = self.head_dim;
        let kv_head = head / (self.n_heads / self.n_kv_heads);
        let q = &self.q[(row * self.n_heads + head) * d..][..d];
        let of = |rows: &[bf16], key: usize| -> Vec<f64> {
            let at = (key * self.n_kv_heads + kv_head) * d;
            rows[at..at + d].iter().map(|x| f(*x)).collect()
        };
        let float = LAMBDA * (d as f64).sqrt() * V;
        let mut scores = Vec::with_capacity(row + 1);
        for key in 0..=row {
            let (mut sum, mut size) = (0.0, 0.0);
            for (q, k) in q.iter().zip(of(&self.k, key)) {
                sum += f(*q) * k;
                size += f64::abs(f(*q) * k);
            }
            let off = U * (f64::abs(sum) + (self.n_parts - 1.0) * size) + float * size;
            scores.push((sum, off));
        }
        let (max, max_off) =
            scores.iter().fold(
                (f64::NEG_INFINITY, 0.0),
                |max, s| {
                    if s.0 > max.0 { *s } else { max }
                },
            );
        let (mut sum, mut sum_off) = (0.0, 0.0);
        let (mut y, mut size, mut off) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
        for (key, (score, score_off)) in scores.into_iter().enumerate() {
            let p = (self.scale * (score - max)).exp();
            let exponent = self.scale * (score_off + max_off + 2.0 * U * (max - score));
            let p_off = p * exponent.exp_m1();
            sum += p;
            sum_off += p_off;
            for (i, v) in of(&self.v, key).into_iter().enumerate() {
                y[i] += p * v;
                size[i] += p * v.abs();
                off[i] += p_off * v.abs();
            }
        }
        let steps = (3.0 * self.n_steps + 1.0) * U + LAMBDA * ((row + 1) as f64).sqrt() * V;
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
