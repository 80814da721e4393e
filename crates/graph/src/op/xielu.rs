//! xIELU (Huang and Schlag 2024, "Deriving activation functions using integration"): a square above zero, an exponential
//! below, with factors that a model learns. Inputs: x.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `square · x² + linear · x` above zero, otherwise `exponential · (e^min(x, bound) - 1 - x) + linear · x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// Factor on the square.
    pub square: f32,
    /// Factor on the exponential.
    pub exponential: f32,
    /// Slope at zero.
    pub linear: f32,
    /// Upper bound of the exponent: a little below zero.
    pub bound: f32,
}

impl Xielu {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let factors = [self.square, self.exponential, self.linear, self.bound];
        let [square, exponential, linear, bound] = factors.map(|x| R::from_f64(f64::from(x)));
        for (out, &x) in out.iter_mut().zip(row.inputs[0]) {
            let curve = match x > R::default() {
                true => square * (row.round)(x * x),
                // The smaller of the two.
                false => exponential * ((row.round)((-(-x).max(-bound)).exp_m1()) - x),
            };
            *out = curve + linear * x;
        }
    }
}

impl Operation for Xielu {
    fn name(&self) -> &'static str {
        "xielu"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0) == shapes.output())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
