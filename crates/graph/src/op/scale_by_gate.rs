//! A product with the sigmoid of one number a token: `sigmoid(gate) · x`. Inputs: x, gate (one element).
//!
//! Qwen's mixtures weigh their shared expert this way.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::op::glu::sigmoid;
use crate::{Real, TokenContext};

/// `sigmoid(gate) · x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleByGate;

impl ScaleByGate {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let factor = sigmoid(row.inputs[1][0], row.round);
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            *out = *x * factor;
        }
    }
}

impl Operation for ScaleByGate {
    fn name(&self) -> &'static str {
        "scale_by_gate"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0) == shapes.output() && shapes.input(1) == 1)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
