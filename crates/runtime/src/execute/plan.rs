//! From an op graph to the steps the CPU engine runs.
//!
//! The plan is made once for each model. It settles three things the graph leaves open. Linear
//! layers that read the same value become one step (one quantisation of the input, one parallel
//! region). Values share buffers by lifetime, with in-place updates where the input dies. After a
//! certain point, only the rows whose logits are needed go on.

use super::op_kernels::has_kernel;
use crate::ranks::RankWork;
use millrace_graph::{Graph, Linear, MatrixProduct, Node, Op, OpRole, ValueId, WeightId};

/// A value's place: a scratch buffer, and the value's elements a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Register {
    pub(crate) buffer: usize,
    pub(crate) width: usize,
}

/// The most linear layers one step may hold: Q, K and V.
pub(crate) const MAX_PARTS: usize = 3;

/// One linear layer of a [`StepKind::Linear`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinearPart {
    pub(crate) weight: WeightId,
    pub(crate) bias: Option<WeightId>,
    pub(crate) out: Register,
}

/// One product of a [`StepKind::Experts`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertPart {
    /// Index in the graph's nodes.
    pub(crate) node: usize,
    pub(crate) out: Register,
}

/// Work of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StepKind {
    /// A node by its op's kernel or definition. If the op works in place, exactly one of the inputs is `out`.
    Op {
        /// Index in the graph's nodes.
        node: usize,
        inputs: Vec<Register>,
        out: Register,
    },
    /// Linear layers of one input.
    Linear { x: Register, parts: Vec<LinearPart> },
    /// Products of chosen experts' matrices, of one input and one choice.
    Experts {
        x: Register,
        choice: Register,
        parts: Vec<ExpertPart>,
    },
    /// Copies a value that an in-place step is about to overwrite but a later step still reads.
    Copy { x: Register, out: Register },
}

impl StepKind {
    /// Category of its time if ranks share the model; `None` for work that ranks do not divide.
    pub(crate) fn rank_work(&self, graph: &Graph) -> Option<RankWork> {
        match self {
            StepKind::Linear { .. } | StepKind::Experts { .. } => Some(RankWork::Products),
            StepKind::Op { node, .. } => match graph.nodes[*node].op.role() {
                OpRole::Product => Some(RankWork::Products),
                OpRole::Attention => Some(RankWork::Attention),
                _ => None,
            },
            StepKind::Copy { .. } => None,
        }
    }
}

/// One step, and the hidden states its outputs are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExecutionStep {
    pub(crate) kind: StepKind,
    /// `(index into Graph::hidden, place)` to capture on request.
    pub(crate) hidden: Vec<(usize, Register)>,
    /// The place of the head's input, if the step computes it.
    pub(crate) head_input: Option<Register>,
}

/// The linear layer that writes the logits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) x: Register,
    pub(crate) weight: WeightId,
    pub(crate) bias: Option<WeightId>,
    /// Nodes after it that change logits in place, by index.
    pub(crate) tail: Vec<usize>,
    /// The node after those that assembles the logits of several ranks, by index.
    pub(crate) gather: Option<usize>,
}

/// A CPU execution plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuPlan {
    pub(crate) steps: Vec<ExecutionStep>,
    /// Elements a token of each buffer.
    pub(crate) buffer_widths: Vec<usize>,
    /// Steps from here on are independent by token: rows without logits may be dropped first.
    pub(crate) gather_at: usize,
    /// Values alive at `gather_at`.
    pub(crate) gather: Vec<Register>,
    /// The last linear layer: it writes the logits, which are too wide to keep for a whole chunk. An encoder has none.
    pub(crate) head: Option<Head>,
}

/// Why a graph has no plan: it is not one this engine can run.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum PlanError {
    /// A graph that makes no sense.
    #[error(transparent)]
    Graph(#[from] millrace_graph::Error),
    /// The graph does not end with the linear layer that writes its logits, and ops in place on them.
    #[error("the graph does not end with the linear layer that writes its logits")]
    NoHead,
    /// A weight that the checkpoint does not have so.
    #[error("{0}")]
    Weight(String),
}

impl CpuPlan {
    /// Plans a graph that was [checked](millrace_graph::check()). Pure: the same graph gives the same plan.
    pub(crate) fn new(graph: &Graph) -> Result<CpuPlan, PlanError> {
        let head = match graph.logits {
            Some(_) => head_of(graph).ok_or(PlanError::NoHead)?,
            None => graph.nodes.len(),
        };
        // The head is not a step.
        let groups = group_products(&graph.nodes[..head]);
        PlanBuilder::new(graph, head, &groups).build()
    }
}

/// Index of the linear layer after which only ops in place lead to the logits.
pub(crate) fn head_of(graph: &Graph) -> Option<usize> {
    let is_linear = |node: &Node| plain(node).is_some();
    let head = graph.nodes.iter().rposition(is_linear)?;
    let mut logits = graph.nodes[head].output;
    for node in &graph.nodes[head + 1..] {
        if matches!(node.op, Op::AllGather(_)) && node.inputs == [logits] {
            // It must be the last: an op that reads the logits of all ranks is not in place.
            return (graph.logits == Some(node.output)).then_some(head);
        }
        let is_in_place = node.inputs == [logits] && node.op.in_place() == [0];
        if !(is_in_place && has_kernel(&node.op)) {
            return None;
        }
        logits = node.output;
    }
    (graph.logits == Some(logits)).then_some(head)
}

/// Nodes that run as one step, in execution order; more than one only for products that share their input.
type FusionGroup = Vec<usize>;

/// Hoists every op that is better computed together with others of its input to the first of them. It depends
/// only on its input, so the order stays valid.
fn group_products(nodes: &[Node]) -> Vec<FusionGroup> {
    let mut groups: Vec<FusionGroup> = Vec::new();
    let mut taken = vec![false; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        if taken[i] {
            continue;
        }
        let mut group = vec![i];
        // One step computes several of them; any other op that shares its input runs alone.
        let kind = step_product(node);
        if node.op.shares_input() && kind.is_some() {
            let same = |other: &Node| step_product(other) == kind && other.inputs == node.inputs;
            let later = (i + 1..nodes.len()).filter(|&j| !taken[j] && same(&nodes[j]));
            group.extend(later.take(MAX_PARTS - 1));
        }
        for &j in &group {
            taken[j] = true;
        }
        groups.push(group);
    }
    groups
}

/// The product with one matrix that a node is.
fn plain(node: &Node) -> Option<&Linear> {
    node.op.product()?.plain()
}

/// The kind of product that one step can compute several of.
#[derive(Clone, Copy, PartialEq)]
enum StepProduct {
    Plain,
    Chosen,
}

fn step_product(node: &Node) -> Option<StepProduct> {
    match node.op.product()? {
        MatrixProduct::Plain(_) => Some(StepProduct::Plain),
        MatrixProduct::Chosen(_) => Some(StepProduct::Chosen),
        MatrixProduct::EachHead(_) => None,
    }
}

struct PlanBuilder<'g> {
    graph: &'g Graph,
    /// The head's index; for a graph without one, the number of nodes.
    head: usize,
    groups: &'g [FusionGroup],
    /// For each value, the last group that reads it (`usize::MAX` for the head).
    last_use: Vec<usize>,
    register_of: Vec<Option<Register>>,
    widths: Vec<usize>,
    free: Vec<usize>,
    steps: Vec<ExecutionStep>,
}

impl<'g> PlanBuilder<'g> {
    fn new(graph: &'g Graph, head: usize, groups: &'g [FusionGroup]) -> Self {
        let mut last_use = vec![0; graph.values.len()];
        for (g, group) in groups.iter().enumerate() {
            for &i in group {
                for input in &graph.nodes[i].inputs {
                    last_use[input.0] = g;
                }
            }
        }
        for input in graph.nodes.get(head).iter().flat_map(|node| &node.inputs) {
            last_use[input.0] = usize::MAX;
        }
        PlanBuilder {
            graph,
            head,
            groups,
            last_use,
            register_of: vec![None; graph.values.len()],
            widths: Vec::new(),
            free: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn build(mut self) -> Result<CpuPlan, PlanError> {
        let mut gather_at = 0;
        let mut gather = Vec::new();
        for g in 0..self.groups.len() {
            self.plan_group(g);
            self.release_dead(g);
            let first = &self.graph.nodes[self.groups[g][0]];
            if !first.op.memory().is_none() {
                gather_at = self.steps.len();
                gather = self.live();
            }
        }
        let head = match self.graph.nodes.get(self.head) {
            None => None,
            Some(node) => {
                let &Linear { weight, bias } = plain(node).ok_or(PlanError::NoHead)?;
                let behind = self.head + 1..self.graph.nodes.len();
                let is_gather =
                    |node: &usize| matches!(self.graph.nodes[*node].op, Op::AllGather(_));
                let (gather, tail) = behind.partition::<Vec<usize>, _>(is_gather);
                Some(Head {
                    x: self.register(node.inputs[0]),
                    weight,
                    bias,
                    tail,
                    gather: gather.first().copied(),
                })
            }
        };
        Ok(CpuPlan {
            head,
            steps: self.steps,
            buffer_widths: self.widths,
            gather_at,
            gather,
        })
    }

    fn plan_group(&mut self, g: usize) {
        let group = &self.groups[g];
        let node = &self.graph.nodes[group[0]];
        let kind = match step_product(node) {
            Some(StepProduct::Plain) => self.linear_step(g),
            Some(StepProduct::Chosen) => self.expert_step(g),
            None => {
                let mut inputs: Vec<Register> = node
                    .inputs
                    .iter()
                    .map(|input| self.register(*input))
                    .collect();
                let out = match self.place(g, &node.op, &node.inputs) {
                    Some(place) => {
                        let out = self.in_place(g, node.inputs[place], node.output);
                        inputs[place] = out;
                        out
                    }
                    None => self.allocate(node.output),
                };
                let node = group[0];
                StepKind::Op { node, inputs, out }
            }
        };
        let outputs = group.iter().map(|&i| self.graph.nodes[i].output);
        let hidden = outputs.clone().flat_map(|value| self.hidden_of(value));
        let hidden = hidden.collect();
        let mut outputs = outputs.filter(|value| self.graph.head_input == Some(*value));
        let head_input = outputs.next().map(|value| self.register(value));
        self.steps.push(ExecutionStep {
            kind,
            hidden,
            head_input,
        });
    }

    /// The input that an op overwrites, preferably one that dies here. A definition reads rows while it writes,
    /// and so does an op that reads the same value twice.
    fn place(&self, g: usize, op: &Op, inputs: &[ValueId]) -> Option<usize> {
        let is_read_once =
            |place: &usize| inputs.iter().filter(|v| **v == inputs[*place]).count() == 1;
        let places = op.in_place().iter().copied().filter(is_read_once);
        let mut places = places.filter(|_| has_kernel(op)).peekable();
        let first = places.peek().copied();
        places
            .find(|place| self.last_use[inputs[*place].0] == g)
            .or(first)
    }

    fn linear_step(&mut self, g: usize) -> StepKind {
        let x = self.register(self.graph.nodes[self.groups[g][0]].inputs[0]);
        let mut parts = Vec::new();
        for &i in &self.groups[g] {
            let node = &self.graph.nodes[i];
            if let Some(&Linear { weight, bias }) = plain(node) {
                parts.push(LinearPart {
                    weight,
                    bias,
                    out: self.allocate(node.output),
                });
            }
        }
        StepKind::Linear { x, parts }
    }

    fn expert_step(&mut self, g: usize) -> StepKind {
        let (graph, groups) = (self.graph, self.groups);
        let inputs = &graph.nodes[groups[g][0]].inputs;
        let (x, choice) = (self.register(inputs[0]), self.register(inputs[1]));
        let parts = groups[g].iter().map(|&node| ExpertPart {
            node,
            out: self.allocate(graph.nodes[node].output),
        });
        StepKind::Experts {
            x,
            choice,
            parts: parts.collect(),
        }
    }

    fn hidden_of(&self, value: ValueId) -> Vec<(usize, Register)> {
        let states = self.graph.hidden.iter().enumerate();
        states
            .filter(|(_, v)| **v == value)
            .map(|(i, v)| (i, self.register(*v)))
            .collect()
    }

    fn register(&self, value: ValueId) -> Register {
        self.register_of[value.0].expect("a checked graph writes every value before it is read")
    }

    /// A buffer for a new value: the tightest free one that fits, otherwise the widest free one
    /// grown, otherwise a new one.
    fn allocate(&mut self, value: ValueId) -> Register {
        let width = self.graph.values[value.0].width;
        let free = self.free.iter().copied();
        let tightest = free
            .clone()
            .filter(|&b| self.widths[b] >= width)
            .min_by_key(|&b| self.widths[b]);
        let buffer = match tightest.or_else(|| free.max_by_key(|&b| self.widths[b])) {
            Some(buffer) => {
                self.free.retain(|free| *free != buffer);
                self.widths[buffer] = self.widths[buffer].max(width);
                buffer
            }
            None => {
                self.widths.push(width);
                self.widths.len() - 1
            }
        };
        let register = Register { buffer, width };
        self.register_of[value.0] = Some(register);
        register
    }

    /// The place of `input`, to be overwritten as `output`; a copy if a later step reads `input`.
    fn in_place(&mut self, g: usize, input: ValueId, output: ValueId) -> Register {
        let x = self.register(input);
        if self.last_use[input.0] == g {
            self.register_of[output.0] = Some(x);
            self.register_of[input.0] = None;
            return x;
        }
        let out = self.allocate(output);
        self.steps.push(ExecutionStep {
            kind: StepKind::Copy { x, out },
            hidden: Vec::new(),
            head_input: None,
        });
        out
    }

    fn release_dead(&mut self, g: usize) {
        for value in 0..self.register_of.len() {
            if self.last_use[value] <= g
                && let Some(register) = self.register_of[value].take()
            {
                self.free.push(register.buffer);
            }
        }
    }

    fn live(&self) -> Vec<Register> {
        self.register_of.iter().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests;
