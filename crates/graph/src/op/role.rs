//! Questions that generic code asks of an op instead of matching on it: its product, and its role in a model.

use super::{ExpertLinear, HeadLinear, Linear};
use crate::WeightId;

/// A product with matrices, by how rows find their matrix. An op that returns one computes nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixProduct<'a> {
    /// Every row is multiplied by the same matrix, `[n, k]`.
    Plain(&'a Linear),
    /// A row is multiplied by the matrices, of `[n_experts, n, k]`, that the second input chooses.
    Chosen(&'a ExpertLinear),
    /// Each head of a row is multiplied by its own matrix, of `[n_heads, n, k]`.
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

    /// The product, if every row is multiplied by the same matrix.
    pub fn plain(self) -> Option<&'a Linear> {
        match self {
            MatrixProduct::Plain(op) => Some(op),
            _ => None,
        }
    }
}

/// Role of an op in a model.
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
    /// Any other role.
    Other,
}
