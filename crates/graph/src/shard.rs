//! The graph of one rank of several: tensor parallelism that keeps every bit.
//!
//! Ranks divide rows of matrices and heads of attention, so each number is computed by one rank, whole and in the order
//! that a single rank takes: no sum is divided. Where an op reads all of a value, an [`AllGather`](crate::AllGather) puts
//! the parts together. The rest is computed by every rank alike, because that costs less than asking the others.
//!
//! Keys and values follow the heads, so a rank's cache holds its own. States of recurrent ops are kept by every rank.

mod cut;
mod rewrite;

use crate::{Graph, WeightId};

/// Which rank of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// The rank, below `n_ranks`.
    pub rank: usize,
    /// Ranks that there are; at least 1.
    pub n_ranks: usize,
}

/// Where a weight that is a part of another begins in it. How much it takes is its own shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPart {
    /// The other weight.
    pub of: WeightId,
    /// The first matrix.
    pub matrix: usize,
    /// The first row of every matrix.
    pub row: usize,
    /// The first column of every row.
    pub column: usize,
}

/// What one rank runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RankGraph {
    /// The graph. Its first weights are those of the whole graph; what its nodes do not read the rank does not need.
    pub graph: Graph,
    /// By weight, for those that are parts.
    pub parts: Vec<Option<WeightPart>>,
}

/// The graph that one rank runs, of a graph that was [checked](crate::check()). Pure: all ranks that call it with the same
/// graph meet in the same [`AllGather`](crate::AllGather)s.
///
/// # Panics
/// If the rank is not below `n_ranks`.
pub fn shard(graph: &Graph, place: RankPlace) -> RankGraph {
    assert!(place.rank < place.n_ranks, "a rank is below their number");
    match place.n_ranks {
        1 => RankGraph {
            graph: graph.clone(),
            parts: vec![None; graph.weights.len()],
        },
        _ => rewrite::Rewrite::new(graph, place).run(),
    }
}

#[cfg(test)]
mod tests;
