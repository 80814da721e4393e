//! The excess over a threshold above the mean: `max(0, x - mean(x) - deviations · std(x))`, with the population standard
//! deviation (not that of a sample). Inputs: x.
//!
//! Gemma 3n keeps the largest elements of a gate this way without sorting. Of normally distributed numbers, a known
//! share is this far above the mean (You et al. 2025, Spark Transformer, section 3.2: statistical top-k).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `max(0, x - mean(x) - deviations · std(x))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianTopK {
    /// Standard deviations between the mean and the threshold.
    pub deviations: f32,
}

impl GaussianTopK {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let x = row.inputs[0];
        let n = x.len() as f64;
        // In f64: one order of sums, and negligible rounding.
        let mean = x.iter().map(|x| x.to_f64()).sum::<f64>() / n;
        let squares = x.iter().map(|x| (x.to_f64() - mean).powi(2));
        let deviation = (squares.sum::<f64>() / n).sqrt();
        let cutoff = R::from_f64(mean + deviation * f64::from(self.deviations));
        for (out, x) in out.iter_mut().zip(x) {
            *out = (*x - cutoff).max(R::default());
        }
    }
}

impl Operation for GaussianTopK {
    fn name(&self) -> &'static str {
        "gaussian_topk"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0) == shapes.output() && self.deviations.is_finite())
    }

    by_definition!();
}
