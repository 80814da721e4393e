//! Mellum 2: Qwen 3's blocks with experts. Most layers have a window and rotate without the scaling of the others.

use super::{Family, qwen3};
use crate::config::hf::{HfDefaults, HfExperts, HfWindows};

pub(super) static FAMILY: Family = Family {
    name: "mellum",
    gguf_arch: "mellum",
    hf_model_types: &["mellum"],
    hf_classes: &["MellumForCausalLM"],
    models: "Mellum 2 12B-A2.5B",
    hf_rotates_part: true,
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 64),
        d_ff: ("moe_intermediate_size", 896),
        normalized: Some(("norm_topk_prob", true)),
        layer_kinds: Some("mlp_layer_types"),
        ..HfExperts::PLAIN
    }),
    // Without `layer_types` no layer slides.
    hf_windows: HfWindows::Pattern {
        window: 1024,
        pattern: 1,
    },
    unscaled_local_rope: true,
    hf_defaults: HfDefaults {
        vocab_size: 98_304,
        d_model: 2304,
        d_ff: 7168,
        n_layers: 28,
        n_heads: 32,
        n_kv_heads: Some(4),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    gguf_window_pattern: Some(4),
    build: qwen3::build,
    ..Family::PLAIN
};
