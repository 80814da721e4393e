//! A checkpoint's description of its model, in one spelling.
//!
//! [`gguf`] and [`hf`] read and write the two spellings. Both pass through
//! [`ModelConfig::validate`], so everything built on a configuration may rely on its checks.

pub(crate) mod encoder;
mod experts;
pub mod gguf;
pub mod hf;
pub(crate) mod latent;
mod layers;
mod recurrent;
mod rope;
mod streams;

pub use encoder::{ClassifierConfig, EncoderConfig, EncoderPooling};
pub use experts::ExpertConfig;
pub use latent::LatentConfig;
pub use layers::{
    Biases, BlockForm, GluBounds, HeadGates, HeadSizes, ImageSight, LayerConfig, XieluParameters,
};
pub use recurrent::{
    BranchScales, ChannelScanConfig, DeltaConfig, KimiDeltaConfig, MambaConfig, MambaNorm,
    RecurrentConfig, RecurrentMixer, Rwkv7Config, ScanNorms,
};
pub use streams::StreamConfig;
pub(crate) use streams::{deviations_of, share_below};

use crate::Error;
use millrace_graph::{Activation, Temperature};

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
    /// YaRN.
    Yarn(YarnScaling),
    /// LongRoPE: one list of divisors up to the original context, another one for longer sequences.
    Long(LongScaling),
    /// Dynamic NTK: unscaled up to the trained context. Beyond it the frequencies of all positions depend on the
    /// length, which this program does not implement.
    Dynamic {
        /// Growth of the base beyond the trained context.
        factor: f32,
    },
    /// The first pairs rotate, with frequencies that are those of the whole head. The others do not rotate.
    Proportional {
        /// Divisor of the frequencies.
        factor: f32,
        /// Pairs that rotate.
        n_rotated: usize,
    },
    /// Explicit per-pair divisors (GGUF's `rope_freqs.weight`).
    Factors(Vec<f32>),
}

/// YaRN's parameters (Peng et al. 2023).
#[derive(Clone, Debug, PartialEq)]
pub struct YarnScaling {
    /// Divisor of low frequencies.
    pub factor: f32,
    /// Tokens of the context before scaling.
    pub original_context: usize,
    /// Rotations within the original context from which on a pair keeps its frequency.
    pub beta_fast: f32,
    /// Rotations within the original context up to which a pair is scaled by the whole `factor`.
    pub beta_slow: f32,
    /// Factor on cosines and sines.
    pub attention_factor: f32,
    /// `mscale_all_dim`, in families whose attention scale depends on it.
    pub score_mscale: Option<f32>,
    /// Whether the bounds of the mix are whole pairs.
    pub truncates: bool,
}

/// LongRoPE's parameters (Ding et al. 2024).
#[derive(Clone, Debug, PartialEq)]
pub struct LongScaling {
    /// Divisors up to the original context, one a pair.
    pub short: Vec<f32>,
    /// Divisors for longer sequences, one a pair.
    pub long: Vec<f32>,
    /// Tokens of the context before scaling.
    pub original_context: usize,
    /// Factor on cosines and sines.
    pub attention_factor: f32,
    /// Whether sequences of every length use the list for longer ones.
    pub uses_long: bool,
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
    /// Factor on attention scores before softmax: `1/sqrt(head_dim)` unless the model says otherwise.
    pub attention_scale: f32,
    /// Factor on embeddings (Gemma: `sqrt(d_model)`), 1 otherwise.
    pub embed_scale: f32,
    /// Activation of the feed-forward's gate.
    pub activation: Activation,
    /// Which projections have biases.
    pub biases: Biases,
    /// Elements of a head that RoPE rotates, from the first on.
    pub n_rot: usize,
    /// Factor on queries behind their norm, 1 otherwise. GGUF files fold it into the norm.
    pub query_scale: f32,
    /// Layers whose heads do not rotate, by number.
    pub unrotated_layers: Vec<usize>,
    /// Factor on the output of a half of a block before it is added to the stream, usually 1.
    pub residual_scale: f32,
    /// Factor on the logits, 1 otherwise.
    pub logit_scale: f32,
    /// Soft bound of attention scores.
    pub attention_softcap: Option<f32>,
    /// Soft bound of logits.
    pub logit_softcap: Option<f32>,
    /// Factor on queries that grows with the position.
    pub temperature: Option<Temperature>,
    /// ALiBi's exponent: with `b` here, scores of head `i` of `n` fall by `2^(-b·i/n)` a position (Press et al. 2022).
    pub max_distance_bias: Option<f32>,
    /// Pairs of a head that rotate by the time, row and column of an image, in models with such sections. For text all
    /// rotate by the position.
    pub rope_sections: Vec<usize>,
    /// Experts, in models that have them.
    pub experts: Option<ExpertConfig>,
    /// Whether heads of queries and keys have norms, in families whose models differ in this.
    pub qk_norm: bool,
    /// Attention over a latent, in models that have it; it has separate sizes of heads.
    pub latent: Option<LatentConfig>,
    /// Values that differ from layer to layer.
    pub layers: LayerConfig,
    /// Layers with a state in place of attention, in models that have them.
    pub recurrent: Option<RecurrentConfig>,
    /// Additional values of an encoder; `None` for models that write texts.
    pub encoder: Option<EncoderConfig>,
}

/// Largest sizes accepted: far above any model. No product of two overflows, and no list of them
/// exhausts memory before a tensor is looked at.
pub(crate) const MAX_LAYERS: usize = 4096;
pub(crate) const MAX_WIDTH: usize = 1 << 22;
const MAX_HEAD_DIM: usize = 4096;
const MAX_VOCAB: usize = 1 << 26;
const MAX_CONTEXT: usize = 1 << 31;

impl ModelConfig {
    /// Elements of all query heads: `n_heads · head_dim`.
    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of all key heads (or all value heads): `n_kv_heads · head_dim`.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// The window of `layer`, if it has one.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window
            .filter(|_| self.layer_windowed.get(layer).copied().unwrap_or(false))
    }

    /// Layers without a window, by number.
    pub(crate) fn global_layers(&self) -> Vec<usize> {
        (0..self.n_layers)
            .filter(|layer| self.window_of(*layer).is_none())
            .collect()
    }

    /// RoPE of `layer`.
    pub fn rope_of(&self, layer: usize) -> &RopeConfig {
        match &self.rope_local {
            Some(local) if self.window_of(layer).is_some() => local,
            _ => &self.rope,
        }
    }

    /// The position by which each of `n_pairs` pairs of a head rotates, where those of images differ: 0 for the time, 1 for the row, 2
    /// for the column. `None` where there is only one.
    pub fn rope_axes(&self, n_pairs: usize) -> Option<Vec<usize>> {
        let sections = &self.rope_sections;
        if sections.is_empty() {
            return None;
        }
        let is_interleaved = crate::arch::by_name(self.family).interleaved_sections;
        let axis = |pair: usize| match is_interleaved {
            // Rows and columns have every third pair up to the end of their sections.
            true => match pair % 3 {
                0 => 0,
                axis => {
                    let n = sections.get(axis).copied().unwrap_or(0);
                    if pair / 3 < n { axis } else { 0 }
                }
            },
            false => {
                let mut end = 0;
                let found = sections.iter().take(3).position(|n| {
                    end += n;
                    pair < end
                });
                found.unwrap_or(0)
            }
        };
        Some((0..n_pairs).map(axis).collect())
    }

    /// Takes the RoPE frequencies for sequences of up to `n_tokens`, where there are several.
    pub fn choose_rope(&mut self, n_tokens: usize) {
        let ropes = std::iter::once(&mut self.rope).chain(&mut self.rope_local);
        ropes.for_each(|rope| rope.choose(n_tokens));
    }

    /// Whether heads of `layer` rotate.
    pub fn rotates(&self, layer: usize) -> bool {
        !self.unrotated_layers.contains(&layer)
    }

    /// The mixer that `layer` computes in place of attention, if it is recurrent.
    pub fn mixer_of(&self, layer: usize) -> Option<RecurrentMixer> {
        let recurrent = self.recurrent.as_ref()?;
        let recurs = recurrent.layers.get(layer).copied().unwrap_or(false);
        recurs.then_some(recurrent.mixer)
    }

    /// The number of the cache of `layer`, which must attend: other layers have no cache.
    pub fn cache_of(&self, layer: usize) -> usize {
        (0..layer).filter(|layer| self.attends(*layer)).count()
    }

    /// Whether `layer` has attention.
    pub fn attends(&self, layer: usize) -> bool {
        let recurrent = self.recurrent.as_ref();
        let attends_too = recurrent.is_some_and(|config| config.beside_attention.is_some());
        self.has_heads(layer)
            && !self.is_network(layer)
            && (attends_too || self.mixer_of(layer).is_none())
    }

    /// Whether `layer` is a feed-forward and nothing else, in models whose layers are one thing each.
    pub fn is_network(&self, layer: usize) -> bool {
        self.layers.networks.get(layer).copied().unwrap_or(false)
    }

    /// The experts of `layer`, if it has them.
    pub fn experts_of(&self, layer: usize) -> Option<&ExpertConfig> {
        self.experts.as_ref().filter(|experts| experts.has(layer))
    }

    /// Refuses sizes that are zero, absurd or do not fit each other.
    ///
    /// # Errors
    /// [`Error::BadValue`] naming the first offending hyperparameter; `file` is for the message.
    pub fn validate(&self, file: &str) -> Result<(), Error> {
        self.check_sizes(file)?;
        self.check_head_groups(file)?;
        self.check_windows(file)?;
        self.check_factors(file)?;
        self.rope.validate(file, self.n_rot)?;
        if let Some(local) = &self.rope_local {
            let heads = self.layers.sliding_heads;
            local.validate(file, heads.map_or(self.n_rot, |heads| heads.n_rot))?;
        }
        if let Some(experts) = &self.experts {
            experts.validate(file)?;
        }
        if let Some(latent) = &self.latent {
            latent.validate(file)?;
        }
        if let Some(recurrent) = &self.recurrent {
            recurrent.validate(file, self.n_layers)?;
        }
        if let Some(encoder) = &self.encoder {
            encoder.validate(file)?;
        }
        self.validate_layers(file)
    }

    fn check_head_groups(&self, file: &str) -> Result<(), Error> {
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.n_heads);
            let key = "number of key/value heads";
            return bad(file, key, self.n_kv_heads.to_string(), expected);
        }
        if !self.n_rot.is_multiple_of(2) || self.n_rot > self.head_dim {
            let expected = format!("even, and at most the head size {}", self.head_dim);
            let key = "elements that RoPE rotates";
            return bad(file, key, self.n_rot.to_string(), expected);
        }
        Ok(())
    }

    fn check_windows(&self, file: &str) -> Result<(), Error> {
        if self.layer_windowed.len() != self.n_layers {
            let expected = format!("one for each of the {} layers", self.n_layers);
            let found = self.layer_windowed.len().to_string();
            return bad(file, "number of layer types", found, expected);
        }
        if self.window.is_none() && self.layer_windowed.contains(&true) {
            let expected = "set, as some layers use it".into();
            return bad(file, "sliding window", "absent".into(), expected);
        }
        if self.window == Some(0) {
            return bad(file, "sliding window", "0".into(), "at least 1".into());
        }
        Ok(())
    }

    fn check_factors(&self, file: &str) -> Result<(), Error> {
        let positive = [
            ("RMSNorm epsilon", self.norm_eps),
            ("attention scale", self.attention_scale),
            ("embedding scale", self.embed_scale),
            ("factor on queries", self.query_scale),
            ("residual scale", self.residual_scale),
            ("logit scale", self.logit_scale),
            (
                "softcap of attention",
                self.attention_softcap.unwrap_or(1.0),
            ),
            ("softcap of logits", self.logit_softcap.unwrap_or(1.0)),
            (
                "bound of queries, keys and values",
                self.layers.qkv_bound.unwrap_or(1.0),
            ),
        ];
        for (key, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return bad(file, key, value.to_string(), "a positive number".into());
            }
        }
        if let Some(temperature) = self.temperature
            && (temperature.length == 0 || !temperature.scale.is_finite())
        {
            let found = format!("{temperature:?}");
            let expected = "a length of at least 1, and a finite scale".into();
            return bad(file, "factor on queries by position", found, expected);
        }
        Ok(())
    }

    fn check_sizes(&self, file: &str) -> Result<(), Error> {
        let sizes = [
            ("number of layers", self.n_layers, MAX_LAYERS),
            ("embedding size", self.d_model, MAX_WIDTH),
            ("feed-forward size", self.d_ff, MAX_WIDTH),
            ("number of heads", self.n_heads, MAX_WIDTH),
            ("number of key/value heads", self.n_kv_heads, MAX_WIDTH),
            ("head size", self.head_dim, MAX_HEAD_DIM),
            (
                "size of all heads",
                self.n_heads.saturating_mul(self.head_dim),
                MAX_WIDTH,
            ),
            ("vocabulary size", self.vocab_size, MAX_VOCAB),
            ("context length", self.context_length, MAX_CONTEXT),
        ];
        for (key, found, max) in sizes {
            if found == 0 || found > max {
                let expected = format!("between 1 and {max}");
                return bad(file, key, found.to_string(), expected);
            }
        }
        Ok(())
    }
}

/// The error for an invalid hyperparameter.
fn bad(file: &str, key: &str, found: String, expected: String) -> Result<(), Error> {
    Err(Error::BadValue {
        file: file.into(),
        key: key.into(),
        found,
        expected,
    })
}

#[cfg(test)]
mod tests;
