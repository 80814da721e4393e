//! Memory that an op keeps of a sequence from token to token.

use std::ops::Range;

/// The memory of a sequence that an op reads and adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceMemory {
    /// None: a row of the result depends only on the same row of the inputs.
    None,
    /// Keys and values of the tokens before.
    KvCache(KvShape),
    /// Keys and values that an earlier op with a [`KvCache`](SequenceMemory::KvCache) of this shape keeps. The op reads
    /// them and adds nothing.
    SharedKv(KvShape),
    /// Keys and values that another model keeps, for which this one drafts. The op reads them and adds nothing.
    TargetKv(KvShape),
    /// Keys and values of all tokens of the sequence, later tokens included. Nothing is kept: a sequence is computed
    /// whole.
    AllTokens(AllTokensShape),
    /// Numbers that every token reads and replaces.
    State(StateShape),
}

impl SequenceMemory {
    /// Whether a row of the result depends only on the same row of the inputs.
    pub fn is_none(self) -> bool {
        self == SequenceMemory::None
    }
}

/// Keys and values of a layer, one row of each a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// The layer, counting only layers that have a cache.
    pub layer: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// With `Some(w)`, a token sees the last `w` tokens, itself included.
    pub window: Option<usize>,
}

impl KvShape {
    /// Elements of a row of keys, or of a row of values.
    pub fn width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// The positions that the token at `position` sees, itself included.
    pub fn seen(&self, position: usize) -> Range<usize> {
        let end = position + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }
}

/// Keys and values of a layer in which tokens see each other both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllTokensShape {
    /// Elements of a row of keys, or of a row of values.
    pub width: usize,
    /// With `Some(r)`, a token sees the tokens at most `r` positions away.
    pub reach: Option<usize>,
}

impl AllTokensShape {
    /// The positions that the token at `position` of `n_tokens` sees.
    pub fn seen(&self, position: usize, n_tokens: usize) -> Range<usize> {
        match self.reach {
            None => 0..n_tokens,
            Some(reach) => {
                let end = position.saturating_add(reach).saturating_add(1);
                position.saturating_sub(reach)..end.min(n_tokens)
            }
        }
    }
}

/// A recurrent state: its value after a token follows from its value before the token and from the
/// token's row. It begins as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Index of the state within the sequence, numbered from 0 over the graph.
    pub index: usize,
    /// f32 elements.
    pub n_elems: usize,
}
