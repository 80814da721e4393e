//! Neighbouring elements of a row: `x[first .. first + width of the result]`. Inputs: x.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `x[first ..]`, as many as the result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first element.
    pub first: usize,
}

impl Slice {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        out.copy_from_slice(&row.inputs[0][self.first..][..out.len()]);
    }
}

impl Operation for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let end = self.first.checked_add(shapes.output());
        fits(end.is_some_and(|end| end <= shapes.input(0)))
    }

    by_definition!();
}
