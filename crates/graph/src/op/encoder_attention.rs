//! Attention of one layer of an encoder: every token sees those before it and those behind it. Inputs: q, k, v.

use super::{Attention, Operation, by_definition};
use crate::check::Shapes;
use crate::{AllTokensShape, Depth, Graph, OpCost, Real, SequenceMemory, TokenContext};

/// Grouped-query attention over all tokens of a sequence (Devlin et al. 2019, section 3).
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderAttention {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// Factor on the scores before softmax.
    pub scale: f32,
    /// With `Some(r)`, a query at position `p` sees keys at positions `p-r ..= p+r`.
    pub reach: Option<usize>,
}

impl EncoderAttention {
    /// The same of a token that sees what it is given.
    fn of_seen(&self) -> Attention {
        Attention {
            layer: 0,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            scale: self.scale,
            window: None,
            softcap: None,
            sinks: None,
        }
    }

    fn compute<R: Real>(&self, row: &TokenContext<'_, R>, state: &mut [R], out: &mut [R]) {
        R::define(&self.of_seen(), row, state, out);
    }
}

impl Operation for EncoderAttention {
    fn name(&self) -> &'static str {
        "encoder_attention"
    }

    fn arity(&self) -> usize {
        3
    }

    fn check(&self, shapes: &Shapes<'_>) -> Result<(), String> {
        self.of_seen().check(shapes)
    }

    fn memory(&self) -> SequenceMemory {
        SequenceMemory::AllTokens(AllTokensShape {
            width: self.n_kv_heads * self.head_dim,
            reach: self.reach,
        })
    }

    fn cost(&self, graph: &Graph, depth: &Depth) -> OpCost {
        let cost = self.of_seen().cost(graph, depth);
        OpCost {
            memory_bytes: 0.0,
            ..cost
        }
    }

    by_definition!();
}
