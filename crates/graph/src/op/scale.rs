//! A product with a number: `factor · x`. Inputs: x.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `factor · x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The number.
    pub factor: f32,
}

impl Scale {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let factor = R::from_f64(f64::from(self.factor));
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            *out = *x * factor;
        }
    }
}

impl Operation for Scale {
    fn name(&self) -> &'static str {
        "scale"
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
