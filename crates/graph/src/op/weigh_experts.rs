//! The inputs of the chosen experts, each scaled by the expert's weight: `weight[rank] · x`, the results side by side in
//! the order of the choice. Inputs: x, the choice.
//!
//! Llama 4 weighs the inputs of its experts this way, not their outputs.

use super::route::choice_weights;
use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `weight[rank] · x`, one row for each rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeighExperts {
    /// Experts that a token uses.
    pub n_used: usize,
}

impl WeighExperts {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let (x, weights) = (row.inputs[0], choice_weights(row.inputs[1]));
        for (out, weight) in out.chunks_exact_mut(x.len()).zip(weights) {
            for (out, x) in out.iter_mut().zip(x) {
                *out = *weight * *x;
            }
        }
    }
}

impl Operation for WeighExperts {
    fn name(&self) -> &'static str {
        "weigh_experts"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let all = self.n_used.checked_mul(shapes.input(0));
        fits(all == Some(shapes.output()) && shapes.input(1) == 3 * self.n_used)
    }

    by_definition!();
}
