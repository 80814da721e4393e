//! Root-mean-square norm over each group of `group` elements:
//! `x / sqrt(mean(x²) + eps) · (weight + offset)`. Inputs: x.

use super::{Operation, WeightKind, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Graph, Real, TokenContext, WeightId};

/// `x / sqrt(mean(x²) + eps) · (weight + offset)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// `[group]`; or as long as a row, where every group of the row has its own factors.
    pub weight: WeightId,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Added to the weight (1 for Gemma's Hugging Face files, 0 otherwise).
    pub offset: f32,
    /// Elements normalised together: `d_model`, or `head_dim` for Q and K norms.
    pub group: usize,
}

impl RmsNorm {
    /// Whether all groups of a row share one weight.
    pub fn shares_weight(&self, graph: &Graph) -> bool {
        graph.weights[self.weight.0].n_elems() == self.group as u64
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, _state: &mut [R], out: &mut [R]) {
        let weight = row.weights.vector(self.weight);
        let [eps, offset] = [self.eps, self.offset].map(|x| R::from_f64(f64::from(x)));
        let groups = row.inputs[0].chunks(self.group);
        let groups = groups.zip(weight.chunks(self.group).cycle());
        for ((x, weight), out) in groups.zip(out.chunks_mut(self.group)) {
            let squares: R = x.iter().map(|x| *x * *x).sum();
            let root = (squares / R::from_f64(x.len() as f64) + eps).sqrt();
            for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                *out = *x / root * (row.round)(*w + offset);
            }
        }
    }
}

impl Operation for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        vec![WeightUse::new(self.weight, WeightKind::Vector)]
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let (out, group) = (shapes.output(), self.group);
        let divides = group > 0 && out.is_multiple_of(group) && shapes.input(0) == out;
        let [n_experts, n, k] = shapes.weight(self.weight)?;
        // llama.cpp's files have a row for each group.
        let n_elems = n.checked_mul(k).filter(|_| n_experts == 1);
        let is_of_row = n_elems == Some(out) && (n == 1 || k == group);
        fits(divides && (is_of_row || [n, k] == [1, group] && n_experts == 1))
    }

    by_definition!();
}
