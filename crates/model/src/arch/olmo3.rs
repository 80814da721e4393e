//! OLMo 3: OLMo 2 with a window on three layers of four. Its GGUF files call themselves `olmo2`, so this row is for
//! Hugging Face files.

use super::Family;
use super::olmo2;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::names::HfNorms;

pub(super) static FAMILY: Family = Family {
    name: "olmo3",
    gguf_arch: "olmo2",
    hf_model_types: &["olmo3"],
    hf_classes: &["Olmo3ForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    models: "OLMo 3",
    unscaled_local_rope: true,
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Pattern {
        window: 4096,
        pattern: 4,
    },
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        rope_theta: 500_000.0,
        ..Family::PLAIN.hf_defaults
    },
    gguf_window_pattern: Some(4),
    build: olmo2::build,
    ..Family::PLAIN
};
