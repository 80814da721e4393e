//! The host's part: the data that a step between calls touches.

use crate::attention_products;
use crate::bound::Demand;
use crate::{Call, Chunk, HostStep, Phase, Plan};
use millrace_graph::{Attention, Depth, Graph, Node, Op, OpRole, SequenceMemory, ValueId};

/// A pass as the host sees it.
pub struct HostWork<'a> {
    /// The model.
    pub graph: &'a Graph,
    /// The plan.
    pub plan: &'a Plan,
    /// The tokens.
    pub chunk: Chunk,
}

/// A call's host part, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallNs {
    /// The call itself.
    pub call_ns: f64,
    /// Writing and syncing the bytes that cross to the device.
    pub write_ns: f64,
    /// Syncing and reading the bytes that come back.
    pub read_ns: f64,
}

/// Bytes of a bf16 element.
const ELEM: u64 = 2;

impl HostWork<'_> {
    /// Prefill or decode.
    pub fn phase(&self) -> Phase {
        self.plan.phase
    }

    /// Bytes of the result of a call's attention, all rows of the plan.
    pub fn attention_bytes(&self, call: &Call) -> u64 {
        let nodes = call
            .nodes
            .iter()
            .filter_map(|node| self.graph.nodes.get(*node));
        let appends = |node: &&Node| matches!(node.op.memory(), SequenceMemory::KvCache(_));
        let attention = nodes.filter(appends);
        let rows = |node: &Node| self.plan.n_rows(node.output) * self.row_bytes(node.output);
        attention.map(rows).sum()
    }

    /// Width of the feed-forward.
    pub fn d_ff(&self) -> u64 {
        let gated = self
            .graph
            .nodes
            .iter()
            .filter(|node| node.op.role() == OpRole::Gate);
        let widths = gated.filter_map(|node| self.graph.values.get(node.output.0));
        widths.map(|value| value.width as u64).max().unwrap_or(0)
    }

    fn row_bytes(&self, value: ValueId) -> u64 {
        ELEM * self.graph.values.get(value.0).map_or(0, |v| v.width as u64)
    }

    /// Bytes of the operands of a step.
    pub fn bytes(&self, step: HostStep) -> u64 {
        let n_tokens = self.chunk.n_tokens;
        match step {
            HostStep::AppendKv { k, v, .. } => {
                2 * n_tokens * (self.row_bytes(k) + self.row_bytes(v))
            }
            HostStep::Embed { node } => 2 * self.plan.n_tokens * self.output_bytes(node),
            HostStep::FinalNorm { node } => 2 * self.output_bytes(node),
            HostStep::Attention { node } => {
                let around = self.operands(node, n_tokens);
                around + self.attention(node).map_or(0, |op| self.cached_bytes(op))
            }
            HostStep::Softmax { node, n_keys, .. } => {
                // In f32, read and written.
                8 * self.plan.n_tokens * self.group(node) * n_keys as u64
            }
            // Its operands, and its result in f32.
            HostStep::DeltaRows { node } => {
                let net = self.graph.nodes.get(node).and_then(|n| n.op.delta_net());
                let rows = net.map_or(0, |net| net.n_v_heads * net.row_elems());
                let output = self.output_bytes(node);
                self.operands(node, 1) - output + size_of::<f32>() as u64 * rows as u64
            }
            HostStep::Linear { node, .. } => {
                let product = self.graph.nodes.get(node).and_then(|n| n.op.product());
                let weight = product.and_then(|op| self.graph.weights.get(op.weight().0));
                let weight_bytes = weight.map_or(0, |w| ELEM * w.n as u64 * w.k as u64);
                let n_rows = self.n_rows(node);
                n_rows * weight_bytes + self.operands(node, n_rows)
            }
            HostStep::Op { node } => {
                let n_rows = self.n_rows(node);
                let n_real = n_rows.min(n_tokens.max(1));
                self.matrix_bytes(node, n_real)
                    + self.state_bytes(node)
                    + self.operands(node, n_rows)
            }
        }
    }

    /// Bytes of an op's state in f32. A pass reads and writes it once, for any number of tokens.
    fn state_bytes(&self, node: usize) -> u64 {
        match self.graph.nodes.get(node).map(|n| n.op.memory()) {
            Some(SequenceMemory::State(state)) => {
                2 * size_of::<f32>() as u64 * state.n_elems as u64
            }
            _ => 0,
        }
    }

    fn depth(&self) -> Depth {
        Depth {
            n_before: self.chunk.first,
            kv_elem_bytes: ELEM as f64,
        }
    }

    /// Bytes of the matrices, in bf16, that so many rows are multiplied with by an op that chooses among several matrices.
    /// Each counts once, on average over the rows' choices ([`Demand::pass_weight_bytes`]).
    fn matrix_bytes(&self, node: usize, n_rows: u64) -> u64 {
        let op = self.graph.nodes.get(node).map(|n| &n.op);
        let chooses = |op: &&Op| op.product().is_some_and(|op| op.plain().is_none());
        let Some(op) = op.filter(chooses) else {
            return 0;
        };
        let cost = op.cost(self.graph, &self.depth());
        // An element is a multiplication and an addition.
        let of_a_row = cost.flops / 2.0 * ELEM as f64;
        let demand = Demand {
            weight_bytes: of_a_row,
            expert_bytes: match cost.expert_share > 0.0 {
                true => of_a_row / cost.expert_share,
                false => 0.0,
            },
            expert_share: cost.expert_share,
            ..Demand::default()
        };
        demand.pass_weight_bytes(n_rows as f64) as u64
    }

    /// Query heads that share a key-value head.
    fn group(&self, node: usize) -> u64 {
        let attention = self.attention(node);
        attention.map_or(0, |op| attention_products::group(op) as u64)
    }

    fn attention(&self, node: usize) -> Option<&Attention> {
        let node = self.graph.nodes.get(node)?;
        node.op.attention()
    }

    fn n_rows(&self, node: usize) -> u64 {
        let node = self.graph.nodes.get(node);
        node.map_or(0, |n| self.plan.n_rows(n.output))
    }

    fn output_bytes(&self, node: usize) -> u64 {
        let node = self.graph.nodes.get(node);
        node.map_or(0, |n| self.row_bytes(n.output))
    }

    /// Bytes of the rows that a node reads and writes, without K and V of the cache.
    fn operands(&self, node: usize, n_rows: u64) -> u64 {
        let Some(node) = self.graph.nodes.get(node) else {
            return 0;
        };
        let inputs = match node.op.memory() {
            SequenceMemory::KvCache(_) | SequenceMemory::SharedKv(_) => {
                &node.inputs[..node.inputs.len().min(1)]
            }
            _ => &node.inputs[..],
        };
        let values = inputs.iter().chain([&node.output]);
        n_rows * values.map(|v| self.row_bytes(*v)).sum::<u64>()
    }

    /// Keys and values that the chunk's queries see, each query its own.
    fn cached_bytes(&self, attention: &Attention) -> u64 {
        let window = attention.window.map_or(u64::MAX, |w| w as u64);
        let (first, n) = (self.chunk.first, self.chunk.n_tokens);
        // Queries whose window is not full yet see first + 1, first + 2, … keys.
        let growing = window.saturating_sub(first).min(n);
        let seen =
            growing * first + growing * (growing + 1) / 2 + (n - growing) * window.min(first + n);
        let width = attention.n_kv_heads as u64 * attention.head_dim as u64;
        2 * ELEM * width * seen
    }
}
