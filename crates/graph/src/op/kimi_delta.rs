//! Kimi delta attention (Kimi Team 2025, "Kimi Linear", section 3): a gated delta net with a separate decay for each
//! element of a key. Inputs: queries; keys; values; as many numbers for the decays; a number for each head for the strength
//! of the correction.
//!
//! With `q` and `k` of unit length, `g = e^(rate · softplus(a + dt))` and `β = sigmoid(b)`:
//! `S = g ⊙ S` by rows, `S += k ⊗ β (v - Sᵀ k)`, `out = Sᵀ q / sqrt(head_dim)`.

use super::delta_net::{DecayForm, KEY_DIM_MAX, STATE_LANES, softplus, unit};
use super::glu::sigmoid;
use super::rule::{RuleToken, rule_cost, rule_state};
use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, TokenContext, WeightId};

/// Kimi delta attention. The state holds a head's matrix in the layout of
/// [`DeltaNet`](super::DeltaNet): `[n_heads, head_dim / 16 rounded up, head_dim, 16]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KimiDelta {
    /// Index of its state.
    pub state: usize,
    /// `[n_heads]`: rates of decay.
    pub rate: WeightId,
    /// How the rates are stored.
    pub form: DecayForm,
    /// `[n_heads · head_dim]`: added to the input for the decays.
    pub dt: WeightId,
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head, for keys and for values.
    pub head_dim: usize,
}

impl KimiDelta {
    /// Elements of all heads.
    pub fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let [rates, dts] = [self.rate, self.dt].map(|id| row.weights.vector(id));
        let n = self.head_dim;
        let root = R::from_f64(n as f64).sqrt();
        let head_elems = n.next_multiple_of(STATE_LANES) * n;
        let heads = out
            .chunks_exact_mut(n)
            .zip(state.chunks_exact_mut(head_elems));
        for (head, (out, state)) in heads.enumerate() {
            let [q, k, v, a] = [0, 1, 2, 3].map(|input| &row.inputs[input][head * n..][..n]);
            let rate = match self.form {
                DecayForm::Rate => rates[head],
                DecayForm::Logarithm => -rates[head].exp(),
            };
            let strength = sigmoid(row.inputs[4][head], crate::exact);
            let steps = a.iter().zip(&dts[head * n..]);
            let decay: Vec<R> = steps
                .map(|(a, dt)| (rate * softplus(*a + *dt)).exp())
                .collect();
            let k: Vec<R> = unit(k).collect();
            let token = RuleToken {
                q: unit(q).map(|x| x / root).collect(),
                read: k.iter().zip(&decay).map(|(k, g)| *k * *g).collect(),
                write: k.iter().map(|k| -strength * *k).collect(),
                k: k.iter().map(|k| strength * *k).collect(),
                decay,
            };
            token.apply(v, state, out);
        }
    }
}

impl Operation for KimiDelta {
    fn name(&self) -> &'static str {
        "kimi_delta"
    }

    fn arity(&self) -> usize {
        5
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weights = [self.rate, self.dt];
        weights
            .map(|id| WeightUse::new(id, WeightKind::Vector))
            .into()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits((1..=KEY_DIM_MAX).contains(&self.head_dim) && self.n_heads > 0)?;
        // Files have dimensions of size one around the heads.
        let [n_experts, n, k] = shapes.weight(self.rate)?;
        fits(n_experts * n * k == self.n_heads && n_experts.max(n).max(k) == self.n_heads)?;
        fits(shapes.weight(self.dt)? == [1, 1, self.width()])?;
        fits((0..4).all(|input| shapes.input(input) == self.width()))?;
        fits(shapes.input(4) == self.n_heads && shapes.output() == self.width())
    }

    fn memory(&self) -> SequenceMemory {
        rule_state(self.state, self.n_heads, self.head_dim)
    }

    fn cost(&self, _graph: &Graph, _depth: &Depth) -> OpCost {
        rule_cost(self.n_heads, self.head_dim)
    }

    by_definition!();
}
