//! Qwen 2 VL and 2.5 VL, text part: Qwen 2. Sections of a head rotate by the time, row and column of an image; for
//! text all three are the position.

use super::Family;
use super::block::sections;
use crate::config::Biases;
use crate::config::hf::{HfDefaults, HfWindows};

pub(super) static FAMILY: Family = Family {
    name: "qwen2vl",
    gguf_arch: "qwen2vl",
    hf_model_types: &["qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
    hf_classes: &[
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
    ],
    models: "Qwen 2 VL, Qwen 2.5 VL",
    hf_biases: Some(Biases {
        qkv: true,
        attn_output: false,
        ffn: false,
    }),
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::FromLayer {
        window: 4096,
        first: 80,
    },
    hf_defaults: HfDefaults {
        vocab_size: 152_064,
        d_model: 8192,
        d_ff: 29_568,
        n_layers: 80,
        n_heads: 64,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 32_768,
        tied_head: false,
        rope_theta: 1_000_000.0,
    },
    // The default of transformers' configuration.
    rope_sections: &[16, 24, 24],
    gguf: sections::gguf,
    hf: sections::hf,
    write_hf: sections::write_hf,
    write_gguf: sections::write_gguf,
    // Without its vision encoder it is a Qwen 2.
    hf_family: |_| Some("qwen2"),
    ..Family::PLAIN
};
