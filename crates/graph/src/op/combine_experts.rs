//! The sum of the chosen experts' results, weighted or not, in the order of the choice. Inputs: the experts' results
//! side by side, the choice.

use super::route::choice_weights;
use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `sum of weight[rank] · x[rank]`, the ranks in order; or of `x[rank]` alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CombineExperts {
    /// Experts that a token uses.
    pub n_used: usize,
    /// Whether to apply the weights here; otherwise they were applied to the experts' inputs ([`WeighExperts`](super::WeighExperts)).
    pub weighted: bool,
}

impl CombineExperts {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let weights = choice_weights(row.inputs[1]);
        let width = out.len();
        out.fill(R::default());
        for (x, weight) in row.inputs[0].chunks_exact(width).zip(weights) {
            for (out, x) in out.iter_mut().zip(x) {
                *out += match self.weighted {
                    true => *weight * *x,
                    false => *x,
                };
            }
        }
    }
}

impl Operation for CombineExperts {
    fn name(&self) -> &'static str {
        "combine_experts"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let all = self.n_used.checked_mul(shapes.output());
        fits(all == Some(shapes.input(0)) && shapes.input(1) == 3 * self.n_used)
    }

    by_definition!();
}
