//! The kernel of each op of a graph.

use super::inputs::SlotInput;
use super::planner::Tcp;
use super::weights::{ELEMENTS, ROW_SCALES};
use crate::lower::ops::{Op, OpKernel, OpKind, Role};
use crate::lower::{Note, Weights};
use millrace_graph::{
    self as graph, Activation, Attention, Graph, Node, Op as GraphOp, ValueId, WeightId, single_row,
};
use millrace_plan::offload::{self, OpOf};
use millrace_plan::{
    AttentionOn, Binding, CachePart, NamedNumbers, PassKind, PlannedLaunch, Reason,
    WeightArrangement, WeightLayout,
};

/// The kernel of an op, with the content of its slots except the last, which is its result.
pub(super) struct NodeLowering {
    pub(super) op: Op,
    pub(super) bindings: Vec<Binding>,
}

pub(super) fn no<T>(reason: impl Into<String>) -> Result<T, Reason> {
    Err(Reason(reason.into()))
}

/// A graph's op on its way to a kernel: input of the functions below.
struct NodeContext<'a> {
    graph: &'a Graph,
    of: &'a OpOf<'a>,
    /// Width of a row of the result.
    n: u64,
}

impl NodeContext<'_> {
    fn op(&self, kind: OpKind, sizes: Vec<u64>) -> Op {
        Op {
            kind,
            sizes,
            norm_eps: 1e-5,
            attention_scale: 1.0,
            weights: Weights::Bf16,
        }
    }

    fn input(&self, i: usize) -> Binding {
        Binding::Value(self.of.node.inputs[i])
    }

    /// Two rows give one, element by element.
    fn of_two(&self, kind: OpKind) -> NodeLowering {
        NodeLowering {
            op: self.op(kind, vec![self.of.n_rows, self.n]),
            bindings: vec![self.input(0), self.input(1)],
        }
    }

    fn embed(&self, embed: &graph::Embed) -> Result<NodeLowering, Reason> {
        if embed.scale != 1.0 {
            let scale = embed.scale;
            return no(format!(
                "rows of the table are multiplied by {scale}: a gather moves bytes"
            ));
        }
        let n_rows = self.graph.weights[embed.table.0].n as u64;
        let layout = WeightLayout::AsStored { half_split: None };
        Ok(NodeLowering {
            op: self.op(OpKind::Embed, vec![self.of.n_rows, n_rows, self.n]),
            bindings: vec![pass_input(SlotInput::Tokens), weight(embed.table, layout)],
        })
    }

    fn norm(&self, norm: &graph::RmsNorm) -> Result<NodeLowering, Reason> {
        if !norm.shares_weight(self.graph) {
            return no("a norm of groups has one weight for all of them");
        }
        let (of, n, group) = (self.of, self.n, norm.group as u64);
        let layout = WeightLayout::Vector {
            offset: norm.offset,
        };
        let w = weight(norm.weight, layout);
        let last_row = of.n_rows_in > of.n_rows;
        if last_row && group != n {
            return no("a norm of heads takes all rows");
        }
        let (op, bindings) = if last_row {
            (
                self.op(OpKind::LastNorm, vec![of.n_rows_in, n]),
                vec![self.input(0), pass_input(SlotInput::Last), w],
            )
        } else {
            (
                self.op(OpKind::Norm, vec![of.n_rows * n / group, group]),
                vec![self.input(0), w],
            )
        };
        let norm_eps = norm.eps;
        Ok(NodeLowering {
            op: Op { norm_eps, ..op },
            bindings,
        })
    }

    /// A product; all but the head's take their matrix as `weights`.
    fn linear(&self, linear: &graph::Linear, weights: Weights) -> Result<NodeLowering, Reason> {
        if linear.bias.is_some() {
            return no("no bias is added to a product here");
        }
        let (role, sizes) = role(self.graph, self.of.node, self.of.n_rows);
        let weights = match role {
            Role::Head => Weights::Bf16,
            _ => weights,
        };
        Ok(self.product(linear.weight, weights, (role, sizes)))
    }

    /// Rows times a matrix.
    fn product(
        &self,
        id: WeightId,
        weights: Weights,
        (role, sizes): (Role, Vec<u64>),
    ) -> NodeLowering {
        let half_split = self.of.half_split;
        let own = |id: WeightArrangement| WeightLayout::Own { id, half_split };
        let mut bindings = vec![self.input(0)];
        match weights {
            Weights::Bf16 => bindings.push(weight(id, WeightLayout::AsStored { half_split })),
            _ => {
                let parts = [ELEMENTS, ROW_SCALES];
                bindings.extend(parts.map(|part| weight(id, own(part))));
            }
        }
        NodeLowering {
            op: Op {
                weights,
                ..self.op(OpKind::Product(role), sizes)
            },
            bindings,
        }
    }

    fn rope(&self, rotate: &graph::RotateHeads) -> Result<NodeLowering, Reason> {
        let head_dim = rotate.head_dim;
        let n_rot = self.graph.ropes[rotate.rope.0].n_rot;
        if n_rot != head_dim {
            return no(format!("{n_rot} of {head_dim} elements of a head rotate"));
        }
        let (heads, pairs) = (self.n / head_dim as u64, head_dim as u64 / 2);
        let op = match attended(self.graph, self.of.node.output) {
            Some((a, 0)) if heads != a.n_kv_heads as u64 => {
                let kv = a.n_kv_heads as u64;
                let sizes = vec![self.of.n_rows, kv, heads / kv, pairs];
                self.op(OpKind::RotateQueries, sizes)
            }
            _ => self.op(OpKind::RotateKeys, vec![self.of.n_rows, heads, pairs]),
        };
        let rope = rotate.rope.0 as u32;
        let table = pass_input(SlotInput::Rotations { rope });
        Ok(NodeLowering {
            op,
            bindings: vec![self.input(0), table],
        })
    }

    fn attention(&self, a: &Attention, kind: &PassKind) -> Result<NodeLowering, Reason> {
        if !a.is_plain() {
            return no(
                "attention here has no sinks, no soft bound, no biases by distance and no chunks",
            );
        }
        let AttentionOn::Cached { n_keys, max_tokens } = kind.attention else {
            return no("attention is over the cache, in passes whose plan has one");
        };
        let (kv, d) = (a.n_kv_heads as u64, a.head_dim as u64);
        let groups = (a.n_heads / a.n_kv_heads) as u64;
        let cache = |of: CachePart| Binding::Cache { layer: a.layer, of };
        let window = a.window.and_then(|w| u32::try_from(w).ok()).unwrap_or(0);
        let sizes = vec![self.of.n_rows, kv, groups, d, n_keys, max_tokens];
        Ok(NodeLowering {
            op: Op {
                attention_scale: a.scale,
                ..self.op(OpKind::Attend, sizes)
            },
            bindings: vec![
                self.input(0),
                cache(CachePart::Keys),
                cache(CachePart::Values),
                pass_input(SlotInput::Mask { window }),
            ],
        })
    }
}

impl Tcp {
    /// The kernel of an op.
    ///
    /// # Errors
    /// Why the host computes it.
    pub(super) fn lower_node(
        &self,
        graph: &Graph,
        kind: &PassKind,
        of: &OpOf<'_>,
    ) -> Result<NodeLowering, Reason> {
        let n = graph.values[of.node.output.0].width as u64;
        let lowering = NodeContext { graph, of, n };
        match &of.node.op {
            GraphOp::Embed(embed) => lowering.embed(embed),
            GraphOp::RmsNorm(norm) => lowering.norm(norm),
            GraphOp::Linear(linear) => lowering.linear(linear, self.weights),
            GraphOp::Rope(rotate) => lowering.rope(rotate),
            GraphOp::Attention(attention) => lowering.attention(attention, kind),
            GraphOp::Glu(graph::Glu {
                activation: Activation::Silu,
                clamp: None,
            }) => Ok(lowering.of_two(OpKind::Gate)),
            GraphOp::Glu(_) => no("the gate's activation is SiLU here"),
            GraphOp::Add(_) => Ok(lowering.of_two(OpKind::Add)),
            other => match offload::hosts_reason(other) {
                Some(reason) => no(reason),
                None => no(format!("no kernel computes {}", other.name())),
            },
        }
    }
}

impl Tcp {
    /// The product of so many rows with the matrix of an expert that they chose.
    pub(super) fn lower_expert(
        &self,
        graph: &Graph,
        of: &OpOf<'_>,
        experts: &graph::ExpertLinear,
        n_rows: u64,
    ) -> NodeLowering {
        let spec = &graph.weights[experts.weight.0];
        let (n, k) = (spec.n as u64, spec.k as u64);
        let sizes = (Role::Other, vec![n_rows, k, n]);
        NodeContext { graph, of, n }.product(experts.weight, self.weights, sizes)
    }
}

/// An op as a launch, without its slots.
pub(super) fn launch(label: &str, op: &Op, cut: &[(&'static str, u64)]) -> PlannedLaunch {
    let kernel = OpKernel::of(op.kind);
    let sizes = kernel.axes.iter().copied().zip(op.sizes.iter().copied());
    PlannedLaunch {
        name: label.to_owned(),
        kernel: kernel.name.to_owned(),
        shape: NamedNumbers::new(&sizes.collect::<Vec<_>>()),
        tiling: NamedNumbers::new(cut),
        slots: Vec::new(),
        n_results: 0,
        physical: 0..1,
    }
}

/// Notes of an op in one line.
pub(super) fn line(notes: &[Note]) -> String {
    let lines = notes.iter().map(|note| match note.levels.is_empty() {
        true => format!("{}; {}", note.expression, note.engine),
        false => format!("{}; {}; {}", note.expression, note.engine, note.levels),
    });
    lines.collect::<Vec<_>>().join(" · ")
}

fn pass_input(input: SlotInput) -> Binding {
    Binding::PassInput { id: input.id() }
}

fn weight(weight: WeightId, layout: WeightLayout) -> Binding {
    Binding::Weight { weight, layout }
}

impl Op {
    /// Elements that a product of a role contracts, and those of its result.
    pub(super) fn sides(&self, role: Role) -> (u64, u64) {
        let (from, to) = role.axes();
        let size = |axes: &[&str]| axes.iter().map(|axis| self.size(axis)).product();
        (size(from), size(to))
    }
}

/// The attention that takes a value, perhaps normed and rotated, and the index of that input.
fn attended(graph: &Graph, value: ValueId) -> Option<(&Attention, usize)> {
    let mut readers = graph.nodes.iter().filter(|n| n.inputs.contains(&value));
    let reader = readers.next()?;
    match &reader.op {
        GraphOp::Attention(a) => Some((a, reader.inputs.iter().position(|v| *v == value)?)),
        GraphOp::Rope(_) | GraphOp::RmsNorm(_) => attended(graph, reader.output),
        _ => None,
    }
}

/// The role of a product in the model, and the sizes of its axes.
fn role(graph: &Graph, node: &Node, n_rows: u64) -> (Role, Vec<u64>) {
    let width = |value: ValueId| graph.values[value.0].width as u64;
    let (k, n) = (width(node.inputs[0]), width(node.output));
    let heads = |a: &Attention| {
        let (kv, groups) = (a.n_kv_heads, a.n_heads / a.n_kv_heads);
        [kv, groups, a.head_dim].map(|size| size as u64)
    };
    let from = graph.nodes.iter().find(|n| n.output == node.inputs[0]);
    let reader = graph.nodes.iter().find(|n| n.inputs.contains(&node.output));
    let is_behind_norm = single_row(graph).contains(&node.inputs[0]);
    let role = match (from.map(|n| &n.op), reader.map(|n| &n.op)) {
        (Some(GraphOp::Attention(a)), _) => {
            let [kv, groups, d] = heads(a);
            return (Role::Output, vec![n_rows, kv, groups, d, n]);
        }
        (Some(GraphOp::Glu(_)), _) => Role::Down,
        (_, Some(GraphOp::Glu(_))) => Role::Up,
        _ if graph.logits == Some(node.output) || is_behind_norm => Role::Head,
        _ => match attended(graph, node.output) {
            Some((a, 0)) => {
                let [kv, groups, d] = heads(a);
                return (Role::Queries, vec![n_rows, k, kv, groups, d]);
            }
            Some((a, _)) => {
                let [kv, _, d] = heads(a);
                return (Role::Keys, vec![n_rows, k, kv, d]);
            }
            None => Role::Other,
        },
    };
    (role, vec![n_rows, k, n])
}
