//! Qwen 3 VL (dense), text part: Qwen 3. Sections of a head rotate by the time, row and column of an image; for text all
//! three are the position.

use super::Family;
use super::block::sections;
use super::qwen3;
use crate::config::hf::HfDefaults;

pub(super) static FAMILY: Family = Family {
    name: "qwen3vl",
    gguf_arch: "qwen3vl",
    hf_model_types: &["qwen3_vl", "qwen3_vl_text"],
    hf_classes: &["Qwen3VLForConditionalGeneration"],
    models: "Qwen 3 VL (dense)",
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 4096,
        d_ff: 22_016,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(32),
        head_dim: Some(128),
        context_length: 128_000,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    gguf: sections::gguf,
    // The default of transformers' configuration.
    rope_sections: &[24, 20, 20],
    interleaved_sections: true,
    hf: sections::hf,
    write_hf: sections::write_hf,
    write_gguf: sections::write_gguf,
    // Without its vision encoder it is a Qwen 3.
    hf_family: |_| Some("qwen3"),
    build: qwen3::build,
    ..Family::PLAIN
};
