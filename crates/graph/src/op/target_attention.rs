//! Attention of a draft over the keys and values of the model that it drafts for. It adds none. Inputs: q.

use super::{Attention, Operation, WeightUse, by_definition};
use crate::check::{Shapes, fits};
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, TokenContext};

/// Attention over a cache of another model (transformers, `Gemma4AssistantForCausalLM`).
///
/// The query stands behind the last cached token, which is the last key that it sees. In a graph without a target nothing is
/// seen, and the result is zero.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetAttention {
    /// The attention. Its `layer` is that of the target's cache. With a window of `w`, the query sees the last `w` cached
    /// tokens.
    pub attention: Attention,
}

impl TargetAttention {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        match row.keys.k.is_empty() {
            true => out.fill(R::default()),
            false => R::define(&self.attention, row, state, out),
        }
    }
}

impl Operation for TargetAttention {
    fn name(&self) -> &'static str {
        "target_attention"
    }

    fn arity(&self) -> usize {
        1
    }

    fn weights(&self) -> Vec<WeightUse> {
        self.attention.weights()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        let op = &self.attention;
        // Distances to keys would be those of another position.
        fits(op.slopes.is_none() && !op.chunked && op.sinks.is_none())?;
        let divides = op.n_kv_heads > 0 && op.n_heads.is_multiple_of(op.n_kv_heads);
        let width = op.n_heads.checked_mul(op.head_dim);
        fits(divides && width == Some(shapes.input(0)) && shapes.output() == shapes.input(0))
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::TargetKv(self.attention.kv())
    }

    fn attention(&self) -> Option<&Attention> {
        Some(&self.attention)
    }

    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        self.attention.cost(graph, depth)
    }

    by_definition!();
}
