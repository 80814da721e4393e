//! Heads with zeros behind: `out[head] = x[head] ‖ 0`. Inputs: x.
//!
//! Where heads of values are smaller than those of keys (MiMo 2), a cache keeps both at the size of keys.

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `x[head] ‖ 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PadHeads {
    /// Elements of a head of x.
    pub from: usize,
    /// Elements of a head of the result, at least as many.
    pub to: usize,
}

impl PadHeads {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let heads = row.inputs[0].chunks_exact(self.from);
        for (out, x) in out.chunks_exact_mut(self.to).zip(heads) {
            let (own, rest) = out.split_at_mut(self.from);
            own.copy_from_slice(x);
            rest.fill(R::default());
        }
    }
}

impl Operation for PadHeads {
    fn name(&self) -> &'static str {
        "pad_heads"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let PadHeads { from, to } = *self;
        let width = shapes.input(0);
        fits(from > 0 && from <= to && width.is_multiple_of(from))?;
        fits(shapes.output() == width / from * to)
    }

    by_definition!();
}
