//! Causal depthwise convolution: a weighted sum of each channel over the last tokens, then an activation:
//! `act(Σ weight[channel][tap] · x[token - n_taps + 1 + tap][channel] (+ bias[channel]))`. Inputs: x.

use super::{Activation, Companion, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, StateShape, TokenContext, WeightId};

/// Maximum number of tokens that a convolution reads.
pub const TAPS_MAX: usize = 8;

/// A depthwise convolution over tokens. The state holds the inputs of the last `n_taps - 1` tokens, the oldest first:
/// `[n_taps - 1, n_channels]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CausalConv {
    /// Index of its state.
    pub state: usize,
    /// `[n_channels, n_taps]`, the oldest token's first.
    pub weight: WeightId,
    /// `[n_channels]`.
    pub bias: Option<WeightId>,
    /// Channels.
    pub n_channels: usize,
    /// Tokens that a sum reads: 2 to [`TAPS_MAX`].
    pub n_taps: usize,
    /// Activation of the sum.
    pub activation: Option<Activation>,
}

impl CausalConv {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        let weight = row.weights.vector(self.weight);
        let bias = self.bias.map(|bias| row.weights.vector(bias));
        let (x, n) = (row.inputs[0], self.n_channels);
        let taps = weight.chunks_exact(self.n_taps);
        for (channel, (out, taps)) in out.iter_mut().zip(taps).enumerate() {
            let before = state[channel..].iter().step_by(n);
            let inputs = before.chain([&x[channel]]);
            let sum: R = inputs.zip(taps).map(|(x, w)| *x * *w).sum();
            let sum = bias.map_or(sum, |bias| sum + bias[channel]);
            *out = match self.activation {
                Some(activation) => activation.apply(sum, row.round),
                None => sum,
            };
        }
        state.copy_within(n.., 0);
        let newest = state.len() - n;
        state[newest..].copy_from_slice(x);
    }
}

impl Operation for CausalConv {
    fn name(&self) -> &'static str {
        "causal_conv"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weight = WeightUse::new(self.weight, WeightKind::Vector);
        let bias = |id| WeightUse::companion(id, Companion::Bias);
        [weight].into_iter().chain(self.bias.map(bias)).collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let [n_experts, n, k] = shapes.weight(self.weight)?;
        // transformers' files have a dimension of size one between the two.
        let fits_weight = k == self.n_taps && n_experts.checked_mul(n) == Some(self.n_channels);
        if let Some(bias) = self.bias {
            fits(shapes.weight(bias)? == [1, 1, self.n_channels])?;
        }
        fits(fits_weight && (2..=TAPS_MAX).contains(&self.n_taps))?;
        fits(shapes.input(0) == self.n_channels && shapes.output() == self.n_channels)
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::State(StateShape {
            index: self.state,
            n_elems: self.n_taps.saturating_sub(1) * self.n_channels,
        })
    }

    fn cost(&self, graph: &Graph, _depth: &Depth) -> OpCost {
        let weight = graph.weights.get(self.weight.0);
        let n_elems = (self.n_channels * self.n_taps) as f64;
        OpCost {
            flops: 2.0 * n_elems,
            weight_bytes: weight.map_or(0.0, |weight| weight.size_bytes() as f64),
            memory_bytes: 2.0 * 4.0 * n_elems,
            ..OpCost::default()
        }
    }

    by_definition!();
}
