//! The geometries: sizes of published models, and tiny ones of the same families for tests.

mod table;

use crate::arch::{self, Family};
use crate::config::{
    Biases, ExpertConfig, LayerConfig, ModelConfig, RecurrentConfig, RecurrentMixer, RopeConfig,
    RopeScaling,
};
use crate::vision::VisionConfig;
use table::TABLE;

/// A model's sizes without its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelGeometry {
    row: &'static GeometryRow,
    vocab_size: usize,
}

#[derive(Debug, PartialEq)]
struct GeometryRow {
    name: &'static str,
    family: &'static str,
    n_layers: usize,
    d_model: usize,
    d_ff: usize,
    /// Query heads, key/value heads, elements a head.
    heads: [usize; 3],
    vocab_size: usize,
    context_length: usize,
    norm_eps: f32,
    rope_theta: f32,
    rope_scaling: RopeScaling,
    /// Window, in the layers for which the family's GGUF files have it.
    window: Option<usize>,
    tied_head: bool,
    vision: Option<EncoderGeometry>,
    /// Elements of a head that rotate, where not all do.
    n_rot: Option<usize>,
    /// Experts, those that a token uses, the width of one.
    experts: Option<[usize; 3]>,
    /// Whether attention has every bias, in families whose configuration gives it.
    attention_biases: bool,
    /// Recurrent layers.
    recurrent: Option<RecurrentRow>,
}

/// The mixer of recurrent layers, and other values of models with such layers.
#[derive(Debug, PartialEq)]
struct RecurrentRow {
    mixer: RecurrentMixer,
    /// Layers that attend.
    attending: &'static [usize],
    /// Whether their heads rotate.
    rotates: bool,
    /// Width of the network that every token uses beside experts; 0 for none.
    shared_d_ff: usize,
}

/// A vision encoder's sizes.
#[derive(Debug, PartialEq)]
struct EncoderGeometry {
    n_layers: usize,
    d_model: usize,
    d_ff: usize,
    n_heads: usize,
    image_size: usize,
    patch_size: usize,
    n_tokens: usize,
}

impl RecurrentRow {
    /// The configuration for this number of layers.
    fn config(&self, n_layers: usize) -> RecurrentConfig {
        let layers = (0..n_layers).map(|layer| !self.attending.contains(&layer));
        RecurrentConfig {
            layers: layers.collect(),
            mixer: self.mixer,
            beside_attention: None,
        }
    }
}

impl GeometryRow {
    /// The family's biases, or those of this row's attention.
    fn biases(&self, family: &Family) -> Biases {
        family.hf_biases.unwrap_or(Biases {
            qkv: self.attention_biases,
            attn_output: self.attention_biases,
            ffn: false,
        })
    }
}

impl ModelGeometry {
    /// The geometry of that name, in any case.
    pub fn named(name: &str) -> Option<ModelGeometry> {
        TABLE
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))
            .map(ModelGeometry::of)
    }

    fn of(row: &'static GeometryRow) -> ModelGeometry {
        ModelGeometry {
            row,
            vocab_size: row.vocab_size,
        }
    }

    /// The same with another number of tokens: blocks of real sizes beside a small table and head.
    #[must_use]
    pub fn with_vocab_size(self, vocab_size: usize) -> ModelGeometry {
        ModelGeometry { vocab_size, ..self }
    }

    /// All geometries.
    pub fn all() -> impl Iterator<Item = ModelGeometry> {
        TABLE.iter().map(ModelGeometry::of)
    }

    /// Its name: `llama-3.2-1b`.
    pub fn name(self) -> &'static str {
        self.row.name
    }

    /// The vision encoder, of geometries that have one.
    pub fn vision(self) -> Option<VisionConfig> {
        let encoder = self.row.vision.as_ref()?;
        Some(VisionConfig {
            n_layers: encoder.n_layers,
            d_model: encoder.d_model,
            d_ff: encoder.d_ff,
            n_heads: encoder.n_heads,
            image_size: encoder.image_size,
            patch_size: encoder.patch_size,
            n_tokens: encoder.n_tokens,
            d_text: self.row.d_model,
            ..VisionConfig::without_sizes("gemma3")
        })
    }

    /// The configuration, with another number of layers if one is given.
    pub fn config(self, n_layers: Option<usize>) -> ModelConfig {
        let row = self.row;
        let family = arch::by_name(row.family);
        let [n_heads, n_kv_heads, head_dim] = row.heads;
        // Beyond the limit `validate` refuses the number; the list below must not follow it there.
        let n_layers = n_layers.unwrap_or(row.n_layers);
        let listed = n_layers.min(crate::config::MAX_LAYERS);
        let pattern = family.gguf_window_pattern.unwrap_or(0);
        let windowed = |layer: usize| row.window.is_some() && family.slides(layer, pattern);
        let mut config = ModelConfig {
            family: family.name,
            n_layers,
            d_model: row.d_model,
            d_ff: row.d_ff,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab_size: self.vocab_size,
            context_length: row.context_length,
            norm_eps: row.norm_eps,
            rope: RopeConfig {
                theta: row.rope_theta,
                scaling: row.rope_scaling.clone(),
            },
            rope_local: family.local_rope_theta.map(RopeConfig::plain),
            window: row.window,
            layer_windowed: (0..listed).map(windowed).collect(),
            tied_head: row.tied_head,
            attention_scale: 1.0 / (head_dim as f32).sqrt(),
            embed_scale: family.embed_scale(row.d_model),
            activation: family.activation,
            biases: row.biases(family),
            n_rot: row.n_rot.unwrap_or(head_dim),
            unrotated_layers: match &row.recurrent {
                Some(RecurrentRow { rotates: false, .. }) => (0..listed).collect(),
                _ => Vec::new(),
            },
            query_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            attention_softcap: None,
            logit_softcap: None,
            temperature: None,
            max_distance_bias: None,
            rope_sections: family.rope_sections.to_vec(),
            experts: row.experts.map(|sizes| ExpertConfig {
                shared_d_ff: row.recurrent.as_ref().map_or(0, |row| row.shared_d_ff),
                ..family.expert_config(sizes)
            }),
            latent: None,
            layers: LayerConfig::default(),
            recurrent: row.recurrent.as_ref().map(|row| row.config(listed)),
            encoder: None,
            qk_norm: false,
        };
        (family.fixed)(&mut config);
        config
    }
}
