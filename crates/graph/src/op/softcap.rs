//! A soft bound: `cap · tanh(x / cap)`. Inputs: x.
//!
//! Gemma 2 bounds its logits this way (Gemma Team 2024, section 2).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `cap · tanh(x / cap)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softcap {
    /// The bound, above 0.
    pub cap: f32,
}

impl Softcap {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            *out = softcap(*x, self.cap);
        }
    }
}

/// `cap · tanh(x / cap)`.
pub(super) fn softcap<R: Real>(x: R, cap: f32) -> R {
    let cap = R::from_f64(f64::from(cap));
    cap * (x / cap).tanh()
}

impl Operation for Softcap {
    fn name(&self) -> &'static str {
        "softcap"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0) == shapes.output() && self.cap > 0.0)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
