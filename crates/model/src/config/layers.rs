//! Values that differ from layer to layer: sizes of heads and networks, and whose keys and values a layer reads.

mod check;

use super::{MAX_WIDTH, ModelConfig, StreamConfig};
use millrace_graph::{Temperature, Xielu, distance_slopes};
use std::sync::Arc;

/// Sizes of a layer's heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSizes {
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements a head.
    pub head_dim: usize,
    /// Elements of a head that RoPE rotates, from the first on.
    pub n_rot: usize,
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value projections.
    pub qkv: bool,
    /// The attention's output projection.
    pub attn_output: bool,
    /// The three projections of the feed-forward.
    pub ffn: bool,
}

impl Biases {
    /// On all projections.
    pub const ALL: Biases = Biases {
        qkv: true,
        attn_output: true,
        ffn: true,
    };
    /// On none.
    pub const NONE: Biases = Biases {
        qkv: false,
        attn_output: false,
        ffn: false,
    };
}

/// Gates of the attention's output, computed from the input of its projections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadGates {
    /// None.
    #[default]
    Absent,
    /// One for each query head.
    Heads,
    /// One for each element of each query head.
    Elements,
}

/// Bounds of the factors of a layer's gated networks: the activated gate and the up projection (Step 3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GluBounds {
    /// Of experts that a token chooses; 0 for none.
    pub experts: f32,
    /// Of the dense network, or of the expert that every token uses; 0 for none.
    pub network: f32,
}

/// Order of attention and feed-forward in a block, in families whose models differ in this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockForm {
    /// The feed-forward behind the attention.
    #[default]
    Sequential,
    /// Both read the output of one norm.
    Parallel,
    /// Both of the block's input, each behind its own norm.
    ParallelNorms,
    /// The feed-forward behind the attention, each with a norm behind the sum of its input and its output; the model then
    /// has no last norm (OPT 350M).
    PostNorms,
}

/// Parameters from which a layer's factors of xIELU are computed, as files have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct XieluParameters {
    /// The factor on squares is the softplus of it.
    pub alpha_p: f32,
    /// The factor on exponentials is the softplus of it, plus `beta`.
    pub alpha_n: f32,
    /// Slope at zero.
    pub beta: f32,
    /// Bound of exponents.
    pub eps: f32,
}

impl XieluParameters {
    /// Initial values of transformers' class: factors of 0.8.
    const INITIAL: XieluParameters = XieluParameters {
        alpha_p: 0.203_382_32,
        alpha_n: -1.050_225_6,
        beta: 0.5,
        eps: -1e-6,
    };

    /// Takes four numbers in the order of the fields; a missing one is that of the class.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f32>) -> XieluParameters {
        let mut numbers = numbers.into_iter();
        let initial = XieluParameters::INITIAL.numbers();
        let [alpha_p, alpha_n, beta, eps] = initial.map(|usual| numbers.next().unwrap_or(usual));
        XieluParameters {
            alpha_p,
            alpha_n,
            beta,
            eps,
        }
    }

    /// Alpha for squares and for exponentials, beta, epsilon.
    pub(crate) fn numbers(&self) -> [f32; 4] {
        [self.alpha_p, self.alpha_n, self.beta, self.eps]
    }

    /// The activation.
    pub fn op(&self) -> Xielu {
        let softplus = |x: f32| f64::from(x).exp().ln_1p();
        Xielu {
            square: softplus(self.alpha_p) as f32,
            exponential: (f64::from(self.beta) + softplus(self.alpha_n)) as f32,
            linear: self.beta,
            bound: self.eps,
        }
    }
}

/// Values that differ from layer to layer, in families where some do (Gemma 4, Nemotron H).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerConfig {
    /// Heads of sliding layers, where they differ from those of the others.
    pub sliding_heads: Option<HeadSizes>,
    /// Query heads by layer, 0 for a layer without attention; empty where all have [`ModelConfig::n_heads`].
    pub n_heads: Vec<usize>,
    /// Key and value heads by layer; 0 for a layer without queries, where a matrix replaces attention. Empty where all layers have
    /// the same number.
    pub n_kv_heads: Vec<usize>,
    /// Width of the gated feed-forward by layer, 0 for none where heads are given by layer too; empty where all have [`ModelConfig::d_ff`].
    pub d_ff: Vec<usize>,
    /// Last layers that read keys and values of the last layer of their kind before them.
    pub n_shared_kv: usize,
    /// Whether values of global layers are their keys, before norm and rotation.
    pub keys_as_values: bool,
    /// Visibility of an image among its own rows.
    pub image_sight: ImageSight,
    /// Elements of a token's embedding for each layer; 0 for none.
    pub embedding_dim: usize,
    /// Parallel streams, in models that have them (Gemma 3n).
    pub streams: Option<StreamConfig>,
    /// Order of attention and feed-forward: the same in all layers, but not in all models of some families.
    pub form: BlockForm,
    /// Whether a learned embedding of the position is added to embeddings, in a decoder.
    pub learned_positions: bool,
    /// For each layer, whether it is a feed-forward and nothing else; the others then have none (Nemotron H). Empty where
    /// every layer has one.
    pub networks: Vec<bool>,
    /// Whether the head has a bias, in families whose models differ in it.
    pub head_bias: bool,
    /// Whether folders have a head whose rows must be divided by their lengths (Baichuan 2). In GGUF files they
    /// already are.
    pub unit_head: bool,
    /// Whether windows are chunks, which begin at multiples of their length (Llama 4).
    pub windows_are_chunks: bool,
    /// Whether only layers whose heads do not rotate have the factor on queries by position (Llama 4).
    pub temperature_without_rope: bool,
    /// Bound of queries, keys and values, in models that clamp them (OLMo, MPT).
    pub qkv_bound: Option<f32>,
    /// Whether biases by distance have the factor on scores too (Falcon RW).
    pub scaled_distance_biases: bool,
    /// Elements of a row of the embedding table, where matrices lead from it to the stream and back; `None` where the
    /// stream is as wide (OPT 350M).
    pub table_dim: Option<usize>,
    /// xIELU of each layer; empty in models without it, and where files do not give it.
    pub xielu: Vec<XieluParameters>,
    /// Elements of a head of values, where it is smaller than a head of keys (MiMo 2).
    pub v_dim: Option<usize>,
    /// Factor on values (MiMo 2).
    pub value_scale: Option<f32>,
    /// Layers without sinks, by number, in families whose heads have some.
    pub without_sinks: Vec<usize>,
    /// Gates of the attention's output, in families whose models differ in them.
    pub head_gates: HeadGates,
    /// Whether both halves of a block have a norm behind them, in families whose models differ in this (LFM 3).
    pub post_norms: bool,
    /// Bounds in the gated networks of each layer; empty where none has any.
    pub glu_bounds: Vec<GluBounds>,
    /// Width of the stream of the model that an assistant drafts for; 0 for other models.
    pub target_dim: usize,
}

/// Visibility of an image among its own rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageSight {
    /// Those before them, as tokens do.
    #[default]
    Before,
    /// In layers with a window, the whole image within the window; in others, the rows before them.
    AllInWindows,
    /// The whole image; in layers with a window, within the window.
    All,
}

impl ModelConfig {
    /// Visibility of an image among its own rows.
    pub fn image_sight(&self) -> ImageSight {
        self.layers.image_sight
    }

    /// Sizes of the heads of `layer`.
    pub fn heads_of(&self, layer: usize) -> HeadSizes {
        match self.layers.sliding_heads {
            Some(heads) if self.window_of(layer).is_some() => heads,
            _ => HeadSizes {
                n_kv_heads: self.n_kv_heads_of(layer),
                head_dim: self.head_dim,
                n_rot: self.n_rot,
            },
        }
    }

    /// Elements of a head of values of `layer`.
    pub fn v_dim_of(&self, layer: usize) -> usize {
        self.layers.v_dim.unwrap_or(self.heads_of(layer).head_dim)
    }

    /// Bounds in the gated networks of `layer`; zeros where it has none.
    pub fn glu_bounds_of(&self, layer: usize) -> GluBounds {
        let own = self.layers.glu_bounds.get(layer).copied();
        own.unwrap_or_default()
    }

    /// Slopes by which scores fall with the distance of the key, one a head; `None` without such biases.
    pub(crate) fn distance_slopes(&self) -> Option<Arc<[f32]>> {
        let slopes = distance_slopes(self.max_distance_bias?, self.n_heads);
        Some(match self.layers.scaled_distance_biases {
            true => slopes
                .iter()
                .map(|slope| slope * self.attention_scale)
                .collect(),
            false => slopes,
        })
    }

    /// Query heads of `layer`, 0 if it has no attention.
    pub fn n_heads_of(&self, layer: usize) -> usize {
        let own = self.layers.n_heads.get(layer).copied();
        own.unwrap_or(self.n_heads)
    }

    /// Key and value heads of `layer`, unless it is a sliding layer with a different number.
    fn n_kv_heads_of(&self, layer: usize) -> usize {
        let own = self.layers.n_kv_heads.get(layer).copied();
        own.unwrap_or(self.n_kv_heads)
    }

    /// Whether `layer` has heads of queries and of keys.
    pub(crate) fn has_heads(&self, layer: usize) -> bool {
        self.n_heads_of(layer) > 0 && self.n_kv_heads_of(layer) > 0
    }

    /// Refuses lists of heads that have another length than the model, or heads that do not fit each other.
    fn check_heads_by_layer(&self) -> Result<(), (String, String, String)> {
        let lists = [
            ("number of query heads by layer", &self.layers.n_heads),
            (
                "number of key/value heads by layer",
                &self.layers.n_kv_heads,
            ),
        ];
        for (key, list) in lists {
            if !list.is_empty() && list.len() != self.n_layers {
                let expected = format!("one for each of the {} layers", self.n_layers);
                return Err((key.into(), format!("{} numbers", list.len()), expected));
            }
        }
        let is_listed = lists.iter().any(|(_, list)| !list.is_empty());
        for layer in (0..self.n_layers).filter(|_| is_listed) {
            let (n, n_kv) = (self.n_heads_of(layer), self.heads_of(layer).n_kv_heads);
            let width = n.saturating_mul(self.heads_of(layer).head_dim);
            if width > MAX_WIDTH {
                let key = format!("size of all heads in layer {layer}");
                return Err((key, width.to_string(), format!("at most {MAX_WIDTH}")));
            }
            if n_kv > 0 && !n.is_multiple_of(n_kv) || n_kv > n {
                let key = format!("number of key/value heads in layer {layer}");
                let expected = format!("a divisor of the {n} query heads, or 0");
                return Err((key, n_kv.to_string(), expected));
            }
        }
        Ok(())
    }

    /// The factor on queries of `layer` that grows with the position.
    pub fn temperature_of(&self, layer: usize) -> Option<Temperature> {
        let has_it = !self.layers.temperature_without_rope || !self.rotates(layer);
        self.temperature.filter(|_| has_it)
    }

    /// Width of the gated feed-forward of `layer`.
    pub fn d_ff_of(&self, layer: usize) -> usize {
        self.layers.d_ff.get(layer).copied().unwrap_or(self.d_ff)
    }

    /// xIELU of `layer`.
    pub fn xielu_of(&self, layer: usize) -> XieluParameters {
        let own = self.layers.xielu.get(layer).copied();
        own.unwrap_or(XieluParameters::INITIAL)
    }

    /// The layer whose keys and values `layer` reads: itself, except in layers that share.
    pub fn kv_layer_of(&self, layer: usize) -> usize {
        let first_shared = self.n_layers.saturating_sub(self.layers.n_shared_kv);
        let is_alike = |other: &usize| self.window_of(*other) == self.window_of(layer);
        match layer < first_shared {
            true => layer,
            false => (0..first_shared).rev().find(is_alike).unwrap_or(layer),
        }
    }

    /// Whether `config.json` can express the widths of layers: twice the usual one in those that share keys and values.
    pub(super) fn has_sayable_widths(&self) -> bool {
        let first = self.n_layers.saturating_sub(self.layers.n_shared_kv);
        let is_sayable = |(layer, width): (usize, &usize)| {
            let factor = if layer < first { 1 } else { 2 };
            self.d_ff.checked_mul(factor) == Some(*width)
        };
        self.layers.d_ff.iter().enumerate().all(is_sayable)
    }
}
