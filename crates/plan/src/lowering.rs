//! From a model's graph to a plan: the plan of each kind of pass, and everything it depends on.

use crate::{
    Annex, AttentionOn, Chunk, HeadRows, Lengths, LowerError, MachineFacts, NodePlace, PassKind,
    Phase, Plan, PlannedLaunch, VisionPlan, VisionShape,
};
use millrace_graph::Graph;
use millrace_npu::Container;
use std::fmt;

/// Lowers graphs for one machine of a target.
///
/// Lowering is pure: the same graph and kind of pass always give the same plan, byte for byte.
pub trait Lowering: Send + Sync {
    /// The target's [name](crate::Target::name).
    fn target(&self) -> &'static str;

    /// Everything that plans depend on beside graph and kind of pass: the target's compiler, machine,
    /// constants and options, as text. Equal identities make equal plans, so caches are keyed by it.
    fn identity(&self) -> String;

    /// The machine.
    fn machine(&self) -> MachineFacts;

    /// How plans are made, in a few words (`fast without alias`).
    fn mode(&self) -> String;

    /// The improvements in force, by name.
    fn features(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Lengths that prefill plans are made for.
    fn lengths(&self) -> Lengths;

    /// Rows of a sequence's cache of `n_ctx` tokens: at least those.
    fn cache_rows(&self, graph: &Graph, n_ctx: u64) -> u64 {
        let _ = graph;
        n_ctx
    }

    /// The kind of pass that a chunk takes, where a sequence's cache has `cache_rows` rows. Without a mapping over the
    /// cache, attention of later chunks runs on the host.
    fn kind(&self, graph: &Graph, phase: Phase, chunk: Chunk, cache_rows: u64) -> PassKind {
        let _ = (graph, cache_rows);
        PassKind {
            phase,
            n_tokens: chunk.n_padded,
            attention: match (phase, chunk.first) {
                (Phase::Prefill, 1..) => AttentionOn::Host,
                _ => AttentionOn::Device,
            },
            head: HeadRows::Last,
        }
    }

    /// The first position behind `first` whose token may take another plan than the one at `first`.
    fn decode_until(&self, first: u64) -> u64 {
        let _ = first;
        u64::MAX
    }

    /// The plan of a kind of pass.
    ///
    /// # Errors
    /// A graph that makes no sense, a length beyond the limits, an op that neither device nor host
    /// computes.
    fn lower(&self, graph: &Graph, kind: &PassKind) -> Result<Plan, LowerError>;

    /// Whether the device computes a node of the graph, by its number, in passes of that kind, according to the plan's
    /// placement.
    ///
    /// # Errors
    /// The rule that leaves it to the host; that there is no plan, or no such node.
    fn supports(&self, graph: &Graph, kind: &PassKind, node: usize) -> Result<(), Reason> {
        let plan = self.lower(graph, kind);
        let plan = plan.map_err(|error| Reason(error.to_string()))?;
        match plan.placement.into_iter().find(|p| p.node == node) {
            Some(placed) if placed.place == NodePlace::Host => Err(Reason(placed.reason)),
            Some(_) => Ok(()),
            None => Err(Reason(format!("the graph has no node {node}"))),
        }
    }

    /// The target's own form of a program that comes from a cache; `None` where the bytes are no such program.
    fn annex(&self, container: &Container, launches: &[PlannedLaunch]) -> Option<Annex> {
        let _ = (container, launches);
        Some(Annex::default())
    }

    /// The programs of a vision encoder's blocks.
    ///
    /// # Errors
    /// Why the host computes blocks of those sizes.
    fn vision_encoder(&self, shape: &VisionShape) -> Result<VisionPlan, Reason> {
        let _ = shape;
        let target = self.target();
        Err(Reason(format!(
            "{target} has no programs for the blocks of a vision encoder"
        )))
    }
}

/// Why an op is not computed on a device, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
