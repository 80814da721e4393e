//! The head over every row of a prompt, as in the published stack before it took a single one
//! (eight launches of 2048 × 2048 × 16384, `lm_head_gemm`, 171 ms a prompt).

use super::kernel::{Arg, Kernels, LoweredKernel, PARTITION_ROWS};
use super::{Feature, LM_HEAD_PARTITIONS, WeightLayout};
use crate::mapping::NamedNumbers;
use crate::mapping::fused::{GEMM_PARTS, shape};
use millrace_graph::{Linear, Node, Op};

impl Kernels<'_> {
    /// GEMMs over parts of the vocabulary, which read the head's weights as a token's GEMVs do.
    /// `None` where the array does not take them: a single row then goes through the head, as with
    /// the feature.
    pub(super) fn full_head(&mut self) -> Option<Vec<LoweredKernel>> {
        let graph = self.graph;
        let output = *self.heads.last()?;
        let node = graph.nodes.iter().find(|node| node.output == output)?;
        let Op::Linear(Linear { weight, bias: None }) = node.op else {
            return None;
        };
        if let Some(kernel) = self.packed_head(node, weight, self.n_tokens()) {
            return Some(vec![kernel]);
        }
        let vocab = self.width(node.output);
        let share = vocab.div_ceil(LM_HEAD_PARTITIONS);
        let whole = share.next_multiple_of(PARTITION_ROWS);
        let part_rows = whole.min(share.next_power_of_two().max(2));
        // A small vocabulary is at most one part.
        let sizes = [part_rows, vocab.next_multiple_of(PARTITION_ROWS)];
        sizes.into_iter().find_map(|padded_to| {
            let starts = (0..vocab).step_by(padded_to);
            let part = |start: usize| {
                let len = padded_to.min(vocab - start);
                let layout = WeightLayout::Rows {
                    start,
                    len,
                    padded_to,
                };
                let value = node.output;
                [Arg::Weight(weight, layout), Arg::Part { value, start, len }]
            };
            let parts: Vec<[Arg; 2]> = starts.map(part).collect();
            self.products(node, &parts, padded_to)
        })
    }

    /// One launch for all parts if tilings are to be fast and a mapping takes it, else one for each.
    fn products(
        &mut self,
        node: &Node,
        parts: &[[Arg; 2]],
        n: usize,
    ) -> Option<Vec<LoweredKernel>> {
        let features = self.options.features;
        let input = node.inputs[0];
        let (m, k, n) = (self.n_tokens(), self.width(input) as u64, n as u64);
        let x = Arg::Value(input);
        let streams = features.has(Feature::FastTilings) && features.has(Feature::FloatSums);
        if streams && parts.len() <= GEMM_PARTS.len() {
            let sizes = vec![n; parts.len()];
            let shape = shape(&[("m", m), ("k", k)], GEMM_PARTS, &sizes);
            let mut args = vec![x.clone()];
            args.extend(parts.iter().map(|[weight, _]| weight.clone()));
            args.extend(parts.iter().map(|[_, part]| part.clone()));
            if let Ok(kernel) = self.kernel(node, "gemm-stream-bt", shape, None, args) {
                return Some(vec![kernel]);
            }
        }
        let name = match features.has(Feature::FloatSums) {
            true => "gemm-drain-bt",
            false => "gemm-direct-bt",
        };
        let mut kernels = Vec::new();
        for (i, [weight, part]) in parts.iter().enumerate() {
            let args = vec![x.clone(), weight.clone(), part.clone()];
            let shape = NamedNumbers::new(&[("m", m), ("k", k), ("n", n)]);
            let mut kernel = self.kernel(node, name, shape, None, args).ok()?;
            kernel.name = format!("{}_p{i}", node.label);
            kernels.push(kernel);
        }
        Some(kernels)
    }
}
