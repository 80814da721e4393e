//! An activation without a gate: `act(x)`. Inputs: x.

use super::{Activation, Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `act(x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activate {
    /// The function.
    pub activation: Activation,
}

impl Activate {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            *out = self.activation.apply(*x, row.round);
        }
    }
}

impl Operation for Activate {
    fn name(&self) -> &'static str {
        "activate"
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
