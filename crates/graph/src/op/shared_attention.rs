//! Attention over the keys and values of an earlier layer, without adding any. Inputs: q, and the k and v that the
//! earlier attention appends.

use super::{Attention, Operation, WeightUse, by_definition};
use crate::check::Shapes;
use crate::{Depth, Graph, OpCost, Real, SequenceMemory, TokenContext};

/// Attention over a cache that another op fills (Gemma Team 2025, Gemma 3n: layers that share keys and values).
#[derive(Clone, Debug, PartialEq)]
pub struct SharedAttention {
    /// The attention; its `layer` is that of the op that appends.
    pub attention: Attention,
}

impl SharedAttention {
    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        R::define(&self.attention, row, state, out);
    }
}

impl Operation for SharedAttention {
    fn name(&self) -> &'static str {
        "shared_attention"
    }

    fn arity(&self) -> usize {
        3
    }

    fn weights(&self) -> Vec<WeightUse> {
        self.attention.weights()
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        self.attention.check(shapes)
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::SharedKv(self.attention.kv())
    }

    fn attention(&self) -> Option<&Attention> {
        Some(&self.attention)
    }

    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        self.attention.cost(graph, depth)
    }

    by_definition!();
}
