//! Products whose matrices each token chooses, or whose heads each have their own matrix.

use super::ops::{Ops, expert_matrix};
use millrace_graph::{ExpertLinear, HeadLinear, Node, Op, Route, RouteScratch, WeightId, exact};
use millrace_kernels::matmul::{
    Activations, ChosenProduct, GatherScratch, RowUse, WeightMatrix, matmul_chosen,
};
use std::ops::Range;

use super::attend::recycle;
use super::plan::MAX_PARTS;

/// Scratch of expert products, reused from step to step.
#[derive(Default)]
pub(crate) struct ExpertScratch {
    activations: Activations,
    gathered: GatherScratch,
    /// Uses by expert, then by row.
    uses: Vec<(usize, RowUse)>,
    rows: Vec<RowUse>,
    /// Experts that are used, and their part of `rows`.
    experts: Vec<usize>,
    by_expert: Vec<Range<usize>>,
    /// Lists of a step's matrices, empty between steps; kept for their memory.
    matrices: [Vec<ChosenMatrix<'static>>; MAX_PARTS],
    route: RouteScratch<f32>,
}

/// A matrix of a chosen expert, and its bias.
type ChosenMatrix<'a> = (WeightMatrix<'a>, Option<&'a [f32]>);

impl ExpertScratch {
    /// Sorts uses by matrix.
    fn sort(&mut self) {
        self.uses
            .sort_unstable_by_key(|(expert, row)| (*expert, row.out_row));
        self.rows.clear();
        self.experts.clear();
        self.by_expert.clear();
        for (index, (expert, row)) in self.uses.iter().enumerate() {
            self.rows.push(*row);
            match self.by_expert.last_mut() {
                Some(range) if self.experts.last() == Some(expert) => range.end = index + 1,
                _ => {
                    self.experts.push(*expert);
                    self.by_expert.push(index..index + 1);
                }
            }
        }
    }
}

impl<'a> Ops<'a> {
    /// Computes the op over all rows if it is such a product; returns whether it is.
    pub(super) fn by_products(&self, node: &Node, inputs: &[&[f32]], out: &mut [f32]) -> bool {
        let mut scratch = ExpertScratch::default();
        match &node.op {
            Op::ExpertLinear(op) => {
                self.expert_linears((inputs[0], inputs[1]), &mut scratch, [(op, out)]);
            }
            Op::HeadLinear(op) => self.head_linear(op, node, inputs[0], &mut scratch, out),
            _ => return false,
        }
        true
    }

    /// Products of one input and one choice. A token's results do not depend on the tokens that share its experts.
    pub(super) fn expert_linears<const N: usize>(
        &self,
        (x, choices): (&[f32], &[f32]),
        scratch: &mut ExpertScratch,
        mut products: [(&ExpertLinear, &mut [f32]); N],
    ) {
        let Some((first, _)) = products.first() else {
            return;
        };
        scratch.uses.clear();
        let choices = choices.chunks_exact(3 * first.n_used).enumerate();
        let uses = choices.flat_map(|(token, choice)| first.uses(token, choice));
        scratch.uses.extend(uses.map(|chosen| {
            let row = RowUse {
                x_row: chosen.from,
                out_row: chosen.to,
            };
            (chosen.expert, row)
        }));
        scratch.sort();
        let mut lists = scratch.matrices.iter_mut();
        let experts = &scratch.experts;
        let mut chosen = products.each_mut().map(|(op, out)| {
            let n = self.model.model().graph.weights[op.weight.0].n;
            // A scale comes before the bias.
            let bias = op.bias.filter(|_| op.scale.is_none());
            let bias = bias.map(|bias| &self.vectors[bias.0][..]);
            let memory = lists.next().map(std::mem::take);
            let mut matrices = recycle(memory.unwrap_or_default());
            matrices.extend(experts.iter().map(|expert| {
                let bias = bias.map(|bias| &bias[expert * n..][..n]);
                (self.known_matrix(op.weight, *expert), bias)
            }));
            ChosenProduct { matrices, out }
        });
        if self.model.reads_ahead() {
            // All of them at once: a page that is missed during the product delays it by itself.
            for (matrix, _) in chosen.iter().flat_map(|product| &product.matrices) {
                self.model.checkpoint().read_ahead(matrix.bytes());
            }
        }
        let rows = (&scratch.rows[..], &scratch.by_expert[..]);
        let (activations, gathered) = (&mut scratch.activations, &mut scratch.gathered);
        matmul_chosen(self.cpu, x, activations, gathered, rows, &mut chosen);
        for (list, product) in scratch.matrices.iter_mut().zip(chosen) {
            *list = recycle(product.matrices);
        }
        for (op, out) in &mut products {
            self.scale(op, &scratch.uses, out);
        }
    }

    /// Applies experts' scales, then the biases.
    fn scale(&self, op: &ExpertLinear, uses: &[(usize, RowUse)], out: &mut [f32]) {
        let Some(scales) = op.scale.map(|scale| &self.vectors[scale.0]) else {
            return;
        };
        let n = self.model.model().graph.weights[op.weight.0].n;
        let bias = op.bias.map(|bias| &self.vectors[bias.0][..]);
        for (expert, row) in uses {
            let bias = bias.map(|bias| &bias[expert * n..][..n]);
            for (i, out) in out[row.out_row * n..][..n].iter_mut().enumerate() {
                *out = *out * scales[*expert] + bias.map_or(0.0, |bias| bias[i]);
            }
        }
    }

    /// Choices of a few tokens, one after the other: `scores` and `out` have a row for each.
    pub(super) fn choices(
        &self,
        op: &Route,
        scores: &[f32],
        scratch: &mut ExpertScratch,
        out: &mut [f32],
    ) {
        let bias = op.bias.map(|bias| &self.vectors[bias.0][..]);
        let rows = scores.chunks_exact(op.n_experts);
        for (scores, out) in rows.zip(out.chunks_exact_mut(3 * op.n_used)) {
            op.choose_in(&mut scratch.route, (scores, bias), exact, out);
        }
    }

    fn head_linear(
        &self,
        op: &HeadLinear,
        node: &Node,
        x: &[f32],
        scratch: &mut ExpertScratch,
        out: &mut [f32],
    ) {
        let graph = &self.model.model().graph;
        let k = graph.weights[op.weight.0].k;
        let (n_heads, head_dim) = (op.n_heads, graph.width(node.inputs[0]) / op.n_heads);
        let heads = x.chunks_exact(head_dim);
        // The part of each head that is read.
        let parts: Vec<f32> = heads
            .flat_map(|head| &head[op.first..][..k])
            .copied()
            .collect();
        scratch.uses.clear();
        let uses = (0..parts.len() / k).map(|row| {
            let same = RowUse {
                x_row: row,
                out_row: row,
            };
            (row % n_heads, same)
        });
        scratch.uses.extend(uses);
        scratch.sort();
        let matrices = (0..n_heads).map(|head| (self.known_matrix(op.weight, head), None));
        let mut product = [ChosenProduct {
            matrices: matrices.collect(),
            out,
        }];
        let rows = (&scratch.rows[..], &scratch.by_expert[..]);
        let (activations, gathered) = (&mut scratch.activations, &mut scratch.gathered);
        matmul_chosen(self.cpu, &parts, activations, gathered, rows, &mut product);
    }

    /// A matrix that the executor has validated.
    fn known_matrix(&self, weight: WeightId, expert: usize) -> WeightMatrix<'a> {
        expert_matrix(self.model, weight, expert)
            .expect("every matrix was checked when the executor was made")
    }
}
