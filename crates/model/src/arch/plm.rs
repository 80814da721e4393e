//! PLM: attention over a latent, whose queries are one matrix, and a squared ReLU without a gate.

use super::Family;
use super::block::{self, feed_forward, latent, norm};
use super::deepseek2::{hf_latent, write_latent};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ValueId};

pub(super) static FAMILY: Family = Family {
    name: "plm",
    gguf_arch: "plm",
    hf_model_types: &["plm"],
    hf_classes: &["PLMForCausalLM"],
    models: "PLM 1.8B",
    activation: Activation::ReluSquared,
    interleaved: true,
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 2048,
        d_ff: 8192,
        n_layers: 32,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: None,
        context_length: 4096,
        tied_head: true,
        rope_theta: 100_000.0,
    },
    gguf,
    hf,
    write_hf: write_latent,
    write_gguf,
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if config.latent.is_none() {
        let feature = "`plm` without `attention.kv_lora_rank`".into();
        return Err(keys.unsupported(feature, "attention over a latent"));
    }
    // All heads share the latent.
    config.n_kv_heads = 1;
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_latent(text, config, 0)?;
    if let Some(latent) = &mut config.latent {
        latent.q_rank = text.usize("q_lora_rank")?;
    }
    Ok(())
}

fn write_gguf(config: &ModelConfig, set: &mut super::SetKey<'_>) {
    let size = |size: usize| GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX));
    if let Some(latent) = &config.latent {
        set("attention.head_count_kv", size(config.n_heads));
        set("attention.key_length", size(latent.q_dim()));
        set("attention.value_length", size(latent.v_dim));
    }
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let out = latent::attend(b, layer, normed)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::plain(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
