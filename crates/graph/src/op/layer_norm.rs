//! Norm over each group of `group` elements by mean and variance:
//! `(x - mean) / sqrt(variance + eps) · weight (+ bias)`. Inputs: x.

use super::{Companion, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Real, TokenContext, WeightId};

/// `(x - mean) / sqrt(variance + eps) · weight (+ bias)` (Ba et al. 2016, section 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// `[group]`, or `[n_groups, group]` where each group has its own factors; without it the factor is 1.
    pub weight: Option<WeightId>,
    /// `[group]`.
    pub bias: Option<WeightId>,
    /// Added to the variance.
    pub eps: f32,
    /// Elements normalised together.
    pub group: usize,
}

impl LayerNorm {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let vector = |id: Option<WeightId>| id.map(|id| row.weights.vector(id));
        let (weight, bias) = (vector(self.weight), vector(self.bias));
        let eps = R::from_f64(f64::from(self.eps));
        let groups = row.inputs[0].chunks(self.group);
        for (index, (x, out)) in groups.zip(out.chunks_mut(self.group)).enumerate() {
            let first = index * self.group;
            let n = R::from_f64(x.len() as f64);
            let mean = x.iter().copied().sum::<R>() / n;
            let squares: R = x.iter().map(|x| (*x - mean) * (*x - mean)).sum();
            let root = (squares / n + eps).sqrt();
            for (i, (out, x)) in out.iter_mut().zip(x).enumerate() {
                *out = (*x - mean) / root;
                if let Some(weight) = weight {
                    *out = *out * weight[(first + i) % weight.len()];
                }
                if let Some(bias) = bias {
                    *out += bias[i];
                }
            }
        }
    }
}

impl Operation for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        let weight = self.weight.map(|id| WeightUse::new(id, WeightKind::Vector));
        let bias = |id| WeightUse::companion(id, Companion::Bias);
        weight.into_iter().chain(self.bias.map(bias)).collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let (out, group) = (shapes.output(), self.group);
        if let Some(id) = self.weight {
            let (found, n_groups) = (shapes.weight(id)?, out / group.max(1));
            // Rows of one tensor, or a tensor for each group.
            let known = [[1, 1, group], [1, n_groups, group], [n_groups, 1, group]];
            fits(known.contains(&found))?;
        }
        if let Some(id) = self.bias {
            fits(shapes.weight(id)? == [1, 1, group])?;
        }
        fits(group > 0 && out.is_multiple_of(group) && shapes.input(0) == out)
    }

    by_definition!();
}
