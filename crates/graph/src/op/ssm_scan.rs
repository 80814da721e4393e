//! Selective scan of Mamba-2 (Dao and Gu 2024, "Transformers are SSMs", section 7). Each head has a matrix; every token decays
//! it, adds to it and reads it. Inputs: values, keys (`B`) and queries (`C`) side by side; a number for each head for the step.
//!
//! With `Δ = clamp(softplus(dt + bias))`: `S = e^(rate · Δ) · S + k ⊗ Δ x`, `out = Sᵀ q + skip · x`.

use super::delta_net::{DecayForm, KEY_DIM_MAX, STATE_LANES, softplus};
use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, StateShape, TokenContext, WeightId};

/// A selective scan. The state holds a head's matrix `[d_state, head_dim]` in groups of [`STATE_LANES`] columns,
/// zero-padded: `[n_heads, head_dim / 16 rounded up, d_state, 16]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsmScan {
    /// Index of its state.
    pub state: usize,
    /// `[n_heads]`: rates of decay (`A`).
    pub rate: WeightId,
    /// How the rates are stored.
    pub form: DecayForm,
    /// `[n_heads]`: added to the input for the step.
    pub dt: WeightId,
    /// `[n_heads]`: the share of the value that bypasses the state (`D`).
    pub skip: WeightId,
    /// Smallest and largest step.
    pub dt_limit: (f32, f32),
    /// Heads of values.
    pub n_heads: usize,
    /// Heads of keys and queries; the same number of neighbouring value heads reads each.
    pub n_groups: usize,
    /// Elements of a head of values.
    pub head_dim: usize,
    /// Elements of a key.
    pub d_state: usize,
}

impl SsmScan {
    /// Elements of all heads' values.
    pub fn value_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of a token's values, keys and queries.
    pub fn xbc_width(&self) -> usize {
        self.value_width() + 2 * self.n_groups * self.d_state
    }

    /// Elements of a head's state.
    pub fn head_elems(&self) -> usize {
        self.head_dim.next_multiple_of(STATE_LANES) * self.d_state
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let [rates, dts, skips] = [self.rate, self.dt, self.skip].map(|id| row.weights.vector(id));
        let (low, high) = self.dt_limit;
        let [low, high] = [low, high].map(|x| R::from_f64(f64::from(x)));
        let (x, bc) = row.inputs[0].split_at(self.value_width());
        let (b, c) = bc.split_at(self.n_groups * self.d_state);
        let heads = out
            .chunks_exact_mut(self.head_dim)
            .zip(x.chunks_exact(self.head_dim));
        let states = state.chunks_exact_mut(self.head_elems());
        for (head, ((out, x), state)) in heads.zip(states).enumerate() {
            let at = head / (self.n_heads / self.n_groups) * self.d_state;
            let (k, q) = (&b[at..][..self.d_state], &c[at..][..self.d_state]);
            let rate = match self.form {
                DecayForm::Rate => rates[head],
                DecayForm::Logarithm => -rates[head].exp(),
            };
            let step = softplus(row.inputs[1][head] + dts[head]).max(low);
            let step = -(-step).max(-high);
            let decay = (rate * step).exp();
            for (j, (out, x)) in out.iter_mut().zip(x).enumerate() {
                let block = j / STATE_LANES * self.d_state * STATE_LANES;
                let column = state[block + j % STATE_LANES..].iter_mut();
                *out = skips[head] * *x;
                for ((cell, k), q) in column.step_by(STATE_LANES).zip(k).zip(q) {
                    *cell = decay * *cell + *k * (step * *x);
                    *out += *cell * *q;
                }
            }
        }
    }
}

impl Operation for SsmScan {
    fn name(&self) -> &'static str {
        "ssm_scan"
    }

    fn arity(&self) -> usize {
        2
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weights = [self.rate, self.dt, self.skip];
        weights
            .map(|id| WeightUse::new(id, WeightKind::Vector))
            .into()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let divides = self.n_groups > 0 && self.n_heads.is_multiple_of(self.n_groups);
        let sizes = (1..=KEY_DIM_MAX).contains(&self.d_state) && self.head_dim > 0;
        fits(divides && sizes && self.n_heads > 0)?;
        // A NaN limit fails.
        fits(self.dt_limit.0 <= self.dt_limit.1)?;
        for vector in [self.rate, self.dt, self.skip] {
            // llama.cpp's files have a dimension of size one after the heads.
            let [n_experts, n, k] = shapes.weight(vector)?;
            fits(n_experts == 1 && n.min(k) == 1 && n.max(k) == self.n_heads)?;
        }
        let fit = shapes.input(0) == self.xbc_width() && shapes.input(1) == self.n_heads;
        fits(fit && shapes.output() == self.value_width())
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(StateShape {
            index: self.state,
            n_elems: self.n_heads * self.head_elems(),
        })
    }

    fn cost(&self, _graph: &Graph, _depth: &Depth) -> OpCost {
        let n_elems = (self.n_heads * self.head_elems()) as f64;
        OpCost {
            flops: 5.0 * n_elems,
            memory_bytes: 2.0 * 4.0 * n_elems,
            ..OpCost::default()
        }
    }

    by_definition!();
}
