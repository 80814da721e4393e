//! A factor that grows with the position: `x · (1 + scale · ln(1 + floor((position + first) / length)))`. Inputs: x.
//!
//! Models for long contexts sharpen their queries this way (Llama 4 and Ministral 3, whose
//! configurations call it the scale of the attention's temperature).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `x · (1 + scale · ln(1 + floor((position + first) / length)))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Factor on the logarithm.
    pub scale: f32,
    /// Positions over which the factor stays the same.
    pub length: usize,
    /// Added to the position: 1 in Llama 4, 0 in Ministral 3.
    pub first: usize,
}

impl Temperature {
    /// The factor at a position.
    pub fn factor(&self, position: usize) -> f64 {
        let steps = (position + self.first) / self.length.max(1);
        1.0 + f64::from(self.scale) * (steps as f64).ln_1p()
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let factor = R::from_f64(self.factor(row.position));
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            *out = *x * factor;
        }
    }
}

impl Operation for Temperature {
    fn name(&self) -> &'static str {
        "temperature"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0) == shapes.output() && self.length > 0)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
