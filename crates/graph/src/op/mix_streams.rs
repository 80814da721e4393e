//! Mixtures of streams: `out[i] = x[i] + Σ_j weights[i·n + j] · x[j]`. Inputs: x (`n_streams` streams side by side), weights
//! (`n_streams²`).
//!
//! AltUp uses it to predict a block's effect on the streams that the block does not compute (Baykal et al. 2023, Alternating
//! Updates for Efficient Transformers, section 3).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `x[i] + Σ_j weights[i·n + j] · x[j]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixStreams {
    /// Streams side by side.
    pub n_streams: usize,
}

impl MixStreams {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let (x, n) = (row.inputs[0], self.n_streams);
        let width = x.len() / n;
        let weights = row.inputs[1].chunks_exact(n);
        for (out, weights) in out.chunks_exact_mut(width).zip(weights) {
            out.fill(R::default());
            for (x, weight) in x.chunks_exact(width).zip(weights) {
                for (out, x) in out.iter_mut().zip(x) {
                    *out += *weight * *x;
                }
            }
        }
        for (out, x) in out.iter_mut().zip(x) {
            *out += *x;
        }
    }
}

impl Operation for MixStreams {
    fn name(&self) -> &'static str {
        "mix_streams"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let n = self.n_streams;
        fits(n > 0 && shapes.input(0).is_multiple_of(n))?;
        fits(n.checked_mul(n) == Some(shapes.input(1)) && shapes.input(0) == shapes.output())
    }

    by_definition!();
}
