//! The output of RWKV 7's recurrence, on its way to the gate. Each head is normalised by mean and variance, with a factor and
//! a bias for each element. The token's own values are added, times a number for each head. Inputs: the recurrence's output;
//! receptance; keys; values; in-context learning rates.
//!
//! `norm(x) ⊙ weight + bias + v (Σ r ⊙ k' ⊙ bonus)`, the sum over a head, `k'` as in [`Rwkv7`](super::Rwkv7).

use super::rwkv7::weakened;
use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, TokenContext, WeightId};

/// The norm after RWKV 7's recurrence, plus the term that bypasses its state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rwkv7Output {
    /// `[n_heads · head_dim]`: factors of the norm.
    pub weight: WeightId,
    /// `[n_heads · head_dim]`: biases of the norm.
    pub bias: WeightId,
    /// Added to the variance of a head.
    pub eps: f32,
    /// `[n_heads · head_dim]`, or `[n_heads, head_dim]`: factors on products of receptance and keys (`r_k`).
    pub bonus: WeightId,
    /// `[n_heads · head_dim]`: how strongly the learning rate weakens keys (`k_a`).
    pub weakening: WeightId,
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Rwkv7Output {
    fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let vectors = [self.weight, self.bias, self.bonus, self.weakening];
        let vectors = vectors.map(|id| row.weights.vector(id));
        let n = self.head_dim;
        let eps = R::from_f64(f64::from(self.eps));
        for (head, out) in out.chunks_exact_mut(n).enumerate() {
            let of_head = |x: &'_ [R]| x[head * n..][..n].to_vec();
            let [x, r, k, v, a] = [0, 1, 2, 3, 4].map(|input| of_head(row.inputs[input]));
            let [weight, bias, bonus, shares] = vectors.map(of_head);
            let mean = x.iter().copied().sum::<R>() / R::from_f64(n as f64);
            let squares: R = x.iter().map(|x| (*x - mean) * (*x - mean)).sum();
            let root = (squares / R::from_f64(n as f64) + eps).sqrt();
            let keys = weakened([&k, &a, &shares]);
            let products = r.iter().zip(keys).zip(&bonus);
            let own: R = products.map(|((r, k), bonus)| *r * k * *bonus).sum();
            for (i, out) in out.iter_mut().enumerate() {
                *out = (x[i] - mean) / root * weight[i] + bias[i] + own * v[i];
            }
        }
    }
}

impl Operation for Rwkv7Output {
    fn name(&self) -> &'static str {
        "rwkv7_output"
    }

    fn arity(&self) -> usize {
        5
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weights = [self.weight, self.bias, self.bonus, self.weakening];
        weights
            .map(|id| WeightUse::new(id, WeightKind::Vector))
            .into()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let width = self.width();
        fits(width > 0)?;
        for id in [self.weight, self.bias, self.weakening] {
            fits(shapes.weight(id)? == [1, 1, width])?;
        }
        let known = [[1, 1, width], [1, self.n_heads, self.head_dim]];
        fits(known.contains(&shapes.weight(self.bonus)?))?;
        fits((0..5).all(|input| shapes.input(input) == width) && shapes.output() == width)
    }

    fn cost(&self, _graph: &Graph, _depth: &Depth) -> OpCost {
        OpCost {
            flops: 14.0 * self.width() as f64,
            ..OpCost::default()
        }
    }

    by_definition!();
}
