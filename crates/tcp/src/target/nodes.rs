//! What each op of a graph becomes.

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

/// What an op becomes: the kernel, and what its slots hold but for the last, which is its result.
pub(super) struct NodeLowering {
    pub(super) op: Op,
    pub(super) bindings: Vec<Binding>,
}

pub(super) fn no<T>(reason: impl Into<String>) -> Result<T, Reason> {
    Err(Reason(reason.into()))
}

impl Tcp {
    /// What an op becomes.
    ///
    /// # Errors
    /// Why it is the host's.
    pub(super) fn wanted(
        &self,
        graph: &Graph,
        kind: &PassKind,
        of: &OpOf<'_>,
    ) -> Result<NodeLowering, Reason> {
        let node = of.node;
        let width = |value: ValueId| graph.values[value.0].width as u64;
        let input = |i: usize| Binding::Value(node.inputs[i]);
        let n = width(node.output);
        let op = |kind: OpKind, sizes: Vec<u64>| Op {
            kind,
            sizes,
            norm_eps: 1e-5,
            attention_scale: 1.0,
            weights: Weights::Bf16,
        };
        let both = |kind: OpKind| NodeLowering {
            op: op(kind, vec![of.n_rows, n]),
            bindings: vec![input(0), input(1)],
        };
        match &node.op {
            GraphOp::Embed(graph::Embed { scale, .. }) if *scale != 1.0 => no(format!(
                "rows of the table are multiplied by {scale}: a gather moves bytes"
            )),
            GraphOp::Embed(graph::Embed { table, .. }) => {
                let spec = &graph.weights[table.0];
                let layout = WeightLayout::AsStored { half_split: None };
                Ok(NodeLowering {
                    op: op(OpKind::Embed, vec![of.n_rows, spec.n as u64, n]),
                    bindings: vec![pass_input(SlotInput::Tokens), weight(*table, layout)],
                })
            }
            GraphOp::RmsNorm(norm) if !norm.shares_weight(graph) => {
                no("a norm of groups has one weight for all of them")
            }
            GraphOp::RmsNorm(graph::RmsNorm {
                weight: w,
                eps,
                offset,
                group,
            }) => {
                let group = *group as u64;
                let w = weight(*w, WeightLayout::Vector { offset: *offset });
                let is_row = of.n_rows_in > of.n_rows;
                let (op, bindings) = match is_row {
                    true if group != n => return no("a norm of heads takes all rows"),
                    true => (
                        op(OpKind::LastNorm, vec![of.n_rows_in, n]),
                        vec![input(0), pass_input(SlotInput::Last), w],
                    ),
                    false => (
                        op(OpKind::Norm, vec![of.n_rows * n / group, group]),
                        vec![input(0), w],
                    ),
                };
                Ok(NodeLowering {
                    op: Op {
                        norm_eps: *eps,
                        ..op
                    },
                    bindings,
                })
            }
            GraphOp::Linear(graph::Linear { bias: Some(_), .. }) => {
                no("no bias is added to a product here")
            }
            GraphOp::Linear(graph::Linear { weight: w, .. }) => {
                let (role, sizes) = role(graph, of.node, of.n_rows);
                let weights = match role {
                    Role::Head => Weights::Bf16,
                    _ => self.weights,
                };
                let own = |id: WeightArrangement| WeightLayout::Own {
                    id,
                    half_split: of.half_split,
                };
                let stored = WeightLayout::AsStored {
                    half_split: of.half_split,
                };
                let mut bindings = vec![input(0)];
                match weights {
                    Weights::Bf16 => bindings.push(weight(*w, stored)),
                    _ => bindings.extend([ELEMENTS, ROW_SCALES].map(|id| weight(*w, own(id)))),
                }
                Ok(NodeLowering {
                    op: Op {
                        weights,
                        ..op(OpKind::Product(role), sizes)
                    },
                    bindings,
                })
            }
            GraphOp::Rope(graph::RotateHeads { rope, head_dim, .. }) => {
                let n_rot = graph.ropes[rope.0].n_rot;
                if n_rot != *head_dim {
                    return no(format!("{n_rot} of {head_dim} elements of a head rotate"));
                }
                let (heads, pairs) = (n / *head_dim as u64, *head_dim as u64 / 2);
                let made = pass_input(SlotInput::Rotations {
                    rope: rope.0 as u32,
                });
                let op = match attended(graph, node.output) {
                    Some((a, 0)) if heads != a.n_kv_heads as u64 => {
                        let kv = a.n_kv_heads as u64;
                        let sizes = vec![of.n_rows, kv, heads / kv, pairs];
                        op(OpKind::RotateQueries, sizes)
                    }
                    _ => op(OpKind::RotateKeys, vec![of.n_rows, heads, pairs]),
                };
                Ok(NodeLowering {
                    op,
                    bindings: vec![input(0), made],
                })
            }
            GraphOp::Attention(a) if !a.is_plain() => {
                no("attention here has no sinks and no soft bound")
            }
            GraphOp::Attention(a) => {
                let AttentionOn::Cached { n_keys, max_tokens } = kind.attention else {
                    return no("attention is over the cache, in passes whose plan has one");
                };
                let (kv, d) = (a.n_kv_heads as u64, a.head_dim as u64);
                let groups = (a.n_heads / a.n_kv_heads) as u64;
                let cache = |of: CachePart| Binding::Cache { layer: a.layer, of };
                let window = a.window.and_then(|w| u32::try_from(w).ok()).unwrap_or(0);
                let sizes = vec![of.n_rows, kv, groups, d, n_keys, max_tokens];
                Ok(NodeLowering {
                    op: Op {
                        attention_scale: a.scale,
                        ..op(OpKind::Attend, sizes)
                    },
                    bindings: vec![
                        input(0),
                        cache(CachePart::Keys),
                        cache(CachePart::Values),
                        pass_input(SlotInput::Mask { window }),
                    ],
                })
            }
            GraphOp::Glu(graph::Glu {
                activation: Activation::Silu,
                clamp: None,
            }) => Ok(both(OpKind::Gate)),
            GraphOp::Glu(_) => no("the gate's activation is SiLU here"),
            GraphOp::Add(_) => Ok(both(OpKind::Add)),
            other => match offload::hosts_reason(other) {
                Some(reason) => no(reason),
                None => no(format!("no kernel computes {}", other.name())),
            },
        }
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
    /// Elements that a product of a role contracts, and those that it gives.
    pub(super) fn sides(&self, role: Role) -> (u64, u64) {
        let (from, to) = role.axes();
        let size = |axes: &[&str]| axes.iter().map(|axis| self.size(axis)).product();
        (size(from), size(to))
    }
}

/// The attention that takes a value, perhaps normed and rotated, and as which of its inputs.
fn attended(graph: &Graph, value: ValueId) -> Option<(&Attention, usize)> {
    let mut readers = graph.nodes.iter().filter(|n| n.inputs.contains(&value));
    let reader = readers.next()?;
    match &reader.op {
        GraphOp::Attention(a) => Some((a, reader.inputs.iter().position(|v| *v == value)?)),
        GraphOp::Rope(_) | GraphOp::RmsNorm(_) => attended(graph, reader.output),
        _ => None,
    }
}

/// What a product is in the model, and the sizes of its axes.
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
