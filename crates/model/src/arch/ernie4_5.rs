//! ERNIE 4.5, dense: Llama whose heads rotate neighbours together in every layout.

use super::Family;
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "ernie4.5",
    gguf_arch: "ernie4_5",
    hf_model_types: &["ernie4_5"],
    hf_classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
    models: "ERNIE 4.5 (dense)",
    hf_own_biases: true,
    interleaved: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 103_424,
        d_model: 1024,
        d_ff: 3072,
        n_layers: 18,
        n_heads: 16,
        n_kv_heads: Some(2),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    hf,
    write_hf: |config, out| out["use_bias"] = json!(config.biases.ffn),
    ..Family::PLAIN
};

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let all = text.bool("use_bias")?.unwrap_or(false);
    config.biases = Biases {
        qkv: all,
        attn_output: all,
        ffn: all,
    };
    Ok(())
}
