//! A product element by element: `a · b`. Inputs: a, b.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `a · b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multiply;

impl Multiply {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let pairs = row.inputs[0].iter().zip(row.inputs[1]);
        for (out, (a, b)) in out.iter_mut().zip(pairs) {
            *out = *a * *b;
        }
    }
}

impl Operation for Multiply {
    fn name(&self) -> &'static str {
        "multiply"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let out = shapes.output();
        fits(shapes.input(0) == out && shapes.input(1) == out)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0, 1]
    }

    by_definition!();
}
