//! openPangu Embedded: Llama with biases on the attention's projections.

use super::Family;
use crate::config::Biases;
use crate::config::hf::HfDefaults;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "pangu-embedded",
    gguf_arch: "pangu-embedded",
    hf_model_types: &["PanguEmbedded"],
    hf_classes: &["PanguEmbeddedForCausalLM"],
    models: "openPangu Embedded 1B, 7B",
    hf_own_biases: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 153_376,
        d_model: 4096,
        d_ff: 12_800,
        n_layers: 34,
        n_heads: 32,
        n_kv_heads: Some(8),
        head_dim: None,
        context_length: 32_768,
        tied_head: false,
        rope_theta: 16_000_000.0,
    },
    hf: |text, config| {
        let biased = text.bool("bias")?.unwrap_or(true);
        config.biases = Biases {
            qkv: biased,
            attn_output: biased,
            ffn: false,
        };
        Ok(())
    },
    write_hf: |config, out| out["bias"] = json!(config.biases.qkv),
    ..Family::PLAIN
};
