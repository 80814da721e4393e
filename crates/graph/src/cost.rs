//! Cost of an op on a machine.

use std::ops::AddAssign;

/// Position within its sequence of the token whose cost is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Tokens before it.
    pub n_before: u64,
    /// Bytes of an element of cached keys and values; for a block format, the average.
    pub kv_elem_bytes: f64,
}

/// Cost of one token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpCost {
    /// Floating-point operations of products; a multiplication and an addition are two.
    pub flops: f64,
    /// Bytes of the matrices that the token is multiplied by, as stored.
    pub weight_bytes: f64,
    /// Bytes of the sequence's memory that the token reads.
    pub memory_bytes: f64,
    /// Bytes of all matrices that tokens choose from; the chosen ones count in `weight_bytes`.
    pub expert_bytes: f64,
    /// Share of `expert_bytes` that a token chooses, below 1.
    pub expert_share: f64,
}

impl AddAssign for OpCost {
    fn add_assign(&mut self, other: OpCost) {
        self.flops += other.flops;
        self.weight_bytes += other.weight_bytes;
        self.memory_bytes += other.memory_bytes;
        self.expert_bytes += other.expert_bytes;
        // Layers of a model choose equal shares.
        self.expert_share = self.expert_share.max(other.expert_share);
    }
}
