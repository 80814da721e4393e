//! MiniCPM3: MiniCPM's factors, and DeepSeek's attention over a latent with halves of heads that rotate.

use super::Family;
use super::block;
use super::deepseek2::{self, hf_latent, write_latent};
use super::minicpm::{self, DIM_MODEL_BASE, EMBED_SCALE, SCALE_DEPTH};
use crate::Error;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults};
use millrace_format::gguf::GgufValue;

/// Rank of queries where `config.json` does not give it.
const Q_RANK: usize = 768;

pub(super) static FAMILY: Family = Family {
    name: "minicpm3",
    gguf_arch: "minicpm3",
    hf_model_types: &["minicpm3"],
    hf_classes: &["MiniCPM3ForCausalLM"],
    models: "MiniCPM3 4B",
    hf_mlp_bias: true,
    yarn_scales_scores: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 73_448,
        d_model: 2560,
        d_ff: 6400,
        n_layers: 62,
        n_heads: 40,
        n_kv_heads: None,
        head_dim: None,
        context_length: 32_768,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf,
    hf,
    write_hf: |config, out| {
        minicpm::write_hf(config, out);
        write_latent(config, out);
    },
    write_gguf,
    build: |b| block::decoder(b, deepseek2::block),
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    minicpm::gguf(keys, config)?;
    if config.latent.is_none() {
        let feature = "`minicpm3` without `attention.kv_lora_rank`".into();
        return Err(keys.unsupported(feature, "attention over a latent"));
    }
    // All heads share the latent.
    config.n_kv_heads = 1;
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_latent(text, config, Q_RANK)?;
    if let (Some(latent), None) = (&mut config.latent, text.usize("v_head_dim")?) {
        // `validate` refuses zero heads after this.
        latent.v_dim = config.d_model / config.n_heads.max(1);
    }
    // `null` switches a factor off, an absent key means the class's default.
    let factor = |key: &str, default| match text.map.contains_key(key) {
        true => text.f32(key),
        false => Ok(Some(default)),
    };
    config.embed_scale = text.f32("scale_emb")?.unwrap_or(EMBED_SCALE);
    if let Some(depth) = factor("scale_depth", SCALE_DEPTH)? {
        config.residual_scale = depth / (config.n_layers as f32).sqrt();
    }
    if let Some(base) = factor("dim_model_base", DIM_MODEL_BASE)? {
        config.logit_scale = base / config.d_model as f32;
    }
    Ok(())
}

/// llama.cpp's reader takes the sizes of heads before absorption.
fn write_gguf(config: &ModelConfig, set: &mut super::SetKey<'_>) {
    minicpm::write_gguf(config, set);
    let size = |size: usize| GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX));
    if let Some(latent) = &config.latent {
        set("attention.head_count_kv", size(config.n_heads));
        set("attention.key_length", size(latent.q_dim()));
        set("attention.value_length", size(latent.v_dim));
    }
}
