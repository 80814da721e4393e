//! Command R7B and Command A: Command R with a window on three layers of four; the others do not rotate.

use super::Family;
use super::cohere;
use crate::config::hf::{HfDefaults, HfWindows};

pub(super) static FAMILY: Family = Family {
    name: "cohere2",
    gguf_arch: "cohere2",
    hf_model_types: &["cohere2"],
    hf_classes: &["Cohere2ForCausalLM"],
    models: "Command R7B, Command A",
    interleaved: true,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Pattern {
        window: 4096,
        pattern: 4,
    },
    hf_defaults: HfDefaults {
        vocab_size: 256_000,
        d_model: 8192,
        d_ff: 22_528,
        n_layers: 40,
        n_heads: 64,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(4),
    fixed: |config| config.unrotated_layers = config.global_layers(),
    hf: |text, config| {
        config.logit_scale = cohere::logit_scale(text)?;
        Ok(())
    },
    write_hf: cohere::write,
    build: cohere::build,
    ..Family::PLAIN
};
