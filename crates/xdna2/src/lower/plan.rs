//! The result of lowering.

use super::store::MappingName;
use super::{TableRows, WeightLayout};
use crate::Program;
use crate::mapping::{Shape, Tiling};
use millrace_model::graph::{Graph, Op, RopeId, ValueId, WeightId};
use millrace_npu::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a plan computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Many tokens at once; logits of one of them.
    Prefill,
    /// One token.
    Decode,
}

/// A forward pass as calls and host steps.
///
/// Values cross between steps as bf16 `[n_rows, width]` row-major. [`Buffers`](super::Buffers) tells
/// which buffers hold them, and which of them the host writes and reads; [`Plan::edges`] who
/// takes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Prefill or decode.
    pub phase: Phase,
    /// Tokens it takes; 1 in decode.
    pub n_tokens: u64,
    /// Programs, each once, in the order of their first call.
    pub programs: Vec<PlannedProgram>,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Where each node of the graph runs, by its index.
    pub placement: Vec<Placement>,
    /// The final norm's output and what follows it, a single row even in a prefill; none where every
    /// row goes through the head (without [`Feature::SingleRowHead`](super::Feature::SingleRowHead)).
    pub single_row: Vec<ValueId>,
}

/// A program and what its launches are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedProgram {
    /// What the device runs. Written without it: [`compile`](crate::compile) keeps programs by
    /// themselves.
    #[serde(with = "super::store::by_name")]
    pub program: Program,
    /// Logical launches, in order: one a kernel, as seed 000 counts them.
    pub launches: Vec<LogicalLaunch>,
}

/// A kernel within a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogicalLaunch {
    /// The node's label; with its number for a part of the head (`lm_head_p3`).
    pub name: String,
    /// The mapping.
    #[serde(deserialize_with = "super::store::mapping")]
    pub mapping: MappingName,
    /// The problem.
    pub shape: Shape,
    /// How it is tiled.
    pub tiling: Tiling,
    /// The program's slot for each slot of the mapping, in the mapping's order.
    pub slots: Vec<usize>,
    /// Its launches in the program: more than one where a mapping casts in a launch of its own.
    pub physical: Range<usize>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// A dispatch.
    Call(Call),
    /// Work of the host.
    Host(HostStep),
}

/// A dispatch of a program on a buffer set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Index in [`Plan::programs`].
    pub program: usize,
    /// Key of the buffer set: `rms_gemms_rope_L5`. No two calls of a plan share one.
    pub set: String,
    /// What each slot holds, one a slot.
    pub bindings: Vec<Binding>,
    /// The graph's nodes that it computes, in order.
    pub nodes: Vec<usize>,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Binding {
    /// A weight in bf16, arranged as the layout says; quantised ones are decoded. `static`.
    Weight {
        /// Which.
        weight: WeightId,
        /// How.
        layout: WeightLayout,
    },
    /// Cosines and sines ([`rope_table`](super::rope_table)): `static` in a prefill, where they
    /// hold from the chunk's first position, `input` in decode.
    RopeTable {
        /// Which frequencies.
        rope: RopeId,
        /// Which rows.
        rows: TableRows,
    },
    /// A value: an `input` slot is written from the host's copy, an `output` slot read to it.
    Value(ValueId),
    /// Elements `start .. start + len` of each of a value's rows; what follows them in the slot's
    /// rows is padding.
    Part {
        /// Which.
        value: ValueId,
        /// First element.
        start: usize,
        /// How many.
        len: usize,
    },
    /// A layer's cached keys or values, `[n_kv_heads, max_tokens, head_dim]` (seed 000 A4): the
    /// sequence's own, which gets its new rows before the call ([`HostStep::AppendKv`]) and is never
    /// written as a whole. Rows that were never written are zeros. `static`.
    Cache {
        /// The cache's layer.
        layer: usize,
        /// Which of its two arrays.
        of: CachePart,
    },
    /// Position of the pass's first token ([`position_slot`](super::position_slot)). `input`.
    Position,
    /// Overwritten by the program, of no interest afterwards. `intermediate`.
    Scratch,
}

/// One of the two arrays of a layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CachePart {
    /// Rotated keys.
    Keys,
    /// Values.
    Values,
}

/// Work of the host between calls. Values are bf16 as everywhere in a plan; `node` is an index in
/// the graph's nodes and says operands and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostStep {
    /// Rows of the embedding table.
    Embed {
        /// The node.
        node: usize,
    },
    /// Appends K and V `[n_tokens, n_kv_heads, head_dim]` to a layer's cache.
    AppendKv {
        /// The cache's layer.
        layer: usize,
        /// Rotated keys.
        k: ValueId,
        /// Values.
        v: ValueId,
    },
    /// Attention of the node's Q over the layer's cache, after [`HostStep::AppendKv`].
    Attention {
        /// The node.
        node: usize,
    },
    /// The norm before the head, of the one row whose logits are wanted.
    FinalNorm {
        /// The node.
        node: usize,
    },
    /// An RMSNorm that the array cannot take.
    Norm {
        /// The node.
        node: usize,
    },
    /// A projection that the array cannot take.
    Linear {
        /// The node.
        node: usize,
        /// With a head's elements: outputs to put in half-split order, as
        /// [`WeightLayout::source_row`] does for weights.
        half_split: Option<usize>,
    },
    /// A rotation that the array cannot take; half-split whatever the graph's style.
    Rope {
        /// The node.
        node: usize,
    },
    /// A gated activation that the array cannot take.
    Glu {
        /// The node.
        node: usize,
    },
    /// A sum that the array cannot take.
    Add {
        /// The node.
        node: usize,
    },
}

/// Where a node runs, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Index in the graph's nodes.
    pub node: usize,
    /// Where.
    pub place: Place,
    /// The rule that decided, in words.
    pub reason: String,
}

/// Where a node runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// On the array.
    Device(Device),
    /// On the CPU.
    Host,
}

/// Where on the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Index in [`Plan::steps`].
    pub step: usize,
    /// Index in [`Plan::programs`].
    pub program: usize,
    /// Its logical launches there.
    pub launches: Range<usize>,
}

/// Slot numbers as seed 000 B6 passes them to `load_and_run`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSets {
    /// Written before each call.
    pub input: Vec<usize>,
    /// Written once: weights and tables.
    pub statics: Vec<usize>,
    /// Overwritten by the program, so never written by the host; outputs among them.
    pub intermediate: Vec<usize>,
    /// Read back.
    pub output: Vec<usize>,
}

impl IndexSets {
    /// The sets of a program.
    pub fn of(program: &Program) -> IndexSets {
        let mut sets = IndexSets::default();
        for (i, slot) in program.slots.iter().enumerate() {
            match slot.role {
                Role::Static => sets.statics.push(i),
                Role::Input => sets.input.push(i),
                Role::Intermediate => sets.intermediate.push(i),
                Role::Output => {
                    sets.intermediate.push(i);
                    sets.output.push(i);
                }
            }
        }
        sets
    }
}

/// A slot of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Index in [`Plan::steps`].
    pub step: usize,
    /// Slot of the call's program.
    pub slot: usize,
}

/// A value on its way from a call to others: a candidate for one common buffer (seed 000 D2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The value.
    pub value: ValueId,
    /// The slot that holds it first.
    pub from: End,
    /// Slots of later calls that take it, whole.
    pub to: Vec<End>,
    /// Whether a host step, or the caller (logits), reads it too.
    pub host_reads: bool,
}

impl Plan {
    /// Rows of a value: the plan's tokens, or 1 from the final norm on.
    pub fn n_rows(&self, value: ValueId) -> u64 {
        if self.single_row.contains(&value) {
            1
        } else {
            self.n_tokens
        }
    }

    /// Rows of what a slot is bound to.
    pub fn rows_bound(&self, binding: &Binding) -> u64 {
        match binding {
            Binding::Value(value) | Binding::Part { value, .. } => self.n_rows(*value),
            _ => 1,
        }
    }

    /// Calls of the plan: dispatches of a pass.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps.iter().filter_map(|step| match step {
            Step::Call(call) => Some(call),
            Step::Host(_) => None,
        })
    }

    /// Every value that a call gives out, by value: who takes it, and whether the host reads it.
    pub fn edges(&self, graph: &Graph) -> Vec<Edge> {
        let mut edges: BTreeMap<ValueId, Edge> = BTreeMap::new();
        for (step, s) in self.steps.iter().enumerate() {
            match s {
                Step::Call(call) => self.add_ends(step, call, &mut edges),
                Step::Host(host) => {
                    for value in host.reads(graph) {
                        if let Some(edge) = edges.get_mut(&value) {
                            edge.host_reads = true;
                        }
                    }
                }
            }
        }
        for edge in edges.values_mut() {
            edge.host_reads |= graph.logits == Some(edge.value);
        }
        edges.into_values().collect()
    }

    fn add_ends(&self, step: usize, call: &Call, edges: &mut BTreeMap<ValueId, Edge>) {
        let Some(planned) = self.programs.get(call.program) else {
            return;
        };
        for (slot, binding) in call.bindings.iter().enumerate() {
            let (Binding::Value(value), Some(declared)) =
                (binding, planned.program.slots.get(slot))
            else {
                continue;
            };
            let end = End { step, slot };
            if declared.role == Role::Output {
                let edge = Edge {
                    value: *value,
                    from: end,
                    to: Vec::new(),
                    host_reads: false,
                };
                edges.insert(*value, edge);
            } else if let Some(edge) = edges.get_mut(value) {
                edge.to.push(end);
            }
        }
    }
}

impl HostStep {
    /// The graph values that the host reads in this step.
    pub fn reads(&self, graph: &Graph) -> Vec<ValueId> {
        match *self {
            HostStep::AppendKv { k, v, .. } => vec![k, v],
            HostStep::Embed { node }
            | HostStep::Attention { node }
            | HostStep::FinalNorm { node }
            | HostStep::Norm { node }
            | HostStep::Linear { node, .. }
            | HostStep::Rope { node }
            | HostStep::Glu { node }
            | HostStep::Add { node } => match graph.nodes.get(node) {
                // K and V come from the cache.
                Some(n) if matches!(n.op, Op::Attention(_)) => {
                    n.inputs.iter().take(1).copied().collect()
                }
                Some(n) => n.inputs.clone(),
                None => Vec::new(),
            },
        }
    }
}
