//! A part of each head: `out[head] = x[head][range]`. Inputs: x.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};
use std::ops::Range;

/// `x[head][range]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceHeads {
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head that are taken.
    pub range: Range<usize>,
}

impl SliceHeads {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let heads = row.inputs[0].chunks_exact(row.inputs[0].len() / self.n_heads);
        for (out, x) in out.chunks_exact_mut(self.range.len()).zip(heads) {
            out.copy_from_slice(&x[self.range.clone()]);
        }
    }
}

impl Operation for SliceHeads {
    fn name(&self) -> &'static str {
        "slice_heads"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let divides = self.n_heads > 0 && shapes.input(0).is_multiple_of(self.n_heads);
        fits(divides)?;
        let inside = self.range.end <= shapes.input(0) / self.n_heads && !self.range.is_empty();
        fits(inside && shapes.output() == self.n_heads * self.range.len())
    }

    by_definition!();
}
