//! What a checkpoint says about its model, in one spelling.

/// RoPE of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies (`rope_theta`).
    pub theta: f32,
    /// Scaling of the frequencies.
    pub scaling: RopeScaling,
}

/// How RoPE frequencies are stretched beyond the trained context.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Unscaled.
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// Divisor.
        factor: f32,
    },
    /// Llama 3.1's piecewise scaling by wavelength.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f32,
        /// `low_freq_factor`.
        low_freq_factor: f32,
        /// `high_freq_factor`.
        high_freq_factor: f32,
        /// `original_max_position_embeddings`.
        original_context: usize,
    },
    /// Explicit per-pair divisors (GGUF's `rope_freqs.weight`).
    Factors(Vec<f32>),
}

/// A model's hyperparameters, whichever file they came from.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The family's row in the architecture table: `llama`, `mistral`, `qwen2`, `qwen3`, `gemma3`.
    pub family: &'static str,
    /// Transformer blocks.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of the gated feed-forward.
    pub d_ff: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Trained context length.
    pub context_length: usize,
    /// RMSNorm epsilon.
    pub norm_eps: f32,
    /// RoPE of global layers.
    pub rope: RopeConfig,
    /// RoPE of sliding-window layers, where it differs.
    pub rope_local: Option<RopeConfig>,
    /// Sliding window in tokens, the token itself included.
    pub window: Option<usize>,
    /// For each layer, whether it uses the window.
    pub layer_windowed: Vec<bool>,
    /// Whether the head shares the embedding table.
    pub tied_head: bool,
}
