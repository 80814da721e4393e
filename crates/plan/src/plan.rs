//! The result of lowering: a pass as calls of programs and steps of the host.

mod binding;
pub(crate) mod host_step;
pub use binding::{Binding, CachePart};
use host_step::HostStep;

use crate::{ExpertCall, HeadRows, Shape, Tiling};
use millrace_graph::{Graph, ValueId};
use millrace_npu::{Container, Role, Slot};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Phase that a plan computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Many tokens at once; logits of one of them.
    Prefill,
    /// One token.
    Decode,
}

/// A forward pass as calls and host steps.
///
/// Values are the host's `[n_rows, width]` row-major, in bf16; a slot holds them in its own element type.
/// [`Buffers`](crate::Buffers) says which buffers hold them, and which of them the host writes and reads.
/// [`Plan::edges`] says who takes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Prefill or decode.
    pub phase: Phase,
    /// Tokens it takes; 1 in decode.
    pub n_tokens: u64,
    /// Whether a value stays in one buffer from the program that writes it to the last that reads it. Otherwise each
    /// call has separate buffers, and the host carries values between them.
    pub alias: bool,
    /// Which rows of logits the caller takes.
    pub head: HeadRows,
    /// Programs, each once, in the order of their first call. A plan in a cache names them by content
    /// hash ([`compile`](crate::compile())).
    #[serde(skip)]
    pub programs: Vec<PlannedProgram>,
    /// Calls and host steps, in order.
    pub steps: Vec<Step>,
    /// Where each node of the graph runs, by its index.
    pub placement: Vec<Placement>,
    /// The final norm's output and the values after it, a single row even in a prefill; empty where every row goes
    /// through the head.
    pub single_row: Vec<ValueId>,
}

/// A program with its launches.
#[derive(Clone, Debug)]
pub struct PlannedProgram {
    /// Bytes that a device loads.
    pub container: Arc<Container>,
    /// Logical launches, in order: one a kernel.
    pub launches: Vec<PlannedLaunch>,
    /// The target's own form of the program.
    pub annex: Annex,
}

impl PlannedProgram {
    /// The program's name.
    pub fn name(&self) -> &str {
        self.container.name()
    }

    /// Its argument list.
    pub fn slots(&self) -> &[Slot] {
        self.container.slots()
    }
}

impl PartialEq for PlannedProgram {
    /// The annex is derived from the container's bytes, so it is not compared.
    fn eq(&self, other: &PlannedProgram) -> bool {
        self.container == other.container && self.launches == other.launches
    }
}

/// A target's own form of a program, for its explanations and predictions; opaque to everything else.
#[derive(Clone, Default)]
pub struct Annex(Option<Arc<dyn Any + Send + Sync>>);

impl Annex {
    /// An annex with that content.
    pub fn new(content: impl Any + Send + Sync) -> Annex {
        Annex(Some(Arc::new(content)))
    }

    /// The content, if it is of that type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for Annex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Annex")
    }
}

/// A kernel within a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedLaunch {
    /// The node's label; with its number for a part of the head (`lm_head_p3`).
    pub name: String,
    /// The target's kernel.
    pub kernel: String,
    /// The problem's dimensions.
    pub shape: Shape,
    /// How it is tiled.
    pub tiling: Tiling,
    /// The program's slot for each of the kernel's, in the kernel's order: results come last.
    pub slots: Vec<usize>,
    /// How many of [`slots`](PlannedLaunch::slots) it writes: one a product.
    pub n_results: usize,
    /// Its launches in the program: more than one where a kernel casts in a separate launch.
    pub physical: Range<usize>,
}

impl PlannedLaunch {
    /// The slots that it writes.
    pub fn results(&self) -> &[usize] {
        let n_results = self.n_results.min(self.slots.len());
        &self.slots[self.slots.len() - n_results..]
    }
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
    /// Content of each slot, one a slot.
    pub bindings: Vec<Binding>,
    /// The graph's nodes that it computes, in order.
    pub nodes: Vec<usize>,
    /// For experts: the call is a dispatch for each expert that was chosen, its values the rows that chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertCall>,
}

/// Where a node runs, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Index in the graph's nodes.
    pub node: usize,
    /// The place.
    pub place: NodePlace,
    /// The rule that decided, in words.
    pub reason: String,
}

/// Where a node runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodePlace {
    /// On the device.
    Device(Device),
    /// On the CPU.
    Host,
}

/// Where on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Index in [`Plan::steps`].
    pub step: usize,
    /// Index in [`Plan::programs`].
    pub program: usize,
    /// Its logical launches there.
    pub launches: Range<usize>,
}

/// Slot numbers by role, as the published stack for Llama-3.2-1B passes them to its `load_and_run`.
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
    /// The sets of an argument list.
    pub fn of(slots: &[Slot]) -> IndexSets {
        let mut sets = IndexSets::default();
        for (i, slot) in slots.iter().enumerate() {
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

/// A value on its way from a call to others: a candidate for one common buffer.
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

    /// Rows of the content that a slot is bound to.
    pub fn rows_bound(&self, binding: &Binding) -> u64 {
        binding.value().map_or(1, |value| self.n_rows(value))
    }

    /// Calls of the plan: dispatches of a pass.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps.iter().filter_map(|step| match step {
            Step::Call(call) => Some(call),
            Step::Host(_) => None,
        })
    }

    /// Layers to whose caches a call's program appends the pass's rows itself: each once.
    pub fn appends(&self, call: &Call) -> Vec<usize> {
        let slots = self.programs.get(call.program).map(PlannedProgram::slots);
        let slots = slots.unwrap_or_default().iter().zip(&call.bindings);
        let mut layers: Vec<usize> = slots.filter_map(appended).collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    /// Layers to whose caches the host appends the pass's rows right behind the call at that step. The call reads the
    /// earlier rows only.
    pub fn appended_behind(&self, step: usize) -> Vec<usize> {
        let Some(Step::Call(call)) = self.steps.get(step) else {
            return Vec::new();
        };
        let reads = |layer: usize| {
            let of = |b: &Binding| matches!(b, Binding::Cache { layer: l, .. } if *l == layer);
            call.bindings.iter().any(of)
        };
        let behind = self
            .steps
            .iter()
            .skip(step + 1)
            .map_while(|step| match step {
                Step::Host(HostStep::AppendKv { layer, .. }) => Some(*layer),
                _ => None,
            });
        behind.filter(|&layer| reads(layer)).collect()
    }

    /// Every value that a call gives out, by value: which calls take it, and whether the host reads it.
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
        // The host gathers the rows of experts, and puts their results in place.
        if call.experts.is_some() {
            for value in call.bindings.iter().filter_map(Binding::value) {
                if let Some(edge) = edges.get_mut(&value) {
                    edge.host_reads = true;
                }
            }
            return;
        }
        for (slot, binding) in call.bindings.iter().enumerate() {
            // The host takes a head's part of it.
            if let Binding::AttentionProduct { of, .. } = binding
                && let Some(edge) = of.value().and_then(|value| edges.get_mut(&value))
            {
                edge.host_reads = true;
            }
            let (Binding::Value(value) | Binding::Packed { value, .. }, Some(declared)) =
                (binding, planned.slots().get(slot))
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

/// The layer of a slot's cache, where the program writes it.
fn appended((slot, binding): (&Slot, &Binding)) -> Option<usize> {
    match (slot.role, binding) {
        (Role::Intermediate, Binding::Cache { layer, .. }) => Some(*layer),
        _ => None,
    }
}
