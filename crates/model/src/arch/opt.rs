//! OPT and Galactica: learned positions that count from the table's third row on, LayerNorms, a network without a gate.
//! llama.cpp has no name for them.

use super::Family;
use super::block::{self, attention};
use super::bloom::unsayable_heads;
use super::gpt2::set_positions;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::{ACTIVATION_KEY, Keys};
use crate::config::hf::{ConfigObject, HfDefaults, activation_name, activation_of};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::Activation;
use serde_json::{Value, json};

/// Rows of a folder's table of positions before the first one (transformers, `OPTLearnedPositionalEmbedding`).
const FIRST_POSITION: usize = 2;
/// Added under the root of the norms by the class; `config.json` has no key for it.
const EPS: f32 = 1e-5;

pub(super) static FAMILY: Family = Family {
    name: "opt",
    gguf_arch: "opt",
    hf_model_types: &["opt"],
    hf_classes: &["OPTForCausalLM"],
    models: "OPT 125M to 66B (not 350M); Galactica",
    hf_prefix: "model.decoder.",
    hf_names: &[
        (WeightRole::PositionEmbedding, "embed_positions"),
        (WeightRole::AttnNorm, "self_attn_layer_norm"),
        (WeightRole::AttnOutput, "self_attn.out_proj"),
        (WeightRole::FfnNorm, "final_layer_norm"),
        (WeightRole::FfnUp, "fc1"),
        (WeightRole::FfnDown, "fc2"),
        (WeightRole::OutputNorm, "final_layer_norm"),
    ],
    activation: Activation::Relu,
    gguf_own_keys: &[ACTIVATION_KEY],
    layer_norms: true,
    hf_norm_eps: EPS,
    hf_own_biases: true,
    hf_defaults: HfDefaults {
        vocab_size: 50_272,
        d_model: 768,
        d_ff: 3072,
        n_layers: 12,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf,
    hf,
    write_hf,
    hf_unsayable,
    write_gguf: |config, set| {
        if config.activation != FAMILY.activation {
            let name = activation_name(config.activation);
            set(ACTIVATION_KEY, GgufValue::Str(name.into()));
        }
    },
    build: |b| {
        let x = b.embed()?;
        let x = block::add_position_from(b, FIRST_POSITION, x)?;
        let block =
            |b: &mut GraphBuilder<'_>, layer, x| block::ungated(b, layer, attention::project, x);
        block::decoder_from(b, block, x)
    },
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.activation = keys.activation()?.unwrap_or(FAMILY.activation);
    set_positions(config);
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let usual = [
        ("do_layer_norm_before", true),
        ("layer_norm_elementwise_affine", true),
        ("_remove_final_layer_norm", false),
    ];
    for (key, usual) in usual {
        if let Some(found) = text.bool(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    let width = config.d_model;
    let embedded = text.usize("word_embed_proj_dim")?;
    if let Some(found) = embedded.filter(|found| *found != width) {
        let feature = format!("`word_embed_proj_dim` = {found}");
        return Err(text.unsupported(
            feature,
            &format!("embeddings as wide as the stream, {width}"),
        ));
    }
    config.d_ff = text.usize("ffn_dim")?.unwrap_or(FAMILY.hf_defaults.d_ff);
    let all = text.bool("enable_bias")?.unwrap_or(true);
    config.biases = if all { Biases::ALL } else { Biases::NONE };
    config.norm_eps = EPS;
    let activation = activation_of(text, "activation_function")?;
    config.activation = activation.unwrap_or(FAMILY.activation);
    set_positions(config);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    *out = json!({
        "architectures": FAMILY.hf_classes,
        "model_type": "opt",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "word_embed_proj_dim": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "ffn_dim": config.d_ff,
        "max_position_embeddings": config.context_length,
        "activation_function": activation_name(config.activation),
        "do_layer_norm_before": true,
        "enable_bias": config.biases.ffn,
        "layer_norm_elementwise_affine": true,
        "tie_word_embeddings": config.tied_head,
    });
}

/// The class has biases on all projections or on none, one epsilon, and heads as wide as the stream.
fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let biases = config.biases;
    if biases != Biases::ALL && biases != Biases::NONE {
        return Some(format!("{biases:?} in OPT"));
    }
    if config.norm_eps != EPS {
        return Some(format!("an epsilon of {} in OPT", config.norm_eps));
    }
    unsayable_heads(config, "OPT")
}
