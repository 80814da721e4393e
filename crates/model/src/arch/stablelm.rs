//! StableLM: Llama with LayerNorms, of which a quarter of each head rotates.

use super::Family;
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "stablelm",
    gguf_arch: "stablelm",
    hf_model_types: &["stablelm"],
    hf_classes: &["StableLmForCausalLM"],
    models: "StableLM 3B, StableLM 2 1.6B",
    hf_own_biases: true,
    hf_partial_rotary: 0.25,
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        d_model: 2560,
        d_ff: 6912,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: Some(32),
        head_dim: None,
        context_length: 4096,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    hf,
    write_hf: |config, out| {
        out["use_qkv_bias"] = json!(config.biases.qkv);
        out["layer_norm_eps"] = shortest(config.norm_eps);
    },
    write_gguf: |_, set| set("use_parallel_residual", GgufValue::Bool(false)),
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    for key in ["use_parallel_residual", "qk_layernorm"] {
        if text.bool(key)? == Some(true) {
            return Err(text.unsupported(format!("`{key}`"), "models without it"));
        }
    }
    config.biases = Biases {
        qkv: text.bool("use_qkv_bias")?.unwrap_or(false),
        attn_output: false,
        ffn: false,
    };
    Ok(())
}
