//! What generic code asks of an op in place of matching on it: which product it is, and what it is to a model.

use super::{ExpertLinear, HeadLinear, Linear};
use crate::WeightId;

/// A product with matrices, by how rows find theirs. An op that answers with one computes just that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixProduct<'a> {
    /// Every row is multiplied with the same matrix, `[n, k]`.
    Plain(&'a Linear),
    /// A row is multiplied with the matrices, of `[n_experts, n, k]`, that the second input chooses.
    Chosen(&'a ExpertLinear),
    /// Each head of a row is multiplied with its own, of `[n_heads, n, k]`.
    EachHead(&'a HeadLinear),
}

impl<'a> MatrixProduct<'a> {
    /// The matrices.
    pub fn weight(self) -> WeightId {
        match self {
            MatrixProduct::Plain(op) => op.weight,
            MatrixProduct::Chosen(op) => op.weight,
            MatrixProduct::EachHead(op) => op.weight,
        }
    }

    /// The product, if every row is multiplied with the same matrix.
    pub fn plain(self) -> Option<&'a Linear> {
        match self {
            MatrixProduct::Plain(op) => Some(op),
            _ => None,
        }
    }
}

/// What an op is to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpRole {
    /// The embeddings of tokens.
    TokenEmbedding,
    /// A [product](super::Operation::product) with matrices.
    Product,
    /// Attention.
    Attention,
    /// A gated activation; its width is the feed-forward's.
    Gate,
    /// None of these.
    Other,
}
