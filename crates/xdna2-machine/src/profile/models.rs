//! Constants of whole models, which the closed forms of [`timing::models`](crate::timing::models)
//! need in addition to the kernels'. A profile may leave them out; it then predicts no such rows.

use super::Profile;
use super::keys::KEYS;

/// A token of fused decode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decode {
    /// Rate of the weight stream over all projection cores, in bytes per nanosecond.
    pub weight_gb_per_s: f64,
    /// Columns whose shims stream weights.
    pub weight_columns: f64,
    /// Cost of a layer beyond weights and cache.
    pub layer_ns: f64,
    /// 1 if layers with a window read no more of the cache than it, 0 if they read all.
    pub windows: f64,
}

/// A prompt under FastFlowLM's scheme: weights dequantised to DDR, then matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Cost of a layer, for any length.
    pub layer_ns: f64,
    /// Cost of a token in every layer beyond the counted operations.
    pub row_ns: f64,
    /// Matrix products, in operations per nanosecond.
    pub gemm_gflop_per_s: f64,
    /// Attention, in operations per nanosecond; half of the square is counted.
    pub attention_gflop_per_s: f64,
    /// Reading quantised and writing bf16 weights, in bytes per nanosecond.
    pub dequant_gb_per_s: f64,
    /// Query heads that a group of one KV head takes at least.
    pub group_heads: f64,
}

/// The host's part in a stitched bf16 stack.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostProfile {
    /// A call without its buffers and its run.
    pub call_ns: f64,
    /// Filling and syncing the inputs of a call, in bytes per nanosecond.
    pub write_gb_per_s: f64,
    /// Syncing the outputs of a call.
    pub read_ns: f64,
    /// Python and moving K and V in a layer of a prompt, for every byte of its widest activation
    /// (tokens times the width of the feed-forward, bf16).
    pub prompt_byte_ns: f64,
    /// Tokenising, embedding, the last norm.
    pub prompt_ns: f64,
    /// Attention, norm and scheduling of a layer of a token.
    pub token_layer_ns: f64,
}

impl HostProfile {
    /// Python and moving K and V in a layer of a prompt of so many rows.
    pub fn prompt_layer_ns(&self, n_tokens: u64, d_ff: u64) -> f64 {
        self.prompt_byte_ns * 2.0 * (n_tokens * d_ff) as f64
    }
}

/// Time that a published stack takes beyond its predicted launches, where its own programs are not available. It is
/// fitted on the stack's measurements. The measurements it was *not* fitted on then show whether the launches are
/// predicted well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stack {
    /// Time of a layer of a prompt, for any length.
    pub prompt_layer_ns: f64,
    /// Time of a token in every layer of a prompt.
    pub prompt_row_ns: f64,
}

impl Stack {
    /// Time of a prompt of so many tokens.
    pub fn prompt_ns(&self, n_layers: usize, n_tokens: u64) -> f64 {
        n_layers as f64 * (self.prompt_layer_ns + n_tokens as f64 * self.prompt_row_ns)
    }
}

impl Profile {
    /// Ids of the rows of whole models that constants of this file's sections are fitted on.
    pub fn model_calibration_rows(&self) -> Vec<&str> {
        let mut rows: Vec<&str> = (self.constants.iter())
            .filter(|c| is_model_key(&c.key))
            .flat_map(|c| c.rows.iter().map(String::as_str))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

/// Whether a constant serves whole models only.
pub fn is_model_key(key: &str) -> bool {
    let kernel = |key: &str| key.starts_with("kernel.decode_attention");
    let is_optional = |key: &str| {
        let mut known = KEYS.iter();
        known.any(|known| known.path() == key && !known.is_required())
    };
    is_optional(key) || kernel(key)
}
