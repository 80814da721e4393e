//! Products with the matrices of the experts that [`Route`](super::Route) chose:
//! `weight[expert] · x (+ bias[expert])`, the results side by side in the order of the choice. Inputs: x, the choice.

use super::route::chosen_experts;
use super::{Companion, MatrixProduct, Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, TokenContext, WeightId};

/// `weight[expert] · x (+ bias[expert])` of every chosen expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertLinear {
    /// `[n_experts, n, k]`.
    pub weight: WeightId,
    /// `[n_experts, n]`.
    pub bias: Option<WeightId>,
    /// `[n_experts]`: a factor on each expert's products, before the bias.
    pub scale: Option<WeightId>,
    /// Experts that a token uses.
    pub n_used: usize,
    /// Whether x has a row for each chosen expert, side by side; otherwise all experts read the same row.
    pub own_rows: bool,
}

/// A row's product with the matrix of one expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertUse {
    /// The token.
    pub token: usize,
    /// The expert.
    pub expert: usize,
    /// Row index of the input; rows of x are as wide as the expert's matrix.
    pub from: usize,
    /// Row index of the result; its rows are as long as the expert's matrix is high.
    pub to: usize,
}

impl ExpertLinear {
    /// Products of one token with the given choice.
    pub fn uses<R: Real>(&self, token: usize, choice: &[R]) -> impl Iterator<Item = ExpertUse> {
        let experts = chosen_experts(choice).enumerate();
        experts.map(move |(rank, expert)| {
            let to = token * self.n_used + rank;
            let from = if self.own_rows { to } else { token };
            ExpertUse {
                token,
                expert,
                from,
                to,
            }
        })
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let spec = &row.graph.weights[self.weight.0];
        let (n, k) = (spec.n, spec.k);
        let bias = self.bias.map(|bias| row.weights.vector(bias));
        let scale = self.scale.map(|scale| row.weights.vector(scale));
        let mut w = vec![R::default(); k];
        let [x, chosen] = [row.inputs[0], row.inputs[1]];
        let experts = out.chunks_exact_mut(n).zip(chosen_experts(chosen));
        for (rank, (out, expert)) in experts.enumerate() {
            let x = match self.own_rows {
                true => &x[rank * k..][..k],
                false => x,
            };
            for (i, out) in out.iter_mut().enumerate() {
                row.weights.row(self.weight, expert * n + i, &mut w);
                *out = w.iter().zip(x).map(|(w, x)| *w * *x).sum();
                if let Some(scale) = scale {
                    *out = *out * scale[expert];
                }
                if let Some(bias) = bias {
                    *out += bias[expert * n + i];
                }
            }
        }
    }
}

impl Operation for ExpertLinear {
    fn name(&self) -> &'static str {
        "expert_linear"
    }

    fn arity(&self) -> usize {
        2
    }

    fn weights(&self) -> Vec<WeightUse> {
        let own = WeightUse::new(self.weight, WeightKind::Matrix);
        let bias = self
            .bias
            .map(|id| WeightUse::companion(id, Companion::Bias));
        let scale = self
            .scale
            .map(|id| WeightUse::companion(id, Companion::Scale));
        [own].into_iter().chain(bias).chain(scale).collect()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let [n_experts, n, k] = shapes.weight(self.weight)?;
        if let Some(bias) = self.bias {
            fits(shapes.weight(bias)? == [1, n_experts, n])?;
        }
        if let Some(scale) = self.scale {
            // A number for each expert, in one tensor or in one tensor each.
            fits(shapes.weight(scale)?.iter().product::<usize>() == n_experts)?;
        }
        let rows = if self.own_rows { self.n_used } else { 1 };
        let widths = [rows.checked_mul(k), self.n_used.checked_mul(n)];
        let found = [Some(shapes.input(0)), Some(shapes.output())];
        fits(widths == found && shapes.input(1) == 3 * self.n_used && self.n_used <= n_experts)
    }

    fn product(&self) -> Option<MatrixProduct<'_>> {
        Some(MatrixProduct::Chosen(self))
    }

    fn shares_input(&self) -> bool {
        true
    }

    /// Counts only the chosen experts.
    fn cost(&self, graph: &Graph, _depth: &Depth) -> OpCost {
        let Some(weight) = graph.weights.get(self.weight.0) else {
            return OpCost::default();
        };
        let part = self.n_used as f64 / weight.n_experts.max(1) as f64;
        OpCost {
            flops: 2.0 * self.n_used as f64 * weight.n as f64 * weight.k as f64,
            weight_bytes: weight.size_bytes() as f64 * part,
            memory_bytes: 0.0,
            expert_bytes: weight.size_bytes() as f64,
            expert_share: part,
        }
    }

    by_definition!();
}
