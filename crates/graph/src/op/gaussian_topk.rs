//! What is far above the mean: `max(0, x - mean(x) - deviations · std(x))`, the deviation that of all elements (not of a
//! sample). Inputs: x.
//!
//! Gemma 3n keeps the largest elements of a gate so without sorting: of numbers that are distributed normally a known
//! share lies so far above their mean (You et al. 2025, Spark Transformer, section 3.2: statistical top-k).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `max(0, x - mean(x) - deviations · std(x))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianTopK {
    /// Standard deviations above the mean from which on elements count.
    pub deviations: f32,
}

impl GaussianTopK {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let x = row.inputs[0];
        let n = x.len() as f64;
        // In f64: one order of sums, and no rounding that counts.
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
