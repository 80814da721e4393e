//! A hard bound on magnitude. Inputs: x.
//!
//! OLMo, MPT and DBRX bound queries, keys and values this way (`clip_qkv`).

use super::{Operation, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext};

/// `min(max(x, -bound), bound)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    /// The bound, above 0.
    pub bound: f32,
}

impl Clamp {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let bound = R::from_f64(f64::from(self.bound));
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            // `min(a, b)` is `-max(-a, -b)`.
            *out = -R::max(-R::max(*x, -bound), -bound);
        }
    }
}

impl Operation for Clamp {
    fn name(&self) -> &'static str {
        "clamp"
    }

    fn arity(&self) -> usize {
        1
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        fits(shapes.input(0) == shapes.output() && self.bound > 0.0)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
