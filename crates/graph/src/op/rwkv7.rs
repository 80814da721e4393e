//! RWKV 7's recurrence (Peng et al. 2025, "RWKV-7 Goose", section 4.1). A head's matrix decays element by element of the
//! key, loses one direction and gains another. Inputs: receptance; the decay input of each element, 0 to 1; keys; values;
//! in-context learning rates, 0 to 1.
//!
//! With `κ` the keys times their factors, of unit length in each head, `w = e^(-fade / √e)` and `k' = k ⊙ (1 + (a - 1) ⊙ share)`:
//! `S = w ⊙ S - (κ ⊙ a) ⊗ (Sᵀ κ) + k' ⊗ v` by rows, `out = Sᵀ r`.

use super::rule::{RuleToken, rule_cost, rule_state};
use super::{KEY_DIM_MAX, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, TokenContext, WeightId};

/// The recurrence of RWKV 7. The state holds a head's matrix in the layout of
/// [`DeltaNet`](super::DeltaNet): `[n_heads, head_dim / 16 rounded up, head_dim, 16]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rwkv7 {
    /// Index of its state.
    pub state: usize,
    /// `[n_heads · head_dim]`: factors on keys for the removed direction (`k_k`).
    pub removal: WeightId,
    /// `[n_heads · head_dim]`: how strongly the learning rate weakens the added keys (`k_a`).
    pub weakening: WeightId,
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head, for keys and for values.
    pub head_dim: usize,
}

/// Negated logarithm of the strongest decay: `1 / √e`.
const FADE: f64 = 0.606_530_659_712_633_4;

/// Added to the sum of squares under the root by which a direction is divided: the square of the smallest length in the
/// published code.
const SQUARES_EPS: f64 = 1e-24;

/// The added keys, for one head or for all: `k ⊙ (1 + (a - 1) ⊙ share)`.
pub(super) fn weakened<'a, R: Real>(
    [k, a, shares]: [&'a [R]; 3],
) -> impl Iterator<Item = R> + use<'a, R> {
    let one = R::from_f64(1.0);
    let elements = k.iter().zip(a).zip(shares);
    elements.map(move |((k, a), share)| *k * (one + (*a - one) * *share))
}

impl Rwkv7 {
    /// Elements of all heads.
    pub fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let [removal, weakening] = [self.removal, self.weakening].map(|id| row.weights.vector(id));
        let n = self.head_dim;
        let head_elems = state.len() / self.n_heads;
        let heads = out
            .chunks_exact_mut(n)
            .zip(state.chunks_exact_mut(head_elems));
        for (head, (out, state)) in heads.enumerate() {
            let of_head = |x: &'_ [R]| x[head * n..][..n].to_vec();
            let [r, fade, k, v, a] = [0, 1, 2, 3, 4].map(|input| of_head(row.inputs[input]));
            let factors = of_head(removal);
            let direction: Vec<R> = k.iter().zip(&factors).map(|(k, f)| *k * *f).collect();
            let squares: R = direction.iter().map(|x| *x * *x).sum();
            let length = (squares + R::from_f64(SQUARES_EPS)).sqrt();
            let read: Vec<R> = direction.iter().map(|x| -(*x / length)).collect();
            let token = RuleToken {
                q: r,
                decay: fade
                    .iter()
                    .map(|x| (R::from_f64(-FADE) * *x).exp())
                    .collect(),
                k: weakened([&k, &a, &weakening[head * n..][..n]]).collect(),
                write: read.iter().zip(&a).map(|(x, a)| -(*x * *a)).collect(),
                read,
            };
            token.apply(&v, state, out);
        }
    }
}

impl Operation for Rwkv7 {
    fn name(&self) -> &'static str {
        "rwkv7"
    }

    fn arity(&self) -> usize {
        5
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weights = [self.removal, self.weakening];
        weights
            .map(|id| WeightUse::new(id, WeightKind::Vector))
            .into()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits((1..=KEY_DIM_MAX).contains(&self.head_dim) && self.n_heads > 0)?;
        for id in [self.removal, self.weakening] {
            fits(shapes.weight(id)? == [1, 1, self.width()])?;
        }
        fits((0..5).all(|input| shapes.input(input) == self.width()))?;
        fits(shapes.output() == self.width())
    }

    fn memory(&self) -> SequenceMemory {
        rule_state(self.state, self.n_heads, self.head_dim)
    }

    fn cost(&self, _graph: &Graph, _depth: &Depth) -> OpCost {
        rule_cost(self.n_heads, self.head_dim)
    }

    by_definition!();
}
