//! Division of a model's work between the device and the host.

use super::NpuModel;
use std::collections::BTreeMap;

/// Ops of a token's pass by where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Ops that the device computes.
    pub n_device: usize,
    /// Ops that the host computes.
    pub host: Vec<HostShare>,
}

/// Ops of one kind that the host computes, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostShare {
    /// Their name in the graph.
    pub label: &'static str,
    /// How many.
    pub n_ops: usize,
    /// The rule that decided, in words.
    pub reason: String,
}

impl NpuModel {
    /// Where the ops of a sequence's first written token run.
    pub fn shares(&self) -> Shares {
        let graph = &self.model.model().graph;
        let kind = self.sequences().decode(0);
        let mut shares = Shares::default();
        let mut host: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
        for (i, node) in graph.nodes.iter().enumerate() {
            match self.planner.supports(graph, &kind, i) {
                Ok(()) => shares.n_device += 1,
                Err(reason) => *host.entry((node.label, reason.to_string())).or_default() += 1,
            }
        }
        let share = |((label, reason), n_ops)| HostShare {
            label,
            n_ops,
            reason,
        };
        shares.host = host.into_iter().map(share).collect();
        shares
    }
}
