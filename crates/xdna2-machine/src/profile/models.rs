//! Constants of whole models: what the closed forms of [`timing::models`](crate::timing::models)
//! need beside the kernels' own. A profile may leave them out; it then predicts no such rows.

use super::Profile;
use super::parse::ProfileField;

/// A token of fused decode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decode {
    /// Rate of the weight stream over all projection cores, in bytes per nanosecond.
    pub weight_gb_per_s: f64,
    /// Columns whose shims stream weights.
    pub weight_columns: f64,
    /// What a layer costs beside weights and cache.
    pub layer_ns: f64,
    /// 1 if layers with a window read no more of the cache than it, 0 if they read all.
    pub windows: f64,
}

/// A prompt under FastFlowLM's scheme: weights dequantised to DDR, then matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// What a layer costs whatever its length.
    pub layer_ns: f64,
    /// What a token costs in every layer beside the operations counted.
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
    /// A call beside its buffers and its run.
    pub call_ns: f64,
    /// Filling and syncing what a call reads, in bytes per nanosecond.
    pub write_gb_per_s: f64,
    /// Syncing what a call wrote.
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

/// What a published stack takes beside launches as they are predicted, where its own programs cannot be had: fitted
/// on its measurements, so that what it was *not* fitted on says whether the launches are predicted well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stack {
    /// Of a prompt, a layer, whatever its length.
    pub prompt_layer_ns: f64,
    /// Of a prompt, a token in every layer.
    pub prompt_row_ns: f64,
}

impl Stack {
    /// Of a prompt of so many tokens.
    pub fn prompt_ns(&self, n_layers: usize, n_tokens: u64) -> f64 {
        n_layers as f64 * (self.prompt_layer_ns + n_tokens as f64 * self.prompt_row_ns)
    }
}

/// Keys that a profile may leave out; they are then 0.
pub(super) const OPTIONAL: &[(&str, ProfileField, (f64, f64))] = &[
    (
        "decode.weight_gb_per_s",
        |p| &mut p.decode.weight_gb_per_s,
        RATE,
    ),
    (
        "decode.weight_columns",
        |p| &mut p.decode.weight_columns,
        (1.0, 64.0),
    ),
    ("decode.layer_ns", |p| &mut p.decode.layer_ns, TIME),
    ("decode.windows", |p| &mut p.decode.windows, (0.0, 1.0)),
    ("prefill.layer_ns", |p| &mut p.prefill.layer_ns, TIME),
    ("prefill.row_ns", |p| &mut p.prefill.row_ns, TIME),
    (
        "prefill.gemm_gflop_per_s",
        |p| &mut p.prefill.gemm_gflop_per_s,
        RATE,
    ),
    (
        "prefill.attention_gflop_per_s",
        |p| &mut p.prefill.attention_gflop_per_s,
        RATE,
    ),
    (
        "prefill.dequant_gb_per_s",
        |p| &mut p.prefill.dequant_gb_per_s,
        RATE,
    ),
    (
        "prefill.group_heads",
        |p| &mut p.prefill.group_heads,
        (1.0, 64.0),
    ),
    ("host.call_ns", |p| &mut p.host.call_ns, TIME),
    ("host.write_gb_per_s", |p| &mut p.host.write_gb_per_s, RATE),
    ("host.read_ns", |p| &mut p.host.read_ns, TIME),
    (
        "host.prompt_byte_ns",
        |p| &mut p.host.prompt_byte_ns,
        (0.0, 1e6),
    ),
    ("host.prompt_ns", |p| &mut p.host.prompt_ns, TIME),
    ("host.token_layer_ns", |p| &mut p.host.token_layer_ns, TIME),
    (
        "stack.prompt_layer_ns",
        |p| &mut p.stack.prompt_layer_ns,
        TIME,
    ),
    ("stack.prompt_row_ns", |p| &mut p.stack.prompt_row_ns, TIME),
    ("power.npu_w", |p| &mut p.power.npu_w, WATTS),
    ("power.package_w", |p| &mut p.power.package_w, WATTS),
];

const RATE: (f64, f64) = (1e-3, 1e6);
const TIME: (f64, f64) = (0.0, 1e12);
const WATTS: (f64, f64) = (0.0, 1e4);

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
    OPTIONAL.iter().any(|known| known.0 == key) || kernel(key)
}
