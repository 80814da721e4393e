//! Qwen of the first generation: Llama with one biased matrix for queries, keys and values. Its files give the sum of the
//! widths of gate and up projection.

use super::Family;
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "qwen",
    gguf_arch: "qwen",
    hf_model_types: &["qwen"],
    hf_classes: &["QWenLMHeadModel"],
    hf_prefix: "transformer.",
    hf_layers: "h",
    hf_names: &[
        (WeightRole::TokenEmbedding, "wte"),
        (WeightRole::AttnNorm, "ln_1"),
        (WeightRole::AttnQkv, "attn.c_attn"),
        (WeightRole::AttnOutput, "attn.c_proj"),
        (WeightRole::FfnNorm, "ln_2"),
        (WeightRole::FfnUp, "mlp.w1"),
        (WeightRole::FfnGate, "mlp.w2"),
        (WeightRole::FfnDown, "mlp.c_proj"),
        (WeightRole::OutputNorm, "ln_f"),
    ],
    models: "Qwen (first generation): 1.8B, 7B, 14B, 72B",
    own_roles: &[WeightRole::AttnQkv],
    hf_biases: Some(Biases {
        qkv: true,
        attn_output: false,
        ffn: false,
    }),
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 4096,
        d_ff: 22_016,
        n_layers: 32,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf: |_, config| {
        config.d_ff /= 2;
        Ok(())
    },
    hf,
    write_hf,
    write_gguf: |config, set| {
        let both = u32::try_from(config.d_ff.saturating_mul(2)).unwrap_or(u32::MAX);
        set("feed_forward_length", GgufValue::U32(both));
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("no_bias")? == Some(false) {
        let feature = "biases everywhere (`no_bias` = false)".into();
        return Err(text.unsupported(feature, "`no_bias` = true"));
    }
    let share = text.f64("rotary_pct")?.unwrap_or(1.0);
    let head_dim = text.usize("kv_channels")?.unwrap_or(config.head_dim);
    config.head_dim = head_dim;
    config.n_rot = (head_dim as f64 * share) as usize;
    config.attention_scale = 1.0 / (head_dim as f32).sqrt();
    config.d_ff /= 2;
    config.norm_eps = text.f32("layer_norm_epsilon")?.unwrap_or(config.norm_eps);
    config.rope.theta = text.f32("rotary_emb_base")?.unwrap_or(config.rope.theta);
    // Beyond that length the published code scales RoPE, and queries by position; up to it, it does neither.
    if let Some(trained) = text.usize("seq_length")? {
        config.context_length = config.context_length.min(trained);
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    out["intermediate_size"] = json!(config.d_ff.saturating_mul(2));
    out["layer_norm_epsilon"] = shortest(config.norm_eps);
    out["rotary_emb_base"] = shortest(config.rope.theta);
    out["kv_channels"] = json!(config.head_dim);
    out["seq_length"] = json!(config.context_length);
    out["rotary_pct"] = json!(config.n_rot as f64 / config.head_dim.max(1) as f64);
    out["no_bias"] = json!(true);
}
