//! Command R, Command R+ and Aya: attention and feed-forward side by side behind one norm, which takes mean and variance and has no
//! bias. Neighbouring elements of a head rotate together, and logits have a factor. Command R+ has a norm of each head of queries
//! and keys, each with its own factors.

use super::Family;
use super::block;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::ModelConfig;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};

pub(super) static FAMILY: Family = Family {
    name: "cohere",
    gguf_arch: "command-r",
    hf_model_types: &["cohere"],
    hf_classes: &["CohereForCausalLM"],
    models: "Command R, R+; Aya 23, Aya Expanse",
    hf_qk_norm: Some("use_qk_norm"),
    interleaved: true,
    layer_norms: true,
    hf_norm_eps: 1e-5,
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
        rope_theta: 500_000.0,
    },
    hf: read,
    write_hf: write,
    build,
    ..Family::PLAIN
};

fn read(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.logit_scale = logit_scale(text)?;
    Ok(())
}

/// The factor on logits.
pub(super) fn logit_scale(text: &ConfigObject<'_>) -> Result<f32, Error> {
    Ok(text.f32("logit_scale")?.unwrap_or(0.0625))
}

pub(super) fn write(config: &ModelConfig, out: &mut serde_json::Value) {
    out["layer_norm_eps"] = shortest(config.norm_eps);
    out["logit_scale"] = shortest(config.logit_scale);
}

/// Blocks whose halves run side by side.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block::parallel)
}
