//! Looking into a plan: which node a launch computes, which value a slot holds.

use super::{Binding, Call, LogicalLaunch, Place, Plan, Step};
use millrace_model::graph::{Graph, ValueId};
use std::ops::Range;

impl Plan {
    /// The call at a step; `None` for a host step.
    pub fn call_at(&self, step: usize) -> Option<&Call> {
        match self.steps.get(step)? {
            Step::Call(call) => Some(call),
            Step::Host(_) => None,
        }
    }

    /// Nodes that a call computes, in order, each with its logical launches.
    pub fn nodes_at(&self, step: usize) -> Vec<(usize, Range<usize>)> {
        let placed = self.placement.iter();
        let here = placed.filter_map(|placement| match &placement.place {
            Place::Device(device) if device.step == step => {
                Some((placement.node, device.launches.clone()))
            }
            _ => None,
        });
        let mut nodes: Vec<_> = here.collect();
        nodes.sort_by_key(|(_, launches)| launches.start);
        nodes
    }

    /// The value that each slot of a call holds after it, whole: intermediate ones too, which no
    /// binding names. `None` for weights, tables, and parts of a value.
    pub fn slot_values(&self, step: usize, graph: &Graph) -> Vec<Option<ValueId>> {
        let Some(call) = self.call_at(step) else {
            return Vec::new();
        };
        let bound = call.bindings.iter().map(|binding| match binding {
            Binding::Value(value) => Some(*value),
            _ => None,
        });
        let mut values: Vec<Option<ValueId>> = bound.collect();
        let launches = (self.programs.get(call.program)).map_or(&[][..], |p| &p.launches[..]);
        for (node, range) in self.nodes_at(step) {
            let (Some(node), [launch]) =
                (graph.nodes.get(node), launches.get(range).unwrap_or(&[]))
            else {
                continue;
            };
            let result = launch.result().and_then(|slot| values.get_mut(slot));
            if let Some(value @ None) = result {
                *value = Some(node.output);
            }
        }
        values
    }
}

impl LogicalLaunch {
    /// The slot that it writes: mappings list theirs last.
    pub fn result(&self) -> Option<usize> {
        self.slots.last().copied()
    }
}
