//! Several devices of a kind that share a model.

use crate::Settings;
use crate::predict::{PredictError, PromptWorkload};
use millrace_model::ModelConfig;
use millrace_npu::Provenance;

/// Predicts a model on several devices of a target.
pub trait Cluster: Sync {
    /// Cost of the model on these devices.
    ///
    /// # Errors
    /// A setting, a way to share or a number of devices that cannot be; weights that do not fit.
    fn cost(&self, request: &ClusterRequest<'_>) -> Result<ClusterCost, PredictError>;
}

/// Several devices that share a model.
#[derive(Clone, Copy, Debug)]
pub struct ClusterRequest<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Settings of the target.
    pub settings: &'a Settings,
    /// Number of devices.
    pub n_devices: u64,
    /// How they share it: `pp`, each has some of the layers; `tp`, each a share of every layer.
    pub parallel: &'a str,
    /// The workload: a prompt, and a token behind as many as its context says.
    pub work: PromptWorkload,
}

/// Cost of a model on several devices.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ClusterCost {
    /// The machine of each.
    pub machine: String,
    /// Number of devices.
    pub n_devices: u64,
    /// How they share the model, in words.
    pub parallel: String,
    /// Memory of a device.
    pub memory_bytes: u64,
    /// Weights of the device that has most.
    pub weight_bytes: u64,
    /// Keys and values of a token there.
    pub token_bytes: u64,
    /// Tokens that fit beside the weights.
    pub n_tokens: u64,
    /// Time to the first token.
    pub ttft_ns: f64,
    /// Time of a token.
    pub token_ns: f64,
    /// Time of a token if memories did nothing but read weights and cache at their peak.
    pub token_roof_ns: f64,
    /// Where the times come from.
    pub provenance: Provenance,
}
