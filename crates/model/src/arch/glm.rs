//! GLM 4 (2024) and ChatGLM 3: half of a head rotates, neighbours together; gate and up projection in one.

use super::{Family, glm4, phi3};
use crate::config::hf::HfDefaults;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "glm",
    gguf_arch: "chatglm",
    hf_model_types: &["glm"],
    hf_classes: &["GlmForCausalLM"],
    models: "GLM 4 (2024), ChatGLM 3 (GGUF)",
    hf_own_biases: true,
    hf_partial_rotary: 0.5,
    interleaved: true,
    hf_norm_eps: 1.5625e-7,
    hf_defaults: HfDefaults {
        vocab_size: 151_552,
        d_model: 4096,
        d_ff: 13_696,
        n_layers: 40,
        n_heads: 32,
        n_kv_heads: Some(2),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    hf: glm4::hf,
    write_hf: |config, out| out["attention_bias"] = json!(config.biases.qkv),
    build: phi3::build,
    ..Family::PLAIN
};
