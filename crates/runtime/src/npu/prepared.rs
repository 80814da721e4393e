//! A plan ready to run.

use super::NpuError;
use millrace_graph::{Graph, Op, ValueId};
use millrace_npu::Container;
use millrace_plan::{
    AttentionOn, Binding, BufferKind, Buffers, CachePart, Call, CompiledPlan, HeadRows, HostMove,
    NodePlace, OwnSlot, PassKind, Plan, PlannedBuffer, SlotUse, Step,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A plan with its programs packed, its buffers assigned and its buffer sets named.
pub(super) struct PreparedPlan {
    pub(super) plan: Arc<Plan>,
    buffers: Buffers,
    /// By call, in order.
    keys: Vec<String>,
    /// By step: values whose host copies are not needed afterwards.
    spent: Vec<Vec<ValueId>>,
    /// By layer and part of its cache, a call and the slot that holds it.
    caches: HashMap<(usize, CachePart), (usize, usize)>,
    /// Whether its static slots have content.
    pub(super) filled: Mutex<bool>,
}

impl PreparedPlan {
    /// `key` names the buffer set of a call of that program.
    pub(super) fn new(
        compiled: CompiledPlan,
        graph: &Graph,
        key: impl Fn(&Call, &Container) -> String,
    ) -> Result<PreparedPlan, NpuError> {
        let plan = compiled.plan;
        let mut keys = Vec::new();
        for call in plan.calls() {
            let planned = plan.programs.get(call.program);
            let planned = planned.ok_or_else(|| NpuError::plan(&call.set, "no such program"))?;
            let container = &*planned.container;
            if container.slots().len() != call.bindings.len() {
                return Err(NpuError::plan(&call.set, "not one binding a slot"));
            }
            keys.push(key(call, container));
        }
        let buffers = Buffers::of(&plan, graph);
        Ok(PreparedPlan {
            spent: spent(&plan, graph, &buffers),
            caches: caches(&plan),
            plan: Arc::new(plan),
            buffers,
            keys,
            filled: Mutex::new(false),
        })
    }

    /// A call's program; `call` is one of this plan's.
    pub(super) fn container(&self, call: &Call) -> &Container {
        &self.plan.programs[call.program].container
    }

    /// Key of the buffer set of call number `index`.
    pub(super) fn key(&self, index: usize) -> &str {
        &self.keys[index]
    }

    /// Keys of all buffer sets.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// The slots of call number `index`: their buffers, and the host's use of them.
    pub(super) fn uses(&self, index: usize) -> &[SlotUse] {
        &self.buffers.calls[index]
    }

    /// Whether the host computes embeddings and, unless programs support images, attention: rows of images take a
    /// different path through both.
    pub(super) fn takes_images(&self, graph: &Graph, on: AttentionOn) -> bool {
        let is_other = |node: usize| match graph.nodes.get(node).map(|node| &node.op) {
            Some(Op::Embed(_)) => true,
            Some(Op::Attention(_)) => on != AttentionOn::Image,
            _ => false,
        };
        let mut placed = self.plan.placement.iter().filter(|p| is_other(p.node));
        placed.all(|p| p.place == NodePlace::Host)
    }

    /// Whether a program reads the device's copy of the cache.
    pub(super) fn reads_cache(&self) -> bool {
        !self.caches.is_empty()
    }

    /// Call and slot that have that part of a layer's cache on the device.
    pub(super) fn cache_slot(&self, layer: usize, of: CachePart) -> Option<(usize, usize)> {
        self.caches.get(&(layer, of)).copied()
    }

    /// Bytes of static slots' buffers.
    pub(super) fn static_bytes(&self) -> u64 {
        self.buffers.static_bytes()
    }

    /// Buffers of the plan.
    pub(super) fn n_buffers(&self) -> usize {
        self.buffers.buffers.len()
    }

    /// A slot of a call whose content is in an arrangement of the target's own.
    pub(super) fn own_slot<I>(&self, call: &Call, slot: usize, id: I) -> OwnSlot<'_, I> {
        OwnSlot {
            program: &self.plan.programs[call.program],
            slot,
            id,
        }
    }

    /// Name under which slots of other sets know a slot's buffer.
    pub(super) fn buffer_name(&self, index: usize, slot: usize) -> Option<&str> {
        let used = self.uses(index).get(slot)?;
        self.buffers.buffers[used.buffer].name.as_deref()
    }

    /// Static tables of call number `index`, which hold for one position of the first token: slots and
    /// names.
    pub(super) fn tables(&self, index: usize) -> impl Iterator<Item = (usize, &str)> {
        let uses = self.uses(index).iter().enumerate();
        uses.filter_map(|(slot, used)| {
            let buffer = &self.buffers.buffers[used.buffer];
            match buffer.kind {
                BufferKind::Static(Binding::RopeTable { .. }) => {
                    Some((slot, buffer.name.as_deref()?))
                }
                _ => None,
            }
        })
    }

    /// Whether any call has such tables.
    pub(super) fn has_tables(&self) -> bool {
        let table =
            |b: &PlannedBuffer| matches!(b.kind, BufferKind::Static(Binding::RopeTable { .. }));
        self.buffers.buffers.iter().any(table)
    }

    /// Values whose host copies are not needed after step number `step`.
    pub(super) fn spent(&self, step: usize) -> &[ValueId] {
        &self.spent[step]
    }

    /// Whether a call of that set name runs that very program.
    pub(super) fn holds(&self, set: &str, container: &Container) -> bool {
        let same = |call: &Call| self.container(call).content_hash() == container.content_hash();
        self.plan.calls().any(|call| call.set == set && same(call))
    }
}

/// Suffix that distinguishes the buffer sets of a kind of pass from others of its length.
pub(super) fn suffix(kind: &PassKind, is_observed: bool) -> String {
    let attention = match kind.attention {
        AttentionOn::Device => String::new(),
        AttentionOn::Host => "+".to_owned(),
        AttentionOn::Image => "+image".to_owned(),
        AttentionOn::Cached { n_keys, .. } => format!("+{n_keys}"),
    };
    let head = match kind.head {
        HeadRows::Last => "",
        HeadRows::All => " all",
    };
    let seen = if is_observed { " observed" } else { "" };
    format!("{attention}{head}{seen}")
}

/// Slots that hold a layer's cache.
fn caches(plan: &Plan) -> HashMap<(usize, CachePart), (usize, usize)> {
    let mut caches = HashMap::new();
    for (index, call) in plan.calls().enumerate() {
        for (slot, binding) in call.bindings.iter().enumerate() {
            if let Binding::Cache { layer, of } = binding {
                caches.insert((*layer, *of), (index, slot));
            }
        }
    }
    caches
}

/// By step, the values that the host touches there for the last time; logits are the caller's.
fn spent(plan: &Plan, graph: &Graph, buffers: &Buffers) -> Vec<Vec<ValueId>> {
    let mut last: HashMap<ValueId, usize> = HashMap::new();
    let mut uses = buffers.calls.iter();
    for (index, step) in plan.steps.iter().enumerate() {
        match step {
            Step::Host(step) => last.extend(step.reads(graph).into_iter().map(|v| (v, index))),
            Step::Call(call) => {
                let choice = call.experts.and_then(|experts| experts.choice(graph));
                last.extend(choice.map(|choice| (choice, index)));
                let uses = uses.next().map(Vec::as_slice).unwrap_or_default();
                // An observer of a dispatch also sees the sources of its rows.
                let made_of = call.bindings.iter().filter_map(|binding| match binding {
                    Binding::DeltaRows { node } => graph.nodes.get(*node),
                    _ => None,
                });
                last.extend(made_of.flat_map(|node| node.inputs.iter().map(|v| (*v, index))));
                for (binding, used) in call.bindings.iter().zip(uses) {
                    if let (Some(value), true) = (binding.value(), used.host != HostMove::None) {
                        last.insert(value, index);
                    }
                }
            }
        }
    }
    let mut spent = vec![Vec::new(); plan.steps.len()];
    for (value, step) in last {
        if graph.logits != Some(value) {
            spent[step].push(value);
        }
    }
    spent
}
