//! Plans in files: names that the code has as constants, and what a plan read back must keep to.

use super::{Binding, Call, HostStep, Place, Plan, Step};
use crate::mapping::{self, Named};
use crate::program::Program;
use millrace_model::graph::{Graph, Node, Op, ValueId};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A program as its name alone; it comes back empty.
pub(super) mod by_name {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        program: &Program,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        program.name.serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Program, D::Error> {
        Ok(Program {
            name: String::deserialize(from)?,
            slots: Vec::new(),
            launches: Vec::new(),
        })
    }
}

/// A mapping's name. An alias, as serde would borrow a `&str` from what it reads.
pub(super) type MappingName = &'static str;

/// The name of a mapping of the table.
pub(super) fn mapping<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    let name = String::deserialize(from)?;
    let found = mapping::find(&name).ok_or_else(|| D::Error::custom("no such mapping"))?;
    Ok(found.name())
}

/// Most names of dimensions and tile sizes that are kept, over all mappings.
const MAX_NAMES: usize = 512;

/// Longest of them.
const MAX_NAME_BYTES: usize = 32;

/// A name that lives as long as the process: mappings spell theirs as constants. Kept once each.
fn interned(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return Some(known);
    }
    if name.len() > MAX_NAME_BYTES || names.len() >= MAX_NAMES {
        return None;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    Some(kept)
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Named, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Named;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, u64>()? {
                    let name = interned(&name).ok_or_else(|| A::Error::custom("too many names"))?;
                    pairs.push((name, value));
                }
                Ok(Named::new(&pairs))
            }
        }
        from.deserialize_map(Pairs)
    }
}

impl Plan {
    /// Whether every index in a plan that was read from somewhere is one of its own or the graph's.
    ///
    /// # Errors
    /// What is out of range, for people.
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
            if let Place::Device(device) = &placement.place {
                here("step", device.step, self.steps.len())?;
                here("program", device.program, self.programs.len())?;
                let n_launches = self.programs[device.program].launches.len();
                here("launch", device.launches.end, n_launches + 1)?;
            }
        }
        for planned in &self.programs {
            let program = &planned.program;
            for launch in &planned.launches {
                let slots = launch.slots.iter();
                slots
                    .clone()
                    .try_for_each(|&s| here("slot", s, program.slots.len()))?;
                here("launch", launch.physical.end, program.launches.len() + 1)?;
            }
        }
        Ok(())
    }

    fn check_call(&self, call: &Call, graph: &Graph) -> Result<(), String> {
        let set = &call.set;
        let Some(planned) = self.programs.get(call.program) else {
            return Err(format!("{set}: program {}", call.program));
        };
        if planned.program.slots.len() != call.bindings.len() {
            return Err(format!("{set}: not one binding a slot"));
        }
        if let Some(node) = call.nodes.iter().find(|n| **n >= graph.nodes.len()) {
            return Err(format!("{set}: node {node}"));
        }
        for binding in &call.bindings {
            let fits = match binding {
                Binding::Weight { weight, .. } => weight.0 < graph.weights.len(),
                Binding::RopeTable { rope, .. } => rope.0 < graph.ropes.len(),
                Binding::Value(value) => value.0 < graph.values.len(),
                Binding::Part { value, start, len } => {
                    let width = graph.values.get(value.0).map_or(0, |v| v.width);
                    start.checked_add(*len).is_some_and(|end| end <= width)
                }
                Binding::Cache { layer, .. } => {
                    let attends =
                        |node: &Node| matches!(&node.op, Op::Attention(a) if a.layer == *layer);
                    graph.nodes.iter().any(attends)
                }
                Binding::Position | Binding::Scratch => true,
            };
            if !fits {
                return Err(format!("{set}: {binding:?}"));
            }
        }
        Ok(())
    }
}

impl HostStep {
    /// The graph's node that the step computes; appending keys and values is no node's.
    pub fn node(&self) -> Option<usize> {
        match *self {
            HostStep::AppendKv { .. } => None,
            HostStep::Embed { node }
            | HostStep::Attention { node }
            | HostStep::FinalNorm { node }
            | HostStep::Norm { node }
            | HostStep::Linear { node, .. }
            | HostStep::Rope { node }
            | HostStep::Glu { node }
            | HostStep::Add { node } => Some(node),
        }
    }
}
