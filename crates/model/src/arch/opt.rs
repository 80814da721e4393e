//! OPT and Galactica: learned positions that count from the table's third row on, LayerNorms, a network without a gate.
//! OPT 350M has norms behind both halves of a block, none at the end, and an embedding table narrower than the stream.
//! llama.cpp has no name for them.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use super::bloom::unsayable_heads;
use super::gpt2::set_positions;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::{ACTIVATION_KEY, Keys};
use crate::config::hf::{ConfigObject, HfDefaults, activation_name, activation_of};
use crate::config::{Biases, BlockForm, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_graph::{Activation, ValueId};
use serde_json::{Value, json};

/// Rows of a folder's table of positions before the first one (transformers, `OPTLearnedPositionalEmbedding`).
pub(super) const FIRST_POSITION: usize = 2;
/// Added under the root of the norms by the class; `config.json` has no key for it.
pub(super) const EPS: f32 = 1e-5;

/// Names of its folders and of its relatives', which differ in the last norm and in the head.
pub(super) const fn names(
    output_norm: &'static str,
    head: &'static str,
) -> [(WeightRole, &'static str); 12] {
    [
        (WeightRole::PositionEmbedding, "embed_positions"),
        (WeightRole::AttnNorm, "self_attn_layer_norm"),
        (WeightRole::AttnOutput, "self_attn.out_proj"),
        (WeightRole::FfnNorm, "final_layer_norm"),
        (WeightRole::FfnUp, "fc1"),
        (WeightRole::FfnDown, "fc2"),
        (WeightRole::OutputNorm, output_norm),
        (WeightRole::Output, head),
        (WeightRole::AttnOutNorm, "self_attn_layer_norm"),
        (WeightRole::LayerOutNorm, "final_layer_norm"),
        (WeightRole::EmbeddingProj, "project_in"),
        (WeightRole::OutputProj, "project_out"),
    ]
}

pub(super) static FAMILY: Family = Family {
    name: "opt",
    gguf_arch: "opt",
    hf_model_types: &["opt"],
    hf_classes: &["OPTForCausalLM"],
    models: "OPT 125M to 66B; Galactica",
    hf_prefix: "model.decoder.",
    hf_names: &names("final_layer_norm", "lm_head"),
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
        WeightRole::AttnOutNorm,
        WeightRole::LayerOutNorm,
    ],
    gguf,
    hf,
    write_hf,
    hf_unsayable,
    build,
    ..Family::PLAIN
};

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let config = b.config();
    let mut x = b.embed()?;
    if config.layers.table_dim.is_some() {
        let size = (config.d_model, false);
        x = b.linear("embed_proj", WeightRole::EmbeddingProj, size, x)?;
    }
    let x = block::add_position_from(b, FIRST_POSITION, x)?;
    let mut x = block::blocks(b, block_of_form, x)?;
    if config.layers.form != BlockForm::PostNorms {
        x = norm::stream(b, "output_norm", WeightRole::OutputNorm, x)?;
    }
    if let Some(width) = config.layers.table_dim {
        x = b.head_rows(x);
        x = b.linear("output_proj", WeightRole::OutputProj, (width, false), x)?;
    }
    b.head_of(x, None)
}

fn block_of_form(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    if b.config().layers.form != BlockForm::PostNorms {
        return block::ungated(b, layer, attention::project, x);
    }
    let heads = attention::project(b, x)?;
    let out = attention::attend(b, layer, heads)?;
    let sum = b.residual("attn_residual", x, out);
    let x = norm::stream(b, "attn_out_norm", WeightRole::AttnOutNorm, sum)?;
    let out = feed_forward::plain(b, x)?;
    let sum = b.residual("ffn_residual", x, out);
    norm::stream(b, "layer_out_norm", WeightRole::LayerOutNorm, sum)
}

/// Folders of some of its relatives say whether embeddings have the root of their width as a factor, and nothing else.
pub(super) fn unsayable_scale(config: &ModelConfig, model: &str) -> Option<String> {
    let usual = super::by_name(config.family).embed_scale(config.d_model);
    let scale = config.embed_scale;
    (![1.0, usual].contains(&scale))
        .then(|| format!("a factor of {scale} on embeddings in {model}"))
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if keys.has(TensorName::block(0, WeightRole::AttnOutNorm)) {
        config.layers.form = BlockForm::PostNorms;
    }
    let table = TensorName::global(WeightRole::TokenEmbedding);
    if let Some(&[_, width]) = keys.shape(table) {
        config.layers.table_dim = Some(width).filter(|width| *width != config.d_model);
    }
    set_positions(config);
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let usual = [
        ("layer_norm_elementwise_affine", true),
        ("_remove_final_layer_norm", false),
    ];
    for (key, usual) in usual {
        if let Some(found) = text.bool(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    if text.bool("do_layer_norm_before")? == Some(false) {
        config.layers.form = BlockForm::PostNorms;
    }
    let width = text.usize("word_embed_proj_dim")?;
    config.layers.table_dim = width.filter(|width| *width != config.d_model);
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
        "word_embed_proj_dim": config.layers.table_dim.unwrap_or(config.d_model),
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "ffn_dim": config.d_ff,
        "max_position_embeddings": config.context_length,
        "activation_function": activation_name(config.activation),
        "do_layer_norm_before": config.layers.form != BlockForm::PostNorms,
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
