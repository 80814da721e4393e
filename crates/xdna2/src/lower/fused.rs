//! Projections of one input as one launch: q, k and v, gate and up, the parts of the head. The array is configured once
//! for all of them, without a pause between them.

use super::kernel::{Arg, Kernels, LoweredKernel};
use super::{Feature, Phase, WeightLayout};
use crate::mapping::fused::{GEMM_PARTS, GEMV_PARTS, MAX_PARTS, shape};
use millrace_graph::{Linear, Node, Op, WeightId};

impl Kernels<'_> {
    /// One kernel for a projection and those that follow it and read the same input, if tilings are
    /// to be fast and a mapping takes them. The others then have no kernel.
    pub(super) fn fused(&mut self, number: usize) -> Option<LoweredKernel> {
        let features = self.options.features;
        let streams = self.phase == Phase::Decode || features.has(Feature::FloatSums);
        if !features.has(Feature::FastTilings) || !streams {
            return None;
        }
        let graph = self.graph;
        let first = &graph.nodes[number];
        let k = graph.weights[weight(first)?.0].k;
        let nodes = self.of_one_input(number, MAX_PARTS);
        let n_parts: Vec<u64> = nodes
            .iter()
            .filter_map(|&at| weight(&graph.nodes[at]))
            .map(|w| graph.weights[w.0].n as u64)
            .collect();
        let (name, shape) = match (self.phase, features.has(Feature::OneCopy)) {
            (Phase::Decode, _) => (
                "gemv-stream",
                shape(&[("k", k as u64)], GEMV_PARTS, &n_parts),
            ),
            (Phase::Prefill, one_copy) => {
                let dims = [("m", self.n_tokens()), ("k", k as u64)];
                let name = if one_copy {
                    "gemm-stream-bt"
                } else {
                    "gemm-stream"
                };
                (name, shape(&dims, GEMM_PARTS, &n_parts))
            }
        };
        let mut args = vec![Arg::Value(first.inputs[0])];
        for &at in &nodes {
            let half_split = self.orders.half_split.get(&at).copied();
            let layout = if name == "gemm-stream" {
                WeightLayout::Transposed { half_split }
            } else {
                WeightLayout::AsStored { half_split }
            };
            args.push(Arg::Weight(weight(&graph.nodes[at])?, layout));
        }
        args.extend(nodes.iter().map(|&at| Arg::Value(graph.nodes[at].output)));
        let mut kernel = self.kernel(first, name, shape, None, args).ok()?;
        let labels: Vec<&str> = nodes.iter().map(|&at| graph.nodes[at].label).collect();
        kernel.name = labels.join("_");
        self.computed.extend(nodes.into_iter().skip(1));
        Some(kernel)
    }

    /// A projection and those that follow it and read the same input, up to so many.
    pub(super) fn of_one_input(&self, number: usize, limit: usize) -> Vec<usize> {
        let graph = self.graph;
        let first = &graph.nodes[number];
        let k = |node: &Node| weight(node).map(|w| graph.weights[w.0].k);
        let along = |&at: &usize| {
            let node = &graph.nodes[at];
            node.inputs == first.inputs
                && node.layer == first.layer
                && !self.is_head(node)
                && k(node).is_some_and(|own| k(first) == Some(own))
        };
        let all = number..graph.nodes.len();
        all.take_while(along).take(limit).collect()
    }

    /// The head's parts as one launch, under the same condition.
    pub(super) fn fused_head(
        &mut self,
        node: &Node,
        parts: &[[Arg; 2]],
        padded_to: usize,
        k: usize,
    ) -> Option<LoweredKernel> {
        if !self.options.features.has(Feature::FastTilings) {
            return None;
        }
        let rows = vec![padded_to as u64; parts.len()];
        let shape = shape(&[("k", k as u64)], GEMV_PARTS, &rows);
        let mut args = vec![Arg::Value(node.inputs[0])];
        args.extend(parts.iter().map(|[weight, _]| weight.clone()));
        args.extend(parts.iter().map(|[_, part]| part.clone()));
        self.kernel(node, "gemv-stream", shape, None, args).ok()
    }
}

/// The weight of a projection without bias.
pub(super) fn weight(node: &Node) -> Option<WeightId> {
    match node.op {
        Op::Linear(Linear { weight, bias: None }) => Some(weight),
        _ => None,
    }
}
