//! Products of which each token chooses the matrices, or each head has its own: rows are gathered by matrix and
//! multiplied by the kernels of plain products.

use super::ops::{Ops, expert_matrix};
use millrace_graph::{ExpertLinear, HeadLinear, Node, Op, chosen_experts};
use millrace_kernels::matmul::{Activations, Multiplication, matmul};

/// Rows of x and of the result that one matrix multiplies.
struct MatrixRows<'a> {
    /// Where each row of x begins.
    from: &'a [usize],
    /// Where each row of the result begins.
    to: &'a [usize],
}

/// Memory of gathered rows.
#[derive(Default)]
struct GatherScratch {
    activations: Activations,
    x: Vec<f32>,
    out: Vec<f32>,
}

impl Ops<'_> {
    /// Computes the op if it is one of these, over all rows; says whether it is.
    pub(super) fn by_products(&self, node: &Node, inputs: &[&[f32]], out: &mut [f32]) -> bool {
        match &node.op {
            Op::ExpertLinear(op) => self.expert_linear(op, inputs, out),
            Op::HeadLinear(op) => self.head_linear(op, node, inputs[0], out),
            _ => return false,
        }
        true
    }

    /// Tokens are gathered by expert. What a token gets does not depend on who shares its expert: a row of a product
    /// depends on that row alone.
    fn expert_linear(&self, op: &ExpertLinear, inputs: &[&[f32]], out: &mut [f32]) {
        let spec = &self.model.model().graph.weights[op.weight.0];
        let (n, k, n_used) = (spec.n, spec.k, op.n_used);
        let choices = inputs[1].chunks_exact(3 * n_used);
        let mut uses: Vec<(usize, usize)> = Vec::with_capacity(choices.len() * n_used);
        for (row, choice) in choices.enumerate() {
            let experts = chosen_experts(choice).enumerate();
            uses.extend(experts.map(|(rank, expert)| (expert, row * n_used + rank)));
        }
        uses.sort_unstable();
        let mut scratch = GatherScratch::default();
        for uses in uses.chunk_by(|a, b| a.0 == b.0) {
            let expert = uses[0].0;
            let x_row = |place: usize| if op.own_rows { place } else { place / n_used };
            let from: Vec<usize> = uses.iter().map(|(_, place)| x_row(*place) * k).collect();
            let to: Vec<usize> = uses.iter().map(|(_, place)| place * n).collect();
            let rows = MatrixRows {
                from: &from,
                to: &to,
            };
            let scale = op.scale.map(|scale| self.vectors[scale.0][expert]);
            let bias = op.bias.map(|bias| &self.vectors[bias.0][expert * n..][..n]);
            // A scale comes before the bias.
            let in_product = bias.filter(|_| scale.is_none());
            let weight = (op.weight, expert);
            self.gathered(weight, in_product, rows, inputs[0], &mut scratch, out);
            if let Some(scale) = scale {
                for at in to {
                    for (i, out) in out[at..][..n].iter_mut().enumerate() {
                        *out = *out * scale + bias.map_or(0.0, |bias| bias[i]);
                    }
                }
            }
        }
    }

    fn head_linear(&self, op: &HeadLinear, node: &Node, x: &[f32], out: &mut [f32]) {
        let graph = &self.model.model().graph;
        let n = graph.weights[op.weight.0].n;
        let (width, out_width) = (graph.width(node.inputs[0]), graph.width(node.output));
        let n_rows = x.len() / width;
        let head_dim = width / op.n_heads;
        let mut scratch = GatherScratch::default();
        for head in 0..op.n_heads {
            let first = head * head_dim + op.first;
            let from: Vec<usize> = (0..n_rows).map(|row| row * width + first).collect();
            let to: Vec<usize> = (0..n_rows).map(|row| row * out_width + head * n).collect();
            let rows = MatrixRows {
                from: &from,
                to: &to,
            };
            self.gathered((op.weight, head), None, rows, x, &mut scratch, out);
        }
    }

    /// Gathers rows of x, multiplies them with one matrix, and puts the rows of the result where they belong.
    fn gathered(
        &self,
        (weight, expert): (millrace_graph::WeightId, usize),
        bias: Option<&[f32]>,
        rows: MatrixRows<'_>,
        x: &[f32],
        scratch: &mut GatherScratch,
        out: &mut [f32],
    ) {
        let matrix = expert_matrix(self.model, weight, expert)
            .expect("every matrix was checked when the executor was made");
        let (n, k, m) = (matrix.n(), matrix.k(), rows.from.len());
        scratch.x.clear();
        for from in rows.from {
            scratch.x.extend_from_slice(&x[*from..][..k]);
        }
        scratch.out.resize(m * n, 0.0);
        let product = Multiplication {
            weight: matrix,
            bias,
            out: &mut scratch.out[..m * n],
        };
        matmul(
            self.cpu,
            &scratch.x,
            m,
            &mut scratch.activations,
            &mut [product],
        );
        for (to, row) in rows.to.iter().zip(scratch.out.chunks_exact(n)) {
            out[*to..][..n].copy_from_slice(row);
        }
    }
}
