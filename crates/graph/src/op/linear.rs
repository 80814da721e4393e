//! A product with a matrix: `out[t] = weight · x[t] (+ bias)`. Inputs: x.

use super::{Companion, MatrixProduct, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, TokenContext, WeightId};

/// `weight · x (+ bias)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// `[n, k]`.
    pub weight: WeightId,
    /// `[n]`.
    pub bias: Option<WeightId>,
}

impl Linear {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let x = row.inputs[0];
        let bias = self.bias.map(|bias| row.weights.vector(bias));
        let mut w = vec![R::default(); x.len()];
        for (n, out) in out.iter_mut().enumerate() {
            row.weights.row(self.weight, n, &mut w);
            *out = w.iter().zip(x).map(|(w, x)| *w * *x).sum();
            if let Some(bias) = bias {
                *out += bias[n];
            }
        }
    }
}

impl Operation for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        let own = WeightUse::new(self.weight, WeightKind::Matrix);
        let bias = |id| WeightUse::companion(id, Companion::Bias);
        [own].into_iter().chain(self.bias.map(bias)).collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let out = shapes.output();
        let bias = self.bias.map(|bias| shapes.weight(bias)).transpose()?;
        let adds = bias.is_none_or(|bias| bias == [1, 1, out]);
        fits(adds && shapes.weight(self.weight)? == [1, out, shapes.input(0)])
    }

    fn product(&self) -> Option<MatrixProduct<'_>> {
        Some(MatrixProduct::Plain(self))
    }

    fn shares_input(&self) -> bool {
        true
    }

    fn cost(&self, graph: &Graph, _depth: &Depth) -> OpCost {
        let Some(weight) = graph.weights.get(self.weight.0) else {
            return OpCost::default();
        };
        OpCost {
            flops: 2.0 * weight.n as f64 * weight.k as f64,
            weight_bytes: weight.size_bytes() as f64,
            ..OpCost::default()
        }
    }

    by_definition!();
}
