//! Projections whose weights stay in blocks of 4 bits.

use super::fused::weight;
use super::kernel::{Arg, Kernels, LoweredKernel};
use super::{Feature, Features, Phase, WeightLayout};
use crate::mapping::fused::{GEMM_PARTS, GEMV_PARTS, MAX_PARTS, shape};
use crate::mapping::{Shape, q4nx};
use crate::predict::Timer;
use millrace_graph::{Node, WeightId};
use millrace_plan::WeightArrangement;

/// Unit of a packed head's rows: a pair of row blocks for each column of the array.
const HEAD_ROWS: usize = 512;

/// Row blocks side by side of a layout that this target names so; `None` where it names none.
pub(crate) fn layout_unit(id: WeightArrangement) -> Option<u64> {
    (1..=2).contains(&id.0).then_some(u64::from(id.0))
}

/// The layout of a matrix with so many row blocks side by side, the inverse of [`layout_unit`].
fn layout(unit: u64, half_split: Option<usize>) -> WeightLayout {
    let id = WeightArrangement(if unit == 2 { 2 } else { 1 });
    WeightLayout::Own { id, half_split }
}

/// Where a prompt's weights are expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expand {
    /// Within the product.
    Within,
    /// In DDR, if possible.
    Before,
    /// Whichever is faster.
    Faster,
}

impl Expand {
    fn of(features: Features) -> Expand {
        match features.has(Feature::ExpandedWeights) {
            true => Expand::Before,
            false if features.has(Feature::FasterExpansion) => Expand::Faster,
            false => Expand::Within,
        }
    }
}

/// The mappings for that many rows of the input, the wanted one first, and the problem's shape for them.
fn problem(n_rows: u64, k: u64, parts: &[u64], expand: Expand) -> (&'static [&'static str], Shape) {
    let of_rows = || shape(&[("m", n_rows), ("k", k)], GEMM_PARTS, parts);
    match (n_rows, expand) {
        (1, _) => (&[q4nx::dqp::NAME], shape(&[("k", k)], GEMV_PARTS, parts)),
        (_, Expand::Within) => (&[q4nx::gemm::NAME], of_rows()),
        _ => (&[q4nx::expanded::NAME, q4nx::gemm::NAME], of_rows()),
    }
}

impl Kernels<'_> {
    /// A kernel for a projection and those that follow it and read the same input, as many as a mapping
    /// takes together. `None` where weights are not packed, or where groups with a scale
    /// do not divide their rows.
    pub(super) fn packed(&mut self, number: usize) -> Option<LoweredKernel> {
        if !self.options.features.has(Feature::PackedWeights) {
            return None;
        }
        let graph = self.graph;
        let first = &graph.nodes[number];
        let k = graph.weights[weight(first)?.0].k as u64;
        if !k.is_multiple_of(q4nx::GROUP) {
            return None;
        }
        let n_rows = match self.phase {
            Phase::Prefill => self.n_tokens(),
            Phase::Decode => 1,
        };
        let expand = Expand::of(self.options.features);
        let mut nodes = self.of_one_input(number, MAX_PARTS);
        while let Some(&last) = nodes.last() {
            let rows = |&at: &usize| Some(graph.weights[weight(&graph.nodes[at])?.0].n as u64);
            let parts: Vec<u64> = nodes.iter().filter_map(rows).collect();
            let unit = q4nx::unit(&parts);
            let (names, shape) = problem(n_rows, k, &parts, expand);
            let mut offered = names.iter().filter_map(|name| {
                let args = self.packed_args(first, &nodes, unit, *name == q4nx::expanded::NAME)?;
                self.kernel(first, name, shape.clone(), None, args).ok()
            });
            let taken = match expand {
                Expand::Faster => {
                    let offered: Vec<LoweredKernel> = offered.collect();
                    self.fastest(offered)
                }
                _ => offered.next(),
            };
            if let Some(mut kernel) = taken {
                let labels: Vec<&str> = nodes.iter().map(|&at| graph.nodes[at].label).collect();
                kernel.name = labels.join("_");
                self.computed.extend(nodes.into_iter().skip(1));
                return Some(kernel);
            }
            nodes.retain(|&at| at != last);
        }
        None
    }

    /// The kernel with the shortest modelled time, loading its cores included. Kernels that cannot be timed come last.
    fn fastest(&self, offered: Vec<LoweredKernel>) -> Option<LoweredKernel> {
        let timer = self.profile.as_ref().map(|p| Timer::new(self.machine, p));
        let ns = |kernel: &LoweredKernel| {
            let timer = timer.as_ref()?;
            timer.launches_ns(&kernel.built.program).ok()
        };
        let timed = offered.into_iter().map(|kernel| {
            let ns = ns(&kernel).unwrap_or(f64::INFINITY);
            (ns, kernel)
        });
        let first = timed.min_by(|(a, _), (b, _)| a.total_cmp(b));
        first.map(|(_, kernel)| kernel)
    }

    /// Operands of a kernel for these projections: the input, weights, expanded weights if the kernel expands them,
    /// results.
    fn packed_args(
        &self,
        first: &Node,
        nodes: &[usize],
        unit: u64,
        expanded: bool,
    ) -> Option<Vec<Arg>> {
        let graph = self.graph;
        let mut args = vec![Arg::Value(first.inputs[0])];
        for at in nodes {
            let half_split = self.orders.half_split.get(at).copied();
            let weight = weight(&graph.nodes[*at])?;
            args.push(Arg::Weight(weight, layout(unit, half_split)));
        }
        if expanded {
            let weights = nodes.iter().filter_map(|&at| weight(&graph.nodes[at]));
            args.extend(weights.map(Arg::Expanded));
        }
        args.extend(nodes.iter().map(|&at| Arg::Value(graph.nodes[at].output)));
        Some(args)
    }

    /// The head for so many rows, its vocabulary padded to a multiple that all columns share.
    pub(super) fn packed_head(
        &mut self,
        node: &Node,
        weight: WeightId,
        n_rows: u64,
    ) -> Option<LoweredKernel> {
        if !self.options.features.has(Feature::PackedWeights) {
            return None;
        }
        let len = self.width(node.output);
        let padded_to = len.next_multiple_of(HEAD_ROWS) as u64;
        let k = self.graph.weights[weight.0].k as u64;
        if !k.is_multiple_of(q4nx::GROUP) {
            return None;
        }
        // A vocabulary in bf16 is larger than all that a layer expands.
        let (names, shape) = problem(n_rows, k, &[padded_to], Expand::Within);
        let value = node.output;
        let args = vec![
            Arg::Value(node.inputs[0]),
            Arg::Weight(weight, layout(2, None)),
            Arg::Part {
                value,
                start: 0,
                len,
            },
        ];
        self.kernel(node, names[0], shape, None, args).ok()
    }
}
