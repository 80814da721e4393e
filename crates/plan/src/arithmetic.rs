//! How a launch computes, so that a check of its results can allow for it.

use crate::PlannedLaunch;
use millrace_npu::Element;

/// Describes how launches compute, for checks of their results.
pub trait Numerics: Send + Sync {
    /// How a launch of one of the target's plans computes.
    fn arithmetic(&self, launch: &PlannedLaunch) -> Arithmetic {
        let _ = launch;
        Arithmetic::default()
    }
}

/// How a launch computes, as far as an exact computation from the same operands can tell. The default is the plainest:
/// operands as stored, sums in f32, one rounding to the slot's element at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arithmetic {
    /// Elements after which a product's sums are truncated to bf16 on their way.
    pub truncated_every: Option<usize>,
    /// Whether matrix units convert operands to blocks of eight values with one exponent.
    pub in_blocks: bool,
    /// How rows of both operands of a product are quantised before it, in any pass.
    pub quantised: Option<QuantisedRows>,
    /// How a weight and activations are narrowed before a product, each by its own rule, in any pass.
    pub narrowed: Option<NarrowOperands>,
    /// Steps of attention.
    pub attention: Option<AttentionSteps>,
}

/// Operands of a product that are stored in few bits.
///
/// With s = max∣w∣ / largest over a row of the weight, each of its elements becomes s·r(w / s); an activation x becomes q(x·f) / f, with
/// the [factor](NarrowOperands::factor) f. r rounds to the [weights'](NarrowOperands::weights) element type and q to the
/// [activations'](NarrowOperands::activations): to nearest, ties to even; larger magnitudes saturate. Sums are in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrowOperands {
    /// Element type of weights.
    pub weights: Element,
    /// Value that the largest magnitude of a row is scaled to.
    pub largest: f32,
    /// Element type of activations.
    pub activations: Element,
    /// Factor that activations are multiplied by.
    pub factor: Factor,
}

/// Factor that activations are multiplied by before they are rounded to few bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// The same number for all.
    Constant(f32),
    /// With this number L, f = L / max∣x∣ over a token's row; it and the products x·f are in f32. Rows of zeros
    /// stay so.
    OfRow(f32),
}

/// Steps in which attention goes along its keys.
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

/// Rows of k numbers as integers with a scale a row, one rule for both operands of a product.
///
/// A row x is rotated first: cut into blocks of [`block`](QuantisedRows::block) elements, each multiplied by the
/// Walsh–Hadamard matrix H\[i\]\[j\] = (−1)^popcount(i & j) / √block. With s = max∣x∣ / levels over the row,
/// each element becomes s·round(x / s), ties to even. H is its own inverse, so the product of two rotated
/// rows is that of the rows, and sums of integers are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantisedRows {
    /// The largest magnitude: 127 of 8 bits.
    pub levels: u32,
    /// Elements of a block, a power of two that divides k; 1 rotates nothing.
    pub block: usize,
}
