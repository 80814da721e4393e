//! How a launch computes: what a check of its results has to allow for.

/// How a launch computes, as far as an exact computation from the same operands can tell. The default
/// is the plainest: operands as they lie, sums in f32, one rounding to the slot's element at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// Elements after which a product's sums are truncated to bf16 on their way.
    pub truncated_every: Option<usize>,
    /// Whether matrix units convert operands to blocks of eight values with one exponent.
    pub in_blocks: bool,
    /// Of attention.
    pub attention: Option<AttentionSteps>,
}

/// How attention goes along its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSteps {
    /// Steps of a query's running state: tiles of keys that a stage takes, then merges of stages.
    pub n_steps: u64,
    /// Parts of the head dimension whose scores are rounded one after the other.
    pub n_parts: u64,
    /// With the rows of its arrays: keys and values are a cache's, `[n_kv_heads, rows, head_dim]`.
    /// Otherwise they are those of the pass's tokens, `[n_tokens, n_kv_heads, head_dim]`.
    pub cache_rows: Option<u64>,
}
