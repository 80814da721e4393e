//! Products of heads, each with its own matrix: `out[head] = weight[head] · x[head][first..first + k]`. Inputs: x.
//!
//! Latent attention maps queries into the space of its cache this way, and results out of it (DeepSeek-AI 2024,
//! DeepSeek-V2, section 2.1.2).

use super::{MatrixProduct, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, TokenContext, WeightId};

/// `weight[head] · x[head][first..first + k]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadLinear {
    /// `[n_heads, n, k]`.
    pub weight: WeightId,
    /// Heads.
    pub n_heads: usize,
    /// The first element of a head that is read.
    pub first: usize,
}

impl HeadLinear {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let spec = &row.graph.weights[self.weight.0];
        let (n, k) = (spec.n, spec.k);
        let mut w = vec![R::default(); k];
        let heads = row.inputs[0].chunks_exact(row.inputs[0].len() / self.n_heads);
        for (head, (x, out)) in heads.zip(out.chunks_exact_mut(n)).enumerate() {
            let x = &x[self.first..][..k];
            for (i, out) in out.iter_mut().enumerate() {
                row.weights.row(self.weight, head * n + i, &mut w);
                *out = w.iter().zip(x).map(|(w, x)| *w * *x).sum();
            }
        }
    }
}

impl Operation for HeadLinear {
    fn name(&self) -> &'static str {
        "head_linear"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        vec![WeightUse::new(self.weight, WeightKind::Matrix)]
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let [n_heads, n, k] = shapes.weight(self.weight)?;
        let divides = n_heads == self.n_heads && shapes.input(0).is_multiple_of(n_heads.max(1));
        fits(divides && n_heads > 0)?;
        let within = self.first.checked_add(k) <= Some(shapes.input(0) / n_heads);
        fits(within && n_heads.checked_mul(n) == Some(shapes.output()))
    }

    fn product(&self) -> Option<MatrixProduct<'_>> {
        Some(MatrixProduct::EachHead(self))
    }

    fn cost(&self, graph: &Graph, _depth: &Depth) -> OpCost {
        let Some(weight) = graph.weights.get(self.weight.0) else {
            return OpCost::default();
        };
        OpCost {
            flops: 2.0 * weight.n_elems() as f64,
            weight_bytes: weight.size_bytes() as f64,
            ..OpCost::default()
        }
    }

    by_definition!();
}
