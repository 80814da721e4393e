//! The host's part: steps between calls, and moving what crosses.

use super::pass::Crossing;
use super::{Chunk, Features};
use crate::Profile;
use crate::lower::{Call, HostStep, Phase, Plan};
use millrace_model::graph::{Attention, Graph, Node, Op, ValueId};
use serde::Serialize;

/// Whose host works between the calls; the rates are in the [module's table](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// The published stack's, as the profile's constants were measured: Python.
    Published,
    /// This repository's: bytes over a rate, unmeasured.
    Own,
}

impl HostKind {
    /// The published one without any feature.
    pub fn of(features: Features) -> HostKind {
        match features.iter().next().is_none() {
            true => HostKind::Published,
            false => HostKind::Own,
        }
    }
}

/// The host in one pass.
pub(super) struct Host<'a> {
    pub(super) kind: HostKind,
    pub(super) profile: &'a Profile,
    pub(super) graph: &'a Graph,
    pub(super) plan: &'a Plan,
    pub(super) chunk: Chunk,
}

/// A call's host part, in nanoseconds.
pub(super) struct CallNs {
    pub(super) call_ns: f64,
    pub(super) write_ns: f64,
    pub(super) read_ns: f64,
}

/// Bytes of a bf16 element.
const ELEM: u64 = 2;

impl Host<'_> {
    /// Time of a step.
    pub(super) fn step_ns(&self, step: HostStep) -> f64 {
        let host = &self.profile.host;
        let own_ns = self.copy_ns(self.bytes(step));
        match (self.kind, self.plan.phase, step) {
            (HostKind::Own, _, _) => own_ns,
            (_, Phase::Prefill, HostStep::Embed { .. }) => host.prompt_ns,
            (_, Phase::Prefill, HostStep::AppendKv { .. }) => host.prompt_layer_ns,
            (_, Phase::Decode, HostStep::Attention { .. }) => host.token_layer_ns,
            (_, Phase::Prefill, HostStep::FinalNorm { .. }) => 0.0,
            (
                _,
                Phase::Decode,
                HostStep::Embed { .. } | HostStep::AppendKv { .. } | HostStep::FinalNorm { .. },
            ) => 0.0,
            _ => own_ns,
        }
    }

    /// The host's part of a call whose slots cross so.
    pub(super) fn call(&self, call: &Call, crossing: Crossing) -> CallNs {
        let host = &self.profile.host;
        let zeroed_bytes = match self.kind {
            HostKind::Published => self.zeroed_bytes(call),
            HostKind::Own => 0,
        };
        let write_ns = self.copy_ns(crossing.written_bytes + zeroed_bytes);
        let copy_ns = self.copy_ns(crossing.read_bytes);
        // A token's few KB cost no more than the call; a prompt's head returns few, but is counted as
        // the other calls of a prompt in the profile's rows.
        let invalidate_ns = match (self.plan.phase, crossing.read_bytes) {
            (Phase::Decode, _) | (_, 0) => 0.0,
            _ => host.read_ns,
        };
        let (write_ns, read_ns) = match (self.kind, self.plan.phase) {
            (HostKind::Published, Phase::Decode) => (0.0, 0.0),
            (HostKind::Published, Phase::Prefill) => (write_ns, invalidate_ns),
            (HostKind::Own, _) => (write_ns, invalidate_ns + copy_ns),
        };
        CallNs {
            call_ns: host.call_ns,
            write_ns,
            read_ns,
        }
    }

    /// Attention's output, which the published runtime fills with zeros before every call (20 MB a call
    /// at 2,048 tokens in mlir-air's `PROFILE.html`): its slot is in no index set of seed 000 B6.
    fn zeroed_bytes(&self, call: &Call) -> u64 {
        let nodes = call
            .nodes
            .iter()
            .filter_map(|node| self.graph.nodes.get(*node));
        let attention = nodes.filter(|node| matches!(node.op, Op::Attention(_)));
        let rows = |node: &Node| self.plan.n_rows(node.output) * self.row_bytes(node.output);
        attention.map(rows).sum()
    }

    /// At the rate of a copy; free where the profile has none.
    fn copy_ns(&self, bytes: u64) -> f64 {
        let rate = self.profile.host.write_gb_per_s;
        if rate > 0.0 { bytes as f64 / rate } else { 0.0 }
    }

    fn row_bytes(&self, value: ValueId) -> u64 {
        ELEM * self.graph.values.get(value.0).map_or(0, |v| v.width as u64)
    }

    /// Bytes of the operands of a step.
    pub(super) fn bytes(&self, step: HostStep) -> u64 {
        let n_tokens = self.chunk.n_tokens;
        match step {
            HostStep::AppendKv { k, v, .. } => {
                2 * n_tokens * (self.row_bytes(k) + self.row_bytes(v))
            }
            HostStep::Embed { node } => 2 * self.plan.n_tokens * self.output_bytes(node),
            HostStep::FinalNorm { node } => 2 * self.output_bytes(node),
            HostStep::Attention { node } => {
                let around = self.operands(node, n_tokens);
                match self.graph.nodes.get(node).map(|n| &n.op) {
                    Some(Op::Attention(attention)) => around + self.cached_bytes(attention),
                    _ => around,
                }
            }
            HostStep::Linear { node, .. } => {
                let weight = match self.graph.nodes.get(node).map(|n| &n.op) {
                    Some(Op::Linear { weight, .. }) => self.graph.weights.get(weight.0),
                    _ => None,
                };
                let weight_bytes = weight.map_or(0, |w| ELEM * w.n as u64 * w.k as u64);
                let n_rows = self.n_rows(node);
                n_rows * weight_bytes + self.operands(node, n_rows)
            }
            HostStep::Norm { node }
            | HostStep::Rope { node }
            | HostStep::Glu { node }
            | HostStep::Add { node } => self.operands(node, self.n_rows(node)),
        }
    }

    fn n_rows(&self, node: usize) -> u64 {
        let node = self.graph.nodes.get(node);
        node.map_or(0, |n| self.plan.n_rows(n.output))
    }

    fn output_bytes(&self, node: usize) -> u64 {
        let node = self.graph.nodes.get(node);
        node.map_or(0, |n| self.row_bytes(n.output))
    }

    /// Rows of what a node reads and writes, K and V of the cache left out.
    fn operands(&self, node: usize, n_rows: u64) -> u64 {
        let Some(node) = self.graph.nodes.get(node) else {
            return 0;
        };
        let inputs = match node.op {
            Op::Attention(_) => &node.inputs[..node.inputs.len().min(1)],
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
