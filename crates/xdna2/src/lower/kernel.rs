//! Chooses the kernel of a node, and its tiling.

mod build;
mod experts;

use super::{
    AttentionTimes, CachePart, DeltaTimes, Feature, KeyRange, LM_HEAD_PARTITIONS, LowerOptions,
    Phase, TableRows, WeightLayout, check,
};
use crate::mapping::{NamedNumbers, Shape, Tiling};
use millrace_graph::{
    Activation, Glu, Graph, Linear, Node, Op, RmsNorm, RopeId, RotateHeads, ValueId, WeightId,
    single_row,
};
use millrace_plan::graph::HeadOrders;
use millrace_plan::{ExpertCall, HeadRows, offload};
use millrace_xdna2_machine::program::Program;
use millrace_xdna2_machine::verify::Verifier;
use millrace_xdna2_machine::{Machine, Profile};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A mapping built for a shape.
#[derive(Debug)]
pub(super) struct KernelBuild {
    pub(super) mapping: &'static str,
    pub(super) shape: Shape,
    pub(super) tiling: Tiling,
    pub(super) program: Program,
    /// Epsilon of a norm.
    eps: Option<f32>,
    /// Equal for equal programs.
    pub(super) key: String,
}

/// Operand in a slot of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arg {
    Value(ValueId),
    Part {
        value: ValueId,
        start: usize,
        len: usize,
    },
    Weight(WeightId, WeightLayout),
    /// A weight as a launch of the kernel expands it, for another of its launches.
    Expanded(WeightId),
    /// The cores' shares of a value, before another launch joins them.
    Shares(ValueId),
    Table(RopeId, TableRows),
    Cache(usize, CachePart),
    /// Rows of a token for the heads of a node's gated delta net.
    DeltaRows(usize),
    StateBefore(usize),
    StateBehind(usize),
    Position,
    CacheRange(usize, CachePart, KeyRange),
    RangePosition(KeyRange),
}

/// A kernel and its operands, in the mapping's order.
#[derive(Clone, Debug)]
pub(super) struct LoweredKernel {
    pub(super) name: String,
    pub(super) built: Rc<KernelBuild>,
    pub(super) args: Vec<Arg>,
}

impl LoweredKernel {
    /// Whether it computes several nodes.
    pub(super) fn is_fused(&self) -> bool {
        let is_weight = |arg: &&Arg| matches!(arg, Arg::Weight(..));
        self.args.iter().filter(is_weight).count() > 1
    }
}

/// Finds kernels; each problem is built once.
pub(super) struct Kernels<'a> {
    pub(super) graph: &'a Graph,
    pub(super) machine: &'a Machine,
    /// Knows the launches of every kernel that was built: programs are stitched of them.
    pub(super) verifier: Verifier<'a>,
    /// Profile by which fast tilings are chosen.
    pub(super) profile: Option<Profile>,
    /// Times of attention over the cache, by the kernel's key.
    pub(super) times: Vec<(String, AttentionTimes)>,
    /// Times of gated delta nets, likewise.
    pub(super) delta_times: Vec<(String, DeltaTimes)>,
    /// Why a node has a separate program, where that is known.
    pub(super) reasons: HashMap<usize, String>,
    pub(super) options: &'a LowerOptions,
    pub(super) phase: Phase,
    /// Projections to put in half-split order, and rotations that stay interleaved.
    pub(super) orders: HeadOrders,
    /// Outputs of products behind the last norm. The last is the vocabulary's.
    pub(super) heads: Vec<ValueId>,
    /// Products of experts on the array, by node.
    pub(super) experts: HashMap<usize, ExpertCall>,
    /// Nodes that the kernel of an earlier one computes too.
    pub(super) computed: HashSet<usize>,
    /// The head's kernels if every row of a prompt goes through it.
    pub(super) full_head: Option<Vec<LoweredKernel>>,
    /// Keys that a token's attention on its projections' cores reads, where every layer's can be there.
    pub(super) resident_keys: Option<u64>,
    /// Whether no cores were found for one of the layers.
    pub(super) resident_fails: bool,
    /// If they are there, why the last norm and the head are not.
    pub(super) head_apart: Option<String>,
    built: HashMap<String, Result<Rc<KernelBuild>, String>>,
}

/// Tilings tried for a problem before it is left to the host.
const MAX_TRIES: usize = 24;

/// Rows of a head's partition come in multiples of 8 iterations of 8 columns with 8 rows each: the
/// example's 8 × 16,384 rows for a vocabulary of 128,256.
pub(super) const PARTITION_ROWS: usize = 512;

/// Largest size of a problem's dimension that mappings take.
pub(super) const DIM_MAX: u64 = 1 << 28;

const fn dim(n: usize) -> u64 {
    n as u64
}

/// Outputs of products of the last norm's output, or of values derived from it.
fn heads(graph: &Graph) -> Vec<ValueId> {
    let behind_norm = single_row(graph);
    let is_behind = |value: &ValueId| behind_norm.contains(value);
    let is_head = |node: &&Node| {
        let is_last = graph.logits == Some(node.output);
        matches!(node.op, Op::Linear(_)) && (is_last || node.inputs.iter().any(is_behind))
    };
    let nodes = graph.nodes.iter().filter(is_head);
    nodes.map(|node| node.output).collect()
}

impl<'a> Kernels<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        machine: &'a Machine,
        options: &'a LowerOptions,
        phase: Phase,
    ) -> Kernels<'a> {
        Kernels {
            graph,
            machine,
            verifier: Verifier::new(machine),
            profile: Profile::builtin(Profile::DEFAULT),
            times: Vec::new(),
            delta_times: Vec::new(),
            reasons: HashMap::new(),
            options,
            phase,
            orders: check::head_orders(graph),
            heads: heads(graph),
            experts: HashMap::new(),
            computed: HashSet::new(),
            full_head: None,
            resident_keys: None,
            resident_fails: false,
            head_apart: None,
            built: HashMap::new(),
        }
    }

    /// Whether only the row whose logits are wanted goes through the last norm and the head.
    pub(super) fn is_single_row(&self) -> bool {
        let wants_all = self.phase == Phase::Prefill && self.options.head == HeadRows::All;
        self.full_head.is_none() && !wants_all
    }

    pub(super) fn n_tokens(&self) -> u64 {
        match self.phase {
            Phase::Prefill => self.options.n_tokens,
            Phase::Decode => 1,
        }
    }

    pub(super) fn width(&self, value: ValueId) -> usize {
        self.graph.values[value.0].width
    }

    /// Whether the last norm and the head are among a token's layers.
    pub(super) fn has_head_among_layers(&self) -> bool {
        self.resident_keys.is_some() && self.head_apart.is_none()
    }

    /// Whether the node is the product with the vocabulary. Where a single row goes through it, products between the
    /// last norm and it count as well.
    pub(super) fn is_head(&self, node: &Node) -> bool {
        match self.is_single_row() {
            true => self.heads.contains(&node.output),
            false => self.heads.last() == Some(&node.output),
        }
    }

    /// The node's kernels, or the rule that leaves it to the host. None at all where an earlier
    /// node's kernel computes this one too.
    pub(super) fn offer(&mut self, number: usize) -> Result<Vec<LoweredKernel>, String> {
        let graph = self.graph;
        let node = &graph.nodes[number];
        let output = node.output;
        if let Some(why) = self.orders.interleaved.get(&number) {
            return Err(why.clone());
        }
        let kernel = match &node.op {
            Op::Embed(_) => {
                return Err("the host looks up rows of the table: nothing is computed".to_owned());
            }
            // As in MLIR-AIR's example.
            Op::RmsNorm(_) if self.is_last_norm_of_host(output) => {
                return Err(
                    "a single row, which the host normalises in less time than a dispatch takes"
                        .to_owned(),
                );
            }
            Op::RmsNorm(norm) if !norm.shares_weight(graph) => {
                return Err("a tile program has one weight for all groups of a norm".to_owned());
            }
            Op::RmsNorm(RmsNorm {
                weight,
                eps,
                offset,
                group,
            }) => self.norm(node, *weight, (*eps, *offset), *group)?,
            Op::Linear(Linear { bias: Some(_), .. }) => {
                return Err("no tile program adds a bias to a projection".to_owned());
            }
            Op::Linear(Linear { weight, .. }) if self.is_head(node) => {
                return match &self.full_head {
                    Some(kernels) => Ok(kernels.clone()),
                    None if !self.is_single_row() => {
                        Err("no program computes the logits of all rows".to_owned())
                    }
                    None => self.head(node, *weight),
                };
            }
            Op::Linear(_) if self.computed.contains(&number) => return Ok(Vec::new()),
            Op::Linear(Linear { weight, .. }) => {
                let fused = self.packed(number).or_else(|| self.fused(number));
                match fused {
                    Some(kernel) => kernel,
                    None => self.linear(number, *weight)?,
                }
            }
            Op::ExpertLinear(experts) => return self.experts(number, experts),
            Op::Rope(RotateHeads { first: 1.., .. }) => {
                return Err("a tile program rotates heads from their first element on".to_owned());
            }
            Op::Rope(RotateHeads { rope, head_dim, .. }) => self.rope(node, *rope, *head_dim)?,
            Op::Attention(attention) if !attention.is_plain() => {
                return Err(
                    "no tile program has sinks, a soft bound of scores, biases by distance or chunks"
                        .to_owned(),
                );
            }
            Op::Attention(attention) => self.attention(number, attention)?,
            Op::DeltaNet(net) => self.delta_net(number, net)?,
            Op::Glu(Glu { activation, clamp }) => {
                let name = match (activation, clamp) {
                    (Activation::Silu, None) => "silu-mul",
                    (Activation::GeluTanh, None) => "gelu-mul",
                    _ => return Err("no tile program has this gate".to_owned()),
                };
                let n = self.n_tokens() * dim(self.width(output));
                self.elementwise(node, name, &[("n", n)])?
            }
            Op::Add(_) => self.add(node)?,
            other => {
                let reason = offload::hosts_reason(other).map(str::to_owned);
                let none = || format!("no tile program computes {}", other.name());
                return Err(reason.unwrap_or_else(none));
            }
        };
        Ok(vec![kernel])
    }

    /// Whether it is the norm of a single row, before a head with a separate program.
    fn is_last_norm_of_host(&self, output: ValueId) -> bool {
        let is_last = self.graph.head_input == Some(output);
        is_last && self.is_single_row() && !self.has_head_among_layers()
    }

    fn norm(
        &mut self,
        node: &Node,
        weight: WeightId,
        (eps, offset): (f32, f32),
        group: usize,
    ) -> Result<LoweredKernel, String> {
        let rows = self.n_tokens() * dim(self.width(node.output) / group);
        let shape = NamedNumbers::new(&[("rows", rows), ("cols", dim(group))]);
        let gamma = Arg::Weight(weight, WeightLayout::Vector { offset });
        let args = vec![Arg::Value(node.inputs[0]), gamma, Arg::Value(node.output)];
        self.kernel(node, "rmsnorm", shape, Some(eps), args)
    }

    fn linear(&mut self, number: usize, weight: WeightId) -> Result<LoweredKernel, String> {
        let graph = self.graph;
        let (node, half_split) = (
            &graph.nodes[number],
            self.orders.half_split.get(&number).copied(),
        );
        let (x, y) = (Arg::Value(node.inputs[0]), Arg::Value(node.output));
        let (k, n) = (
            dim(graph.weights[weight.0].k),
            dim(graph.weights[weight.0].n),
        );
        match self.phase {
            Phase::Prefill => {
                let name = self.gemm();
                let layout = if self.options.features.has(Feature::OneCopy) {
                    WeightLayout::AsStored { half_split }
                } else {
                    WeightLayout::Transposed { half_split }
                };
                let w = Arg::Weight(weight, layout);
                let shape = NamedNumbers::new(&[("m", self.n_tokens()), ("k", k), ("n", n)]);
                self.kernel(node, name, shape, None, vec![x, w, y])
            }
            Phase::Decode => {
                let w = Arg::Weight(weight, WeightLayout::AsStored { half_split });
                let shape = NamedNumbers::new(&[("m", n), ("k", k)]);
                self.kernel(node, "gemv", shape, None, vec![w, x, y])
            }
        }
    }

    /// One row of logits by GEMVs over parts of the vocabulary, in either phase. A
    /// part is as large as a partition's tilings want it, so a small vocabulary fills fewer.
    fn head(&mut self, node: &Node, weight: WeightId) -> Result<Vec<LoweredKernel>, String> {
        if let Some(kernel) = self.packed_head(node, weight, 1) {
            return Ok(vec![kernel]);
        }
        let (vocab, k) = (self.width(node.output), self.graph.weights[weight.0].k);
        let share = vocab.div_ceil(LM_HEAD_PARTITIONS).max(1);
        let whole = share.next_multiple_of(PARTITION_ROWS);
        let padded_to = whole.min(share.next_power_of_two().max(2));
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
        let parts: Vec<[Arg; 2]> = (0..vocab).step_by(padded_to).map(part).collect();
        if let Some(fused) = self.fused_head(node, &parts, padded_to, k) {
            return Ok(vec![fused]);
        }
        let mut kernels = Vec::new();
        for (i, [weight, logits]) in parts.into_iter().enumerate() {
            let args = vec![weight, Arg::Value(node.inputs[0]), logits];
            let shape = NamedNumbers::new(&[("m", dim(padded_to)), ("k", dim(k))]);
            let mut kernel = self.kernel(node, "gemv", shape, None, args)?;
            kernel.name = format!("{}_p{i}", node.label);
            kernels.push(kernel);
        }
        Ok(kernels)
    }

    fn rope(
        &mut self,
        node: &Node,
        rope: RopeId,
        head_dim: usize,
    ) -> Result<LoweredKernel, String> {
        let n_rot = self.graph.ropes[rope.0].n_rot;
        if n_rot != head_dim {
            return Err(format!(
                "the tile kernel rotates whole heads, this one {n_rot} of {head_dim} elements"
            ));
        }
        let rows = TableRows {
            n_tokens: self.n_tokens() as usize,
            n_heads: self.width(node.output) / head_dim,
        };
        let n_rows = dim(rows.n_tokens) * dim(rows.n_heads);
        let shape = NamedNumbers::new(&[("rows", n_rows), ("head_dim", dim(head_dim))]);
        let args = vec![
            Arg::Value(node.inputs[0]),
            Arg::Table(rope, rows),
            Arg::Value(node.output),
        ];
        self.kernel(node, "rope", shape, None, args)
    }

    fn add(&mut self, node: &Node) -> Result<LoweredKernel, String> {
        let cols = dim(self.width(node.output));
        match self.phase {
            Phase::Decode => self.elementwise(node, "add", &[("n", cols)]),
            Phase::Prefill => {
                let dims = [("rows", self.n_tokens()), ("cols", cols)];
                // Values that leave the block are one-dimensional.
                let leaves = self.graph.hidden.contains(&node.output);
                self.elementwise(node, if leaves { "add-flat" } else { "add-2d" }, &dims)
            }
        }
    }

    fn elementwise(
        &mut self,
        node: &Node,
        mapping: &'static str,
        dims: &[(&'static str, u64)],
    ) -> Result<LoweredKernel, String> {
        let values = node.inputs.iter().chain([&node.output]);
        let args = values.map(|&v| Arg::Value(v)).collect();
        self.kernel(node, mapping, NamedNumbers::new(dims), None, args)
    }

    pub(super) fn kernel(
        &mut self,
        node: &Node,
        mapping: &'static str,
        shape: Shape,
        eps: Option<f32>,
        args: Vec<Arg>,
    ) -> Result<LoweredKernel, String> {
        Ok(LoweredKernel {
            name: node.label.to_owned(),
            built: self.built(mapping, &shape, eps)?,
            args,
        })
    }
}
