//! Looking into a plan: which node a launch computes, which value a slot holds.

use crate::{Binding, Call, Device, NodePlace, Plan, PlannedLaunch, Step};
use millrace_graph::{Graph, ValueId};
use std::ops::Range;

impl Plan {
    /// The call at a step; `None` for a host step.
    pub fn call_at(&self, step: usize) -> Option<&Call> {
        match self.steps.get(step)? {
            Step::Call(call) => Some(call),
            Step::Host(_) => None,
        }
    }

    /// Launches of a call in order, by their index in the program, each with the nodes it computes.
    /// Several products of one input may be one launch.
    pub fn launches_at(&self, step: usize) -> Vec<(usize, Vec<usize>)> {
        let placed = self.placement.iter();
        let here = placed.filter_map(|placement| match &placement.place {
            NodePlace::Device(device) if device.step == step => Some((device, placement.node)),
            _ => None,
        });
        let mut launches: Vec<(usize, Vec<usize>)> = Vec::new();
        for (device, node) in here {
            for launch in device.computed_by() {
                match launches.iter_mut().find(|(known, _)| *known == launch) {
                    Some((_, nodes)) => nodes.push(node),
                    None => launches.push((launch, vec![node])),
                }
            }
        }
        launches.sort();
        launches
    }

    /// The value that each slot of a call holds in full after it: intermediate ones too, which no binding names. `None`
    /// for weights, tables, and parts of a value.
    pub fn slot_values(&self, step: usize, graph: &Graph) -> Vec<Option<ValueId>> {
        let Some(call) = self.call_at(step) else {
            return Vec::new();
        };
        // A call of experts has only some rows of it.
        if call.experts.is_some() {
            return vec![None; call.bindings.len()];
        }
        let bound = call.bindings.iter().map(|binding| match binding {
            Binding::Value(value) | Binding::Packed { value, .. } => Some(*value),
            _ => None,
        });
        let mut values: Vec<Option<ValueId>> = bound.collect();
        let launches = (self.programs.get(call.program)).map_or(&[][..], |p| &p.launches[..]);
        for (launch, nodes) in self.launches_at(step) {
            let results = launches.get(launch).map_or(&[][..], PlannedLaunch::results);
            if results.len() != nodes.len() {
                continue;
            }
            for (slot, node) in results.iter().zip(nodes) {
                let node = graph.nodes.get(node);
                if let (Some(value @ None), Some(node)) = (values.get_mut(*slot), node) {
                    *value = Some(node.output);
                }
            }
        }
        values
    }
}

impl Device {
    /// The launches that compute the node: its own, or where it has none, the one before, which
    /// computes it beside another node.
    pub fn computed_by(&self) -> Range<usize> {
        match self.launches.is_empty() {
            true => self.launches.start.saturating_sub(1)..self.launches.start,
            false => self.launches.clone(),
        }
    }
}
