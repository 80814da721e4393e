//! Youtu-LLM: DeepSeek V3's attention over a latent, dense networks. Its GGUF files call themselves `deepseek2` and have no
//! experts.

use super::Family;
use super::deepseek2::{self, hf_latent, write_latent};
use crate::config::hf::HfDefaults;
use crate::names::WeightRole;

pub(super) static FAMILY: Family = Family {
    name: "youtu",
    gguf_arch: "deepseek2",
    hf_model_types: &["youtu", "youtu_llm"],
    hf_classes: &["YoutuForCausalLM"],
    models: "Youtu-LLM 2B",
    interleaved: true,
    yarn_scales_scores: true,
    gguf_roles: &[WeightRole::AttnKB, WeightRole::AttnVB],
    hf_defaults: HfDefaults {
        vocab_size: 128_256,
        d_model: 2048,
        d_ff: 6144,
        n_layers: 32,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: Some(64),
        context_length: 131_072,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    hf: |text, config| hf_latent(text, config, 1536),
    write_hf: write_latent,
    hf_unsayable: deepseek2::hf_unsayable,
    build: deepseek2::build,
    ..Family::PLAIN
};
