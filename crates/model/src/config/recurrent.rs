//! Recurrent layers: which they are, and their sizes.

use crate::Error;
use crate::config::MAX_WIDTH;
use millrace_graph::{KEY_DIM_MAX, TAPS_MAX};

/// The recurrent layers of a model, in place of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentConfig {
    /// For each layer, whether it is recurrent.
    pub layers: Vec<bool>,
    /// What they compute.
    pub mixer: RecurrentMixer,
}

/// What recurrent layers compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecurrentMixer {
    /// A gated convolution over the last tokens (LFM2).
    ShortConv {
        /// Tokens that it reads.
        n_taps: usize,
        /// Whether it and its projections have biases.
        biased: bool,
    },
    /// A gated delta net (Qwen 3 Next and 3.5).
    DeltaNet(DeltaConfig),
}

/// Sizes of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Tokens that its convolution reads.
    pub n_taps: usize,
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values.
    pub n_v_heads: usize,
    /// Elements of a key head.
    pub k_dim: usize,
    /// Elements of a value head.
    pub v_dim: usize,
}

impl DeltaConfig {
    /// Elements of all key heads.
    pub fn k_width(&self) -> usize {
        self.n_k_heads * self.k_dim
    }

    /// Elements of all value heads.
    pub fn v_width(&self) -> usize {
        self.n_v_heads * self.v_dim
    }

    /// Elements of queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        2 * self.k_width() + self.v_width()
    }

    /// Value heads of a key head.
    pub fn group(&self) -> usize {
        self.n_v_heads / self.n_k_heads.max(1)
    }
}

impl RecurrentConfig {
    /// Sizes of its gated delta nets, if those are what it has.
    pub fn delta(&self) -> Option<&DeltaConfig> {
        match &self.mixer {
            RecurrentMixer::DeltaNet(delta) => Some(delta),
            RecurrentMixer::ShortConv { .. } => None,
        }
    }

    /// Refuses sizes that are zero, absurd or do not fit each other.
    pub(super) fn validate(&self, file: &str, n_layers: usize) -> Result<(), Error> {
        let bad = |key: &str, found: usize, expected: String| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found: found.to_string(),
                expected,
            })
        };
        if self.layers.len() != n_layers {
            let expected = format!("one for each of the {n_layers} layers");
            return bad("number of layer types", self.layers.len(), expected);
        }
        let n_taps = match &self.mixer {
            RecurrentMixer::ShortConv { n_taps, .. } => *n_taps,
            RecurrentMixer::DeltaNet(delta) => delta.n_taps,
        };
        let mut sizes = vec![("length of the convolution", n_taps, 2, TAPS_MAX)];
        if let Some(delta) = self.delta() {
            let v_width = delta.n_v_heads.saturating_mul(delta.v_dim);
            let k_width = delta.n_k_heads.saturating_mul(delta.k_dim);
            sizes.extend([
                (
                    "key heads of recurrent layers",
                    delta.n_k_heads,
                    1,
                    MAX_WIDTH,
                ),
                (
                    "value heads of recurrent layers",
                    delta.n_v_heads,
                    1,
                    MAX_WIDTH,
                ),
                ("size of their key heads", delta.k_dim, 1, KEY_DIM_MAX),
                ("size of their value heads", delta.v_dim, 1, MAX_WIDTH),
                ("size of all key heads", k_width, 1, MAX_WIDTH),
                ("size of all value heads", v_width, 1, MAX_WIDTH),
            ]);
        }
        for (key, found, least, most) in sizes {
            if !(least..=most).contains(&found) {
                return bad(key, found, format!("between {least} and {most}"));
            }
        }
        match self.delta() {
            Some(delta) if !delta.n_v_heads.is_multiple_of(delta.n_k_heads) => {
                let expected = format!("a multiple of the {} key heads", delta.n_k_heads);
                bad("value heads of recurrent layers", delta.n_v_heads, expected)
            }
            _ => Ok(()),
        }
    }
}
