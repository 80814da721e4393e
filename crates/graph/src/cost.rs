//! What an op asks of a machine.

use std::ops::AddAssign;

/// Where in its sequence the token stands whose cost is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Tokens before it.
    pub n_before: u64,
    /// Bytes of an element of cached keys and values; of a block format, on average.
    pub kv_elem_bytes: f64,
}

/// What a token asks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpCost {
    /// Operations of products, a multiplication and an addition being two.
    pub flops: f64,
    /// Bytes of the matrices that it multiplies, as stored.
    pub weight_bytes: f64,
    /// Bytes of the sequence's memory that it reads.
    pub memory_bytes: f64,
    /// Bytes of matrices that tokens choose from, all of them; a token's own are among `weight_bytes`.
    pub expert_bytes: f64,
    /// The part of those that a token chooses, below 1.
    pub expert_share: f64,
}

impl AddAssign for OpCost {
    fn add_assign(&mut self, other: OpCost) {
        self.flops += other.flops;
        self.weight_bytes += other.weight_bytes;
        self.memory_bytes += other.memory_bytes;
        self.expert_bytes += other.expert_bytes;
        // Layers of a model choose alike.
        self.expert_share = self.expert_share.max(other.expert_share);
    }
}
