//! Work of the host between calls.

use millrace_graph::{Graph, SequenceMemory, ValueId};
use serde::{Deserialize, Serialize};

/// Work of the host between calls. Values are bf16 as everywhere in a plan; `node` is an index in the graph's nodes,
/// which determines operands and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostStep {
    /// Rows of the embedding table.
    Embed {
        /// The node.
        node: usize,
    },
    /// Appends K and V `[n_tokens, n_kv_heads, head_dim]` to a layer's cache. Right behind a call that
    /// [appends](super::Plan::appends) them to the device's copy itself, it appends to the host's pages alone.
    AppendKv {
        /// The cache's layer.
        layer: usize,
        /// Rotated keys.
        k: ValueId,
        /// Values.
        v: ValueId,
    },
    /// Attention of the node's Q over the layer's cache, after [`HostStep::AppendKv`].
    Attention {
        /// The node.
        node: usize,
    },
    /// Probabilities from the scores of the previous call, for the call that follows. They are those of the queries
    /// that share a key-value head ([`AttentionPart`](crate::AttentionPart)).
    Softmax {
        /// The node.
        node: usize,
        /// The key-value head.
        kv_head: usize,
        /// Keys of the product.
        n_keys: usize,
    },
    /// The rows of a token for the heads of a gated delta net ([`token_rows`](millrace_graph::DeltaNet::token_rows)). The call that follows
    /// reads them from its slot of [`Binding::DeltaRows`](super::Binding::DeltaRows). Only in a pass of one token.
    DeltaRows {
        /// The node.
        node: usize,
    },
    /// The norm before the head, of the one row whose logits are wanted.
    FinalNorm {
        /// The node.
        node: usize,
    },
    /// A projection that the device does not take.
    Linear {
        /// The node.
        node: usize,
        /// With a head's elements: outputs to put in half-split order, as
        /// [`WeightLayout::source_row`](crate::WeightLayout::source_row) does for weights.
        half_split: Option<usize>,
    },
    /// Any other op that the device does not take. Rotations are half-split in any style of the graph, except those that
    /// [stay interleaved](crate::graph::HeadOrders::interleaved).
    Op {
        /// The node.
        node: usize,
    },
}

impl HostStep {
    /// The graph values that the host reads in this step.
    pub fn reads(&self, graph: &Graph) -> Vec<ValueId> {
        match *self {
            HostStep::AppendKv { k, v, .. } => vec![k, v],
            // Scores are not a value of the graph.
            HostStep::Softmax { .. } => Vec::new(),
            HostStep::Embed { node }
            | HostStep::Attention { node }
            | HostStep::DeltaRows { node }
            | HostStep::FinalNorm { node }
            | HostStep::Linear { node, .. }
            | HostStep::Op { node } => match graph.nodes.get(node) {
                // K and V come from the cache.
                Some(n)
                    if matches!(
                        n.op.memory(),
                        SequenceMemory::KvCache(_) | SequenceMemory::SharedKv(_)
                    ) =>
                {
                    n.inputs.iter().take(1).copied().collect()
                }
                Some(n) => n.inputs.clone(),
                None => Vec::new(),
            },
        }
    }
}
