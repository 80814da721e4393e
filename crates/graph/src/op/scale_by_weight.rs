//! A product with one number of the checkpoint: `weight · x`. Inputs: x.
//!
//! Formats of small range (NVFP4) come with a factor for the whole tensor.

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext, WeightId};

/// `weight · x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleByWeight {
    /// `[1]`.
    pub weight: WeightId,
}

impl ScaleByWeight {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let factor = row.weights.vector(self.weight)[0];
        for (out, x) in out.iter_mut().zip(row.inputs[0]) {
            *out = *x * factor;
        }
    }
}

impl Operation for ScaleByWeight {
    fn name(&self) -> &'static str {
        "scale_by_weight"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        vec![WeightUse::new(self.weight, WeightKind::Vector)]
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let is_one = shapes.weight(self.weight)? == [1, 1, 1];
        fits(is_one && shapes.input(0) == shapes.output())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    by_definition!();
}
