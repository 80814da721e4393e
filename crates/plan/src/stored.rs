//! Checks of a plan that was read from a file or a cache.

use crate::{AttentionPart, Binding, Call, HostStep, NodePlace, Plan, Step};
use millrace_graph::{Graph, KvShape, Node, SequenceMemory, ValueId};

impl Plan {
    /// Checks that every index in a stored plan is within the plan's own lists or the graph's.
    ///
    /// # Errors
    /// The index that is out of range, for people.
    pub fn check(&self, graph: &Graph) -> Result<(), String> {
        let here = |what: &str, index: usize, len: usize| match index < len {
            true => Ok(()),
            false => Err(format!("{what} {index} of {len}")),
        };
        let value = |v: ValueId| here("value", v.0, graph.values.len());
        self.single_row.iter().try_for_each(|&v| value(v))?;
        for step in &self.steps {
            match step {
                Step::Call(call) => self.check_call(call, graph)?,
                Step::Host(HostStep::AppendKv { layer, k, v }) => {
                    here("layer", *layer, graph.hidden.len())?;
                    value(*k).and(value(*v))?;
                }
                Step::Host(host) => {
                    let nodes = host.node().into_iter();
                    nodes
                        .into_iter()
                        .try_for_each(|n| here("node", n, graph.nodes.len()))?;
                }
            }
        }
        for placement in &self.placement {
            here("node", placement.node, graph.nodes.len())?;
            if let NodePlace::Device(device) = &placement.place {
                here("step", device.step, self.steps.len())?;
                here("program", device.program, self.programs.len())?;
                let n_launches = self.programs[device.program].launches.len();
                here("launch", device.launches.end, n_launches + 1)?;
            }
        }
        for planned in &self.programs {
            let n_slots = planned.slots().len();
            for launch in &planned.launches {
                let mut slots = launch.slots.iter();
                slots.try_for_each(|&slot| here("slot", slot, n_slots))?;
            }
        }
        Ok(())
    }

    fn check_call(&self, call: &Call, graph: &Graph) -> Result<(), String> {
        let set = &call.set;
        let Some(planned) = self.programs.get(call.program) else {
            return Err(format!("{set}: program {}", call.program));
        };
        if planned.slots().len() != call.bindings.len() {
            return Err(format!("{set}: not one binding a slot"));
        }
        if let Some(node) = call.nodes.iter().find(|n| **n >= graph.nodes.len()) {
            return Err(format!("{set}: node {node}"));
        }
        if let Some(experts) = call.experts {
            let fits = experts.op(graph).is_some() && experts.rows > 0;
            if !fits || call.nodes != [experts.node] {
                return Err(format!("{set}: {experts:?}"));
            }
        }
        for binding in &call.bindings {
            let fits = match binding {
                Binding::Weight { weight, .. } => weight.0 < graph.weights.len(),
                Binding::RopeTable { rope, .. } => rope.0 < graph.ropes.len(),
                Binding::Value(value) => value.0 < graph.values.len(),
                Binding::Packed { value, bias, .. } => {
                    let here = bias.is_none_or(|bias| bias.weight.0 < graph.weights.len());
                    here && value.0 < graph.values.len()
                }
                Binding::Part { value, start, len } => {
                    let width = graph.values.get(value.0).map_or(0, |v| v.width);
                    start.checked_add(*len).is_some_and(|end| end <= width)
                }
                Binding::Cache { layer, .. } | Binding::CacheRange { layer, .. } => {
                    let attends =
                        |node: &Node| own_cache(node).is_some_and(|kv| kv.layer == *layer);
                    graph.nodes.iter().any(attends)
                }
                Binding::DeltaRows { node } => {
                    let node = graph.nodes.get(*node);
                    node.is_some_and(|node| node.op.delta_net().is_some())
                }
                Binding::StateBefore { index } | Binding::StateBehind { index } => {
                    let keeps = |node: &Node| own_state(node) == Some(*index);
                    graph.nodes.iter().any(keeps)
                }
                Binding::AttentionProduct {
                    node, kv_head, of, ..
                } => attends_head(graph, (*node, *kv_head), *of),
                Binding::Position
                | Binding::RangePosition { .. }
                | Binding::PassInput { .. }
                | Binding::Scratch => true,
            };
            if !fits {
                return Err(format!("{set}: {binding:?}"));
            }
        }
        Ok(())
    }
}

/// Whether a node is attention, has that key-value head, and takes or gives that value.
fn attends_head(graph: &Graph, (node, kv_head): (usize, usize), of: AttentionPart) -> bool {
    let Some(node) = graph.nodes.get(node) else {
        return false;
    };
    let value = match of {
        AttentionPart::Queries(q) => node.inputs.first() == Some(&q),
        AttentionPart::Sums(output) => node.output == output,
        _ => true,
    };
    value && own_cache(node).is_some_and(|kv| kv_head < kv.n_kv_heads)
}

/// The state that a node reads and replaces.
fn own_state(node: &Node) -> Option<usize> {
    match node.op.memory() {
        SequenceMemory::State(state) => Some(state.index),
        _ => None,
    }
}

/// The cache that a node appends to.
fn own_cache(node: &Node) -> Option<KvShape> {
    match node.op.memory() {
        SequenceMemory::KvCache(kv) => Some(kv),
        _ => None,
    }
}

impl HostStep {
    /// The graph's node that the step computes; appending keys and values belongs to none.
    pub fn node(&self) -> Option<usize> {
        match *self {
            HostStep::AppendKv { .. } => None,
            HostStep::Embed { node }
            | HostStep::Attention { node }
            | HostStep::DeltaRows { node }
            | HostStep::Softmax { node, .. }
            | HostStep::FinalNorm { node }
            | HostStep::Linear { node, .. }
            | HostStep::Op { node } => Some(node),
        }
    }
}
