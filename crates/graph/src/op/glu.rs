//! A gated activation: `act(gate) · up`. Inputs: gate, up.

use super::{OpRole, Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// GELU by the error function: `x / 2 · (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

/// Bounds and constants of a clamped gated activation: `g · sigmoid(alpha · g) · (u + 1)` with
/// `g = min(gate, limit)` and `u = up` bounded by `-limit` and `limit` (gpt-oss).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GluClamp {
    /// Factor in the sigmoid.
    pub alpha: f32,
    /// Bound of both inputs.
    pub limit: f32,
}

/// `act(gate) · up`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glu {
    /// Activation on the gate.
    pub activation: Activation,
    /// If set, its formula replaces that of `activation`.
    pub clamp: Option<GluClamp>,
}

/// `1 / (1 + e^-x)` by `(1 + tanh(x / 2)) / 2`.
pub(super) fn sigmoid<R: Real>(x: R, round: fn(R) -> R) -> R {
    let [half, one] = [0.5, 1.0].map(R::from_f64);
    round(half * round(one + round((half * x).tanh())))
}

impl Activation {
    /// The activation.
    pub fn apply<R: Real>(self, x: R, round: fn(R) -> R) -> R {
        let [zero, half, one] = [0.0, 0.5, 1.0].map(R::from_f64);
        match self {
            Activation::Silu => round(x * sigmoid(x, round)),
            Activation::GeluTanh => {
                // sqrt(2 / pi), and the cubic's factor: Hendrycks and Gimpel 2016, section 2.
                let [a, b] = [0.797_884_560_802_865_4, 0.044_715].map(R::from_f64);
                let argument = a * (x + b * x * x * x);
                round(round(half * x) * round(one + round(argument.tanh())))
            }
            Activation::Gelu => {
                let root = R::from_f64(std::f64::consts::FRAC_1_SQRT_2);
                round(round(half * x) * round(one + round((x * root).erf())))
            }
            Activation::Relu => x.max(zero),
            Activation::ReluSquared => round(x.max(zero) * x.max(zero)),
            Activation::Sigmoid => sigmoid(x, round),
        }
    }
}

impl GluClamp {
    fn apply<R: Real>(self, gate: R, up: R, round: fn(R) -> R) -> R {
        let [alpha, limit] = [self.alpha, self.limit].map(|x| R::from_f64(f64::from(x)));
        let below = |x: R| -(-x).max(-limit);
        let (gate, up) = (below(gate), below(up).max(-limit));
        let gate = round(gate * sigmoid(round(alpha * gate), round));
        gate * round(up + R::from_f64(1.0))
    }
}

impl Glu {
    /// `act(gate) · up`, unbounded.
    pub fn new(activation: Activation) -> Glu {
        Glu {
            activation,
            clamp: None,
        }
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let pairs = row.inputs[0].iter().zip(row.inputs[1]);
        for (out, (gate, up)) in out.iter_mut().zip(pairs) {
            *out = match self.clamp {
                Some(clamp) => clamp.apply(*gate, *up, row.round),
                None => self.activation.apply(*gate, row.round) * *up,
            };
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

    fn role(&self) -> OpRole {
        OpRole::Gate
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
