//! Memory and traffic of each rank, predicted without starting any.

use std::collections::BTreeSet;

use millrace_graph::{Depth, Graph, Op, RankPlace, WeightKind, shard};
use millrace_model::Model;

use crate::Error;
use crate::cpu_engine::{EngineMemory, EngineOptions};

/// Memory and traffic of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlan {
    /// Bytes of weights that it multiplies with, in the file's formats. Tables are not counted, because it reads only
    /// the rows of its tokens.
    pub weight_bytes: u64,
    /// Bytes of weights that one token reads: less where it uses some experts of many.
    pub read_bytes: u64,
    /// Bytes of the full cache of keys, values and states; saturates.
    pub kv_bytes: u64,
    /// Bytes of scratch for activations; saturates.
    pub scratch_bytes: u64,
    /// Values assembled from all ranks in a pass.
    pub n_gathers: usize,
    /// Bytes that it sends to all other ranks together, for each token of a pass whose logits are needed.
    pub sent_bytes: u64,
    /// Bytes that it receives for each such token.
    pub received_bytes: u64,
}

/// Memory and traffic of each of `n_ranks` ranks for a model: a [`LoadedModel`](crate::LoadedModel)'s, or one without weights.
///
/// # Errors
/// As [`CpuEngine::memory`](crate::CpuEngine::memory).
pub fn plan(
    model: &Model,
    options: &EngineOptions,
    n_ranks: usize,
) -> Result<Vec<RankPlan>, Error> {
    let of_rank = |rank| {
        let own = Model {
            graph: shard(&model.graph, RankPlace { rank, n_ranks }).graph,
            config: model.config.clone(),
        };
        let memory = EngineMemory::of(&own, options)?;
        let (sent_bytes, received_bytes) = exchanged_bytes(&own.graph);
        let is_gather = |node: &&millrace_graph::Node| matches!(node.op, Op::AllGather(_));
        Ok(RankPlan {
            weight_bytes: weight_bytes(&own.graph),
            read_bytes: read_bytes(&own.graph),
            kv_bytes: memory.kv_bytes as u64,
            scratch_bytes: memory.scratch_bytes as u64,
            n_gathers: own.graph.nodes.iter().filter(is_gather).count(),
            sent_bytes,
            received_bytes,
        })
    };
    (0..n_ranks).map(of_rank).collect()
}

fn weight_bytes(graph: &Graph) -> u64 {
    let used = graph.nodes.iter().flat_map(|node| node.op.weights());
    let used = used.filter(|used| used.kind != WeightKind::Table);
    let used: BTreeSet<usize> = used.map(|used| used.id.0).collect();
    let bytes = used.into_iter().map(|id| graph.weights[id].size_bytes());
    bytes.sum()
}

/// Bytes of weights that a token reads, from the costs of its ops.
fn read_bytes(graph: &Graph) -> u64 {
    let depth = Depth {
        n_before: 0,
        kv_elem_bytes: 0.0,
    };
    let costs = graph.nodes.iter().map(|node| node.op.cost(graph, &depth));
    costs.map(|cost| cost.weight_bytes).sum::<f64>() as u64
}

/// Bytes sent and received for a token.
fn exchanged_bytes(graph: &Graph) -> (u64, u64) {
    let (mut sent, mut received) = (0, 0);
    for node in &graph.nodes {
        let Op::AllGather(op) = &node.op else {
            continue;
        };
        let bytes = |elems: usize| (op.n_pieces * elems * size_of::<f32>()) as u64;
        let own = op.lens[op.rank];
        sent += bytes(own) * (op.lens.len() as u64 - 1);
        received += bytes(op.piece_width() - own);
    }
    (sent, received)
}

/// Assumed performance of a machine and its links, to predict the time of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Bytes of weights that a rank reads from memory in a second.
    pub memory_bytes_per_s: f64,
    /// Seconds of a token in work that every rank computes whole: norms, sums, the choice of tokens.
    pub undivided_s: f64,
    /// Seconds from the call of a gather of few bytes between two ranks to its end.
    pub gather_s: f64,
    /// Seconds in which a rank sends or receives one more message.
    pub message_s: f64,
    /// Bytes that a rank sends, and receives at the same time, in a second.
    pub link_bytes_per_s: f64,
}

impl LinkModel {
    /// Seconds of a gather of few bytes among `n_ranks`: each further rank costs a message to it and one from it.
    fn gather_among_s(&self, n_ranks: usize) -> f64 {
        match n_ranks {
            0 | 1 => 0.0,
            _ => self.gather_s + 2.0 * (n_ranks - 2) as f64 * self.message_s,
        }
    }

    /// Seconds a token, one at a time after a short prompt. The slowest rank reads its weights, computes the undivided work, waits
    /// for the command of rank 0 and for every gather, and exchanges its bytes. Nothing overlaps.
    pub fn token_s(&self, ranks: &[RankPlan]) -> f64 {
        let gather_s = self.gather_among_s(ranks.len());
        let of_rank = |rank: &RankPlan| {
            let moved_bytes = rank.sent_bytes.max(rank.received_bytes) as f64;
            rank.read_bytes as f64 / self.memory_bytes_per_s
                + self.undivided_s
                + (rank.n_gathers + 1) as f64 * gather_s
                + moved_bytes / self.link_bytes_per_s
        };
        ranks.iter().map(of_rank).fold(0.0, f64::max)
    }
}
