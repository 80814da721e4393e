//! The geometries: sizes of published models, and tiny ones of the same families for tests.

use crate::arch;
use crate::config::{Biases, LayerConfig, ModelConfig, RopeConfig, RopeScaling};
use crate::vision::VisionConfig;

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
    /// Window of the layers that the family's GGUF files have it on.
    window: Option<usize>,
    tied_head: bool,
    vision: Option<Tower>,
    /// Elements of a head that rotate, where not all do.
    n_rot: Option<usize>,
    /// Experts, those that a token uses, the width of one.
    experts: Option<[usize; 3]>,
    /// Whether attention has every bias, in families whose configuration says it.
    attention_biases: bool,
}

/// A vision tower's sizes.
#[derive(Debug, PartialEq)]
struct Tower {
    n_layers: usize,
    d_model: usize,
    d_ff: usize,
    n_heads: usize,
    image_size: usize,
    patch_size: usize,
    n_tokens: usize,
}

const fn llama3(factor: f32) -> RopeScaling {
    RopeScaling::Llama3 {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192,
    }
}

/// Sizes of the published models are those of their `config.json`.
static TABLE: [GeometryRow; 16] = [
    GeometryRow {
        name: "llama-3.2-1b",
        family: "llama",
        n_layers: 16,
        d_model: 2048,
        d_ff: 8192,
        heads: [32, 8, 64],
        vocab_size: 128_256,
        context_length: 131_072,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling: llama3(32.0),
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "llama-3.2-3b",
        family: "llama",
        n_layers: 28,
        d_model: 3072,
        d_ff: 8192,
        heads: [24, 8, 128],
        vocab_size: 128_256,
        context_length: 131_072,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling: llama3(32.0),
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "llama-3.1-8b",
        family: "llama",
        n_layers: 32,
        d_model: 4096,
        d_ff: 14_336,
        heads: [32, 8, 128],
        vocab_size: 128_256,
        context_length: 131_072,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling: llama3(8.0),
        window: None,
        tied_head: false,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "llama-3.1-70b",
        family: "llama",
        n_layers: 80,
        d_model: 8192,
        d_ff: 28_672,
        heads: [64, 8, 128],
        vocab_size: 128_256,
        context_length: 131_072,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling: llama3(8.0),
        window: None,
        tied_head: false,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "gemma-3-1b",
        family: "gemma3",
        n_layers: 26,
        d_model: 1152,
        d_ff: 6912,
        heads: [4, 1, 256],
        vocab_size: 262_144,
        context_length: 32_768,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: Some(512),
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "gemma-3-4b",
        family: "gemma3",
        n_layers: 34,
        d_model: 2560,
        d_ff: 10_240,
        heads: [8, 4, 256],
        vocab_size: 262_208,
        context_length: 131_072,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::Linear { factor: 8.0 },
        window: Some(1024),
        tied_head: true,
        vision: Some(Tower {
            n_layers: 27,
            d_model: 1152,
            d_ff: 4304,
            n_heads: 16,
            image_size: 896,
            patch_size: 14,
            n_tokens: 256,
        }),
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "qwen3-0.6b",
        family: "qwen3",
        n_layers: 28,
        d_model: 1024,
        d_ff: 3072,
        heads: [16, 8, 128],
        vocab_size: 151_936,
        context_length: 40_960,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "qwen2.5-0.5b",
        family: "qwen2",
        n_layers: 24,
        d_model: 896,
        d_ff: 4864,
        heads: [14, 2, 64],
        vocab_size: 151_936,
        context_length: 32_768,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "qwen2.5-1.5b",
        family: "qwen2",
        n_layers: 28,
        d_model: 1536,
        d_ff: 8960,
        heads: [12, 2, 128],
        vocab_size: 151_936,
        context_length: 32_768,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "qwen2.5-3b",
        family: "qwen2",
        n_layers: 36,
        d_model: 2048,
        d_ff: 11_008,
        heads: [16, 2, 128],
        vocab_size: 151_936,
        context_length: 32_768,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "qwen3-30b-a3b",
        family: "qwen3moe",
        n_layers: 48,
        d_model: 2048,
        d_ff: 6144,
        heads: [32, 4, 128],
        vocab_size: 151_936,
        context_length: 40_960,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: false,
        vision: None,
        n_rot: None,
        experts: Some([128, 8, 768]),
        attention_biases: false,
    },
    GeometryRow {
        name: "olmoe-1b-7b",
        family: "olmoe",
        n_layers: 16,
        d_model: 2048,
        d_ff: 1024,
        heads: [16, 16, 128],
        vocab_size: 50_304,
        context_length: 4096,
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: false,
        vision: None,
        n_rot: None,
        experts: Some([64, 8, 1024]),
        attention_biases: false,
    },
    // Without its YaRN: within 4,096 tokens the sizes and the work are the same.
    GeometryRow {
        name: "gpt-oss-20b",
        family: "gpt-oss",
        n_layers: 24,
        d_model: 2880,
        d_ff: 2880,
        heads: [64, 8, 64],
        vocab_size: 201_088,
        context_length: 131_072,
        norm_eps: 1e-5,
        rope_theta: 150_000.0,
        rope_scaling: RopeScaling::None,
        window: Some(128),
        tied_head: false,
        vision: None,
        n_rot: None,
        experts: Some([32, 4, 2880]),
        attention_biases: true,
    },
    GeometryRow {
        name: "llama-tiny",
        family: "llama",
        n_layers: 4,
        d_model: 256,
        d_ff: 768,
        heads: [4, 2, 64],
        vocab_size: 512,
        context_length: 131_072,
        norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling: llama3(32.0),
        window: None,
        tied_head: true,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "gemma-tiny",
        family: "gemma3",
        n_layers: 7,
        d_model: 256,
        d_ff: 512,
        heads: [2, 1, 256],
        vocab_size: 512,
        context_length: 32_768,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::Linear { factor: 8.0 },
        window: Some(32),
        tied_head: true,
        vision: Some(Tower {
            n_layers: 2,
            d_model: 144,
            d_ff: 96,
            n_heads: 2,
            image_size: 112,
            patch_size: 14,
            n_tokens: 16,
        }),
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
    GeometryRow {
        name: "qwen-tiny",
        family: "qwen3",
        n_layers: 4,
        d_model: 256,
        d_ff: 768,
        heads: [8, 2, 128],
        vocab_size: 512,
        context_length: 40_960,
        norm_eps: 1e-6,
        rope_theta: 1_000_000.0,
        rope_scaling: RopeScaling::None,
        window: None,
        tied_head: false,
        vision: None,
        n_rot: None,
        experts: None,
        attention_biases: false,
    },
];

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

    /// The vision tower, of geometries that have one.
    pub fn vision(self) -> Option<VisionConfig> {
        let tower = self.row.vision.as_ref()?;
        Some(VisionConfig {
            n_layers: tower.n_layers,
            d_model: tower.d_model,
            d_ff: tower.d_ff,
            n_heads: tower.n_heads,
            image_size: tower.image_size,
            patch_size: tower.patch_size,
            norm_eps: 1e-6,
            n_tokens: tower.n_tokens,
            d_text: self.row.d_model,
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
        let windowed = |layer: usize| {
            row.window.is_some() && (pattern == 0 || !(layer + 1).is_multiple_of(pattern))
        };
        ModelConfig {
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
            biases: family.hf_biases.unwrap_or(Biases {
                qkv: row.attention_biases,
                attn_output: row.attention_biases,
                ffn: false,
            }),
            n_rot: row.n_rot.unwrap_or(head_dim),
            unrotated_layers: Vec::new(),
            residual_scale: 1.0,
            logit_scale: 1.0,
            attention_softcap: None,
            logit_softcap: None,
            temperature: None,
            rope_sections: Vec::new(),
            experts: row.experts.map(|sizes| family.expert_config(sizes)),
            latent: None,
            layers: LayerConfig::default(),
            encoder: None,
            qk_norm: false,
        }
    }
}
