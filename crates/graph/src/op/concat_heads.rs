//! Heads of two values side by side: `out[head] = a[head][from_a] ‖ b[head][from_b]`. Inputs: a, b.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};
use std::ops::Range;

/// `a[head][from_a] ‖ b[head][from_b]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcatHeads {
    /// Heads of each input and of the result.
    pub n_heads: usize,
    /// Elements of a head of a.
    pub from_a: Range<usize>,
    /// Elements of a head of b.
    pub from_b: Range<usize>,
}

impl ConcatHeads {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let [a, b] = [row.inputs[0], row.inputs[1]];
        let (n_a, n_b) = (a.len() / self.n_heads, b.len() / self.n_heads);
        let width = self.from_a.len() + self.from_b.len();
        let heads = a.chunks_exact(n_a).zip(b.chunks_exact(n_b));
        for (out, (a, b)) in out.chunks_exact_mut(width).zip(heads) {
            let (left, right) = out.split_at_mut(self.from_a.len());
            left.copy_from_slice(&a[self.from_a.clone()]);
            right.copy_from_slice(&b[self.from_b.clone()]);
        }
    }
}

impl Operation for ConcatHeads {
    fn name(&self) -> &'static str {
        "concat_heads"
    }

    fn arity(&self) -> usize {
        2
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let n = self.n_heads;
        fits(n > 0)?;
        let parts = [
            (shapes.input(0), &self.from_a),
            (shapes.input(1), &self.from_b),
        ];
        let inside = |(width, part): (usize, &Range<usize>)| {
            width.is_multiple_of(n) && part.start <= part.end && part.end <= width / n
        };
        let width = n * (self.from_a.len() + self.from_b.len());
        fits(parts.into_iter().all(inside) && shapes.output() == width)
    }

    by_definition!();
}
