//! The graph of one rank of several: tensor parallelism with the same bits as a single rank.
//!
//! Ranks divide rows of matrices and heads of attention. Each number is computed by one rank, whole and in the order of a
//! single rank: no sum is divided. Where an op reads all of a value, an [`AllGather`](crate::AllGather) assembles the
//! parts. Every rank computes the rest, because that costs less than an exchange.
//!
//! Keys and values follow the heads, so a rank's cache holds its own. States of recurrent ops are kept by every rank.

mod cut;
mod rewrite;

use crate::{Graph, WeightId};

/// A rank among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// The rank, below `n_ranks`.
    pub rank: usize,
    /// Number of ranks; at least 1.
    pub n_ranks: usize,
}

/// Where a partial weight begins in the whole weight. Its size is its own shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPart {
    /// The whole weight.
    pub of: WeightId,
    /// The first matrix.
    pub matrix: usize,
    /// The first row of every matrix.
    pub row: usize,
    /// The first column of every row.
    pub column: usize,
}

/// The graph and weights of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RankGraph {
    /// The graph. Its first weights are those of the whole graph; the rank does not need those that its nodes do not read.
    pub graph: Graph,
    /// By weight, for partial weights.
    pub parts: Vec<Option<WeightPart>>,
}

/// The graph of one rank, from a [checked](crate::check()) graph. Pure: all ranks that call it with the same graph meet in
/// the same [`AllGather`](crate::AllGather)s.
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
