//! Rows scaled to the magnitude of another: `out[i] = x[i] · rms(y) / max(rms(x[i]), √floor)`, for each part of x that is as
//! wide as y. Inputs: x, y.
//!
//! Gemma 3n preserves the magnitude of its streams this way, where projections expand one stream into several and reduce
//! them to one again.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `x[i] · rms(y) / max(rms(x[i]), √floor)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchMagnitude {
    /// Lower bound of the mean square of a part of x, above 0.
    pub floor: f32,
}

impl MatchMagnitude {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let [x, y] = [row.inputs[0], row.inputs[1]];
        let wanted = mean_square(y).sqrt();
        let floor = f64::from(self.floor);
        let parts = x.chunks_exact(y.len());
        for (out, x) in out.chunks_exact_mut(y.len()).zip(parts) {
            let factor = R::from_f64(wanted / mean_square(x).max(floor).sqrt());
            for (out, x) in out.iter_mut().zip(x) {
                *out = *x * factor;
            }
        }
    }
}

/// The mean of squares, in f64: one order of sums, and negligible rounding.
fn mean_square<R: Real>(x: &[R]) -> f64 {
    let squares = x.iter().map(|x| x.to_f64() * x.to_f64());
    squares.sum::<f64>() / x.len() as f64
}

impl Operation for MatchMagnitude {
    fn name(&self) -> &'static str {
        "match_magnitude"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0).is_multiple_of(shapes.input(1)))?;
        fits(shapes.input(0) == shapes.output() && self.floor > 0.0)
    }

    by_definition!();
}
