//! A gated activation: `act(gate) · up`. Inputs: gate, up.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// `act(gate) · up`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glu {
    /// Activation on the gate.
    pub activation: Activation,
}

impl Activation {
    /// The activation, the sigmoid by `(1 + tanh(x / 2)) / 2`.
    fn apply<R: Real>(self, x: R, round: fn(R) -> R) -> R {
        let [half, one] = [0.5, 1.0].map(R::from_f64);
        match self {
            Activation::Silu => round(x * round(half * round(one + round((half * x).tanh())))),
            Activation::GeluTanh => {
                // sqrt(2 / pi), and the cubic's factor: Hendrycks and Gimpel 2016, section 2.
                let [a, b] = [0.797_884_560_802_865_4, 0.044_715].map(R::from_f64);
                let argument = a * (x + b * x * x * x);
                round(round(half * x) * round(one + round(argument.tanh())))
            }
        }
    }
}

impl Glu {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let pairs = row.inputs[0].iter().zip(row.inputs[1]);
        for (out, (gate, up)) in out.iter_mut().zip(pairs) {
            *out = self.activation.apply(*gate, row.round) * *up;
        }
    }
}

impl Operation for Glu {
    fn name(&self) -> &'static str {
        "glu"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let out = shapes.output();
        fits(shapes.input(0) == out && shapes.input(1) == out)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
