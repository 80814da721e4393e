//! From an op graph to the steps the CPU engine runs.
//!
//! The plan is made once a model. It does three things the graph leaves open: linear layers that
//! read the same value become one step (one quantisation of the input, one parallel region), values
//! share buffers by lifetime with in-place updates where the input dies, and the point is found
//! after which only the rows whose logits are wanted need to go on (seed 000 A7).

use millrace_model::graph::{Activation, Attention, Graph, Node, Op, RopeId, ValueId, WeightId};

/// A value's place: a scratch buffer, and the elements a token it takes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Register {
    pub(crate) buffer: usize,
    pub(crate) width: usize,
}

/// The most linear layers one step may hold: Q, K and V.
pub(crate) const MAX_PARTS: usize = 3;

/// One linear layer of a [`StageKind::Linear`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinearPart {
    pub(crate) weight: WeightId,
    pub(crate) bias: Option<WeightId>,
    pub(crate) out: Register,
}

/// What a step does. Names as in [`Op`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StageKind {
    Embed {
        table: WeightId,
        scale: f32,
        out: Register,
    },
    RmsNorm {
        weight: WeightId,
        eps: f32,
        offset: f32,
        group: usize,
        x: Register,
        out: Register,
    },
    Linear {
        x: Register,
        parts: Vec<LinearPart>,
    },
    /// In place.
    Rope {
        rope: RopeId,
        head_dim: usize,
        x: Register,
    },
    Attention {
        attention: Attention,
        q: Register,
        k: Register,
        v: Register,
        out: Register,
    },
    /// `gate = act(gate) · up`.
    Glu {
        activation: Activation,
        gate: Register,
        up: Register,
    },
    /// `acc += x`.
    Add {
        acc: Register,
        x: Register,
    },
    /// Copies a value that an in-place step is about to overwrite but a later step still reads.
    Copy {
        x: Register,
        out: Register,
    },
}

/// One step, and the hidden states its outputs are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    pub(crate) kind: StageKind,
    /// `(index into Graph::hidden, place)` to capture when asked for.
    pub(crate) hidden: Vec<(usize, Register)>,
}

/// The linear layer that writes the logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) x: Register,
    pub(crate) weight: WeightId,
    pub(crate) bias: Option<WeightId>,
}

/// A CPU execution schedule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Stage>,
    /// Elements a token of each buffer.
    pub(crate) buffer_widths: Vec<usize>,
    /// Steps from here on are independent by token: rows without logits may be dropped first.
    pub(crate) gather_at: usize,
    /// Values alive at `gather_at`.
    pub(crate) gather: Vec<Register>,
    /// The last linear layer: it writes the logits, which are too wide to keep for a whole chunk.
    pub(crate) head: Head,
}

/// Why a graph has no schedule: it is not one this engine can run.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ScheduleError {
    /// A node reads a value no earlier node wrote.
    #[error("node {node} ({label}) reads value {value} before it is written")]
    ReadBeforeWrite {
        /// Index of the node.
        node: usize,
        /// Its label.
        label: &'static str,
        /// The value.
        value: usize,
    },
    /// The number of inputs is not what the op takes.
    #[error("node {node} ({label}) has {found} inputs, its op takes {expected}")]
    Arity {
        /// Index of the node.
        node: usize,
        /// Its label.
        label: &'static str,
        /// Inputs the op takes.
        expected: usize,
        /// Inputs given.
        found: usize,
    },
    /// The graph names no logits, or its last node is not the linear layer that writes them.
    #[error("the graph does not end with the linear layer that writes its logits")]
    NoLogits,
}

impl Schedule {
    /// Plans `graph`. Pure: the same graph gives the same schedule.
    pub(crate) fn new(graph: &Graph) -> Result<Schedule, ScheduleError> {
        check(graph)?;
        // All but the head, which is no step.
        let (_, body) = graph.nodes.split_last().ok_or(ScheduleError::NoLogits)?;
        let groups = group_linears(body);
        Builder::new(graph, &groups).build()
    }
}

/// Nodes that run as one step, in execution order; more than one only for linears.
type Group = Vec<usize>;

fn check(graph: &Graph) -> Result<(), ScheduleError> {
    let mut written = vec![false; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        let expected = match node.op {
            Op::Embed { .. } => 0,
            Op::RmsNorm { .. } | Op::Linear { .. } | Op::Rope { .. } => 1,
            Op::Glu { .. } | Op::Add => 2,
            Op::Attention(_) => 3,
        };
        if node.inputs.len() != expected {
            let found = node.inputs.len();
            return Err(ScheduleError::Arity {
                node: i,
                label: node.label,
                expected,
                found,
            });
        }
        if let Some(value) = node.inputs.iter().find(|value| !written[value.0]) {
            let value = value.0;
            return Err(ScheduleError::ReadBeforeWrite {
                node: i,
                label: node.label,
                value,
            });
        }
        written[node.output.0] = true;
    }
    match graph.nodes.last() {
        Some(Node {
            op: Op::Linear { .. },
            output,
            ..
        }) if graph.logits == Some(*output) => Ok(()),
        _ => Err(ScheduleError::NoLogits),
    }
}

/// Hoists every linear to the first linear that reads the same value. A linear depends on nothing
/// but its input, so the order stays valid.
fn group_linears(nodes: &[Node]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut taken = vec![false; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        if taken[i] {
            continue;
        }
        let mut group = vec![i];
        if matches!(node.op, Op::Linear { .. }) {
            let same =
                |other: &Node| matches!(other.op, Op::Linear { .. }) && other.inputs == node.inputs;
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

struct Builder<'g> {
    graph: &'g Graph,
    groups: &'g [Group],
    /// For each value, the last group that reads it (`usize::MAX` for the head).
    last_use: Vec<usize>,
    slot_of: Vec<Option<Register>>,
    widths: Vec<usize>,
    free: Vec<usize>,
    steps: Vec<Stage>,
}

impl<'g> Builder<'g> {
    fn new(graph: &'g Graph, groups: &'g [Group]) -> Self {
        let mut last_use = vec![0; graph.values.len()];
        for (g, group) in groups.iter().enumerate() {
            for &i in group {
                for input in &graph.nodes[i].inputs {
                    last_use[input.0] = g;
                }
            }
        }
        for input in graph.nodes.last().iter().flat_map(|head| &head.inputs) {
            last_use[input.0] = usize::MAX;
        }
        Builder {
            graph,
            groups,
            last_use,
            slot_of: vec![None; graph.values.len()],
            widths: Vec::new(),
            free: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn build(mut self) -> Result<Schedule, ScheduleError> {
        let mut gather_at = 0;
        let mut gather = Vec::new();
        for g in 0..self.groups.len() {
            self.plan_group(g);
            self.release_dead(g);
            let first = &self.graph.nodes[self.groups[g][0]];
            if matches!(first.op, Op::Attention(_)) {
                gather_at = self.steps.len();
                gather = self.live();
            }
        }
        let head = match self.graph.nodes.last() {
            Some(Node {
                op: Op::Linear { weight, bias },
                inputs,
                ..
            }) => Head {
                x: self.slot(inputs[0]),
                weight: *weight,
                bias: *bias,
            },
            _ => return Err(ScheduleError::NoLogits),
        };
        Ok(Schedule {
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
        let input = |i: usize| node.inputs[i];
        let kind = match &node.op {
            Op::Embed { table, scale } => {
                let out = self.allocate(node.output);
                StageKind::Embed {
                    table: *table,
                    scale: *scale,
                    out,
                }
            }
            Op::RmsNorm {
                weight,
                eps,
                offset,
                group,
            } => {
                let (x, out) = (self.slot(input(0)), self.allocate(node.output));
                let (weight, eps, offset, group) = (*weight, *eps, *offset, *group);
                StageKind::RmsNorm {
                    weight,
                    eps,
                    offset,
                    group,
                    x,
                    out,
                }
            }
            Op::Linear { .. } => self.linear_step(g),
            Op::Rope { rope, head_dim } => {
                let x = self.in_place(g, input(0), node.output);
                StageKind::Rope {
                    rope: *rope,
                    head_dim: *head_dim,
                    x,
                }
            }
            Op::Attention(attention) => {
                let [q, k, v] = [0, 1, 2].map(|i| self.slot(input(i)));
                let out = self.allocate(node.output);
                StageKind::Attention {
                    attention: attention.clone(),
                    q,
                    k,
                    v,
                    out,
                }
            }
            Op::Glu { activation } => {
                let up = self.slot(input(1));
                let gate = self.in_place(g, input(0), node.output);
                StageKind::Glu {
                    activation: *activation,
                    gate,
                    up,
                }
            }
            Op::Add => {
                let (a, b) = (input(0), input(1));
                // Addition commutes bit for bit, so either operand may become the accumulator.
                let b_only_dies = self.last_use[a.0] != g && self.last_use[b.0] == g;
                let (acc, x) = if b_only_dies { (b, a) } else { (a, b) };
                let x = self.slot(x);
                StageKind::Add {
                    acc: self.in_place(g, acc, node.output),
                    x,
                }
            }
        };
        let outputs = group.iter().map(|&i| self.graph.nodes[i].output);
        let hidden = outputs.flat_map(|value| self.hidden_of(value)).collect();
        self.steps.push(Stage { kind, hidden });
    }

    fn linear_step(&mut self, g: usize) -> StageKind {
        let x = self.slot(self.graph.nodes[self.groups[g][0]].inputs[0]);
        let mut parts = Vec::new();
        for &i in &self.groups[g] {
            let node = &self.graph.nodes[i];
            if let Op::Linear { weight, bias } = node.op {
                parts.push(LinearPart {
                    weight,
                    bias,
                    out: self.allocate(node.output),
                });
            }
        }
        StageKind::Linear { x, parts }
    }

    fn hidden_of(&self, value: ValueId) -> Vec<(usize, Register)> {
        let states = self.graph.hidden.iter().enumerate();
        states
            .filter(|(_, v)| **v == value)
            .map(|(i, v)| (i, self.slot(*v)))
            .collect()
    }

    fn slot(&self, value: ValueId) -> Register {
        self.slot_of[value.0].expect("check() saw every value written before it is read")
    }

    /// A buffer for a new value: the free one that fits tightest, else the widest free one grown,
    /// else a new one.
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
        let slot = Register { buffer, width };
        self.slot_of[value.0] = Some(slot);
        slot
    }

    /// The place of `input`, to be overwritten as `output`; a copy if a later step reads `input`.
    fn in_place(&mut self, g: usize, input: ValueId, output: ValueId) -> Register {
        let x = self.slot(input);
        if self.last_use[input.0] == g {
            self.slot_of[output.0] = Some(x);
            self.slot_of[input.0] = None;
            return x;
        }
        let out = self.allocate(output);
        self.steps.push(Stage {
            kind: StageKind::Copy { x, out },
            hidden: Vec::new(),
        });
        out
    }

    fn release_dead(&mut self, g: usize) {
        for value in 0..self.slot_of.len() {
            if self.last_use[value] <= g
                && let Some(slot) = self.slot_of[value].take()
            {
                self.free.push(slot.buffer);
            }
        }
    }

    fn live(&self) -> Vec<Register> {
        self.slot_of.iter().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests;
