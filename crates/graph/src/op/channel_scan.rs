//! Selective scan of Mamba (Gu and Dao 2023, "Linear-Time Sequence Modeling with Selective State Spaces", algorithm 2). Each
//! channel has a vector; every token decays it, adds to it and reads it, with a separate rate for each element. Inputs:
//! values, steps, keys (`B`) and queries (`C`).
//!
//! With `Δ = softplus(dt)`: `s = e^(rate · Δ) · s + k · Δ x`, `out = s · q + skip · x`.

use super::delta_net::{DecayForm, KEY_DIM_MAX, STATE_LANES, softplus};
use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, StateShape, TokenContext, WeightId};

/// A selective scan whose channels share only keys and queries. The state holds their vectors in groups of
/// [`STATE_LANES`] channels, zero-padded: `[n_channels / 16 rounded up, d_state, 16]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelScan {
    /// Index of its state.
    pub state: usize,
    /// `[n_channels, d_state]`: rates of decay (`A`).
    pub rate: WeightId,
    /// How the rates are stored.
    pub form: DecayForm,
    /// `[n_channels]`: the share of the value that bypasses the state (`D`).
    pub skip: WeightId,
    /// Channels.
    pub n_channels: usize,
    /// Elements of a key, and of a channel's vector.
    pub d_state: usize,
}

impl ChannelScan {
    /// Elements of all channels' states.
    pub fn state_elems(&self) -> usize {
        self.n_channels.next_multiple_of(STATE_LANES) * self.d_state
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let [rates, skips] = [self.rate, self.skip].map(|id| row.weights.vector(id));
        let [x, dt, k, q] = [0, 1, 2, 3].map(|input| row.inputs[input]);
        for (channel, out) in out.iter_mut().enumerate() {
            let block = channel / STATE_LANES * self.d_state * STATE_LANES;
            let cells = state[block + channel % STATE_LANES..].iter_mut();
            let rates = &rates[channel * self.d_state..];
            let step = softplus(dt[channel]);
            *out = skips[channel] * x[channel];
            let keys = k.iter().zip(q).zip(rates);
            for (cell, ((k, q), rate)) in cells.step_by(STATE_LANES).zip(keys) {
                let rate = match self.form {
                    DecayForm::Rate => *rate,
                    DecayForm::Logarithm => -rate.exp(),
                };
                *cell = (rate * step).exp() * *cell + *k * (step * x[channel]);
                *out += *cell * *q;
            }
        }
    }
}

impl Operation for ChannelScan {
    fn name(&self) -> &'static str {
        "channel_scan"
    }

    fn arity(&self) -> usize {
        4
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weights = [self.rate, self.skip];
        weights
            .map(|id| WeightUse::new(id, WeightKind::Vector))
            .into()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits((1..=KEY_DIM_MAX).contains(&self.d_state) && self.n_channels > 0)?;
        fits(shapes.weight(self.rate)? == [1, self.n_channels, self.d_state])?;
        fits(shapes.weight(self.skip)? == [1, 1, self.n_channels])?;
        let channels = [shapes.input(0), shapes.input(1), shapes.output()];
        let keys = [shapes.input(2), shapes.input(3)];
        fits(channels == [self.n_channels; 3] && keys == [self.d_state; 2])
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(StateShape {
            index: self.state,
            n_elems: self.state_elems(),
        })
    }

    fn cost(&self, _graph: &Graph, _depth: &Depth) -> OpCost {
        let n_elems = self.state_elems() as f64;
        OpCost {
            // An exponential counts as one operation.
            flops: 7.0 * n_elems,
            memory_bytes: 2.0 * 4.0 * n_elems,
            ..OpCost::default()
        }
    }

    by_definition!();
}
