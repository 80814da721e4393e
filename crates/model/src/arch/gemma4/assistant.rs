//! Gemma 4's assistant (transformers, `Gemma4AssistantForCausalLM`): a few blocks of Gemma 4 that have queries alone and
//! attend to the keys and values of the model that they draft for. Their input is a projection of that model's embedding of
//! the last token beside its state there. Behind the last norm are the head and a projection to the state for the next draft.
//!
//! Some files have centroids, by which transformers computes a part of the head's rows. As in llama.cpp, nothing reads them:
//! the whole head gives the same logits there.

use super::{TEXT, config, feed_forward, scale_layer};
use crate::Error;
use crate::arch::block::{attention, norm};
use crate::arch::{Family, SetKey};
use crate::builder::GraphBuilder;
use crate::catalog::Catalog;
use crate::config::ModelConfig;
use crate::config::gguf::Keys;
use crate::config::hf::ConfigObject;
use crate::names::WeightRole;
use millrace_format::Checkpoint;
use millrace_format::gguf::GgufValue;
use millrace_graph::{TargetState, ValueId};
use serde_json::{Value, json};

/// Width of the target's stream in GGUF files and in folders.
const GGUF_TARGET_DIM: &str = "embedding_length_out";
const HF_TARGET_DIM: &str = "backbone_hidden_size";

pub(super) const FAMILY: Family = Family {
    name: "gemma4_assistant",
    gguf_arch: "gemma4-assistant",
    // The text object within has the last two.
    hf_model_types: &[
        "gemma4_assistant",
        "gemma4_unified_assistant",
        "gemma4_text",
        "gemma4_unified_text",
    ],
    hf_classes: &[
        "Gemma4AssistantForCausalLM",
        "Gemma4UnifiedAssistantForCausalLM",
    ],
    models: "Assistants of Gemma 4",
    hf: read_hf,
    gguf: read_gguf,
    tensors: read_target_dim,
    write_hf,
    write_gguf,
    build,
    ..TEXT
};

fn read_hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config::hf(text, config)?;
    let n_shared = config.layers.n_shared_kv;
    if ![0, config.n_layers].contains(&n_shared) {
        let feature = format!("`num_kv_shared_layers` = {n_shared} in an assistant");
        let known = format!("all {} layers", config.n_layers);
        return Err(text.unsupported(feature, &known));
    }
    let parts = [
        (
            "hidden_size_per_layer_input",
            config.layers.embedding_dim > 0,
        ),
        ("enable_moe_block", config.experts.is_some()),
    ];
    if let Some((key, _)) = parts.iter().find(|(_, has)| *has) {
        let feature = format!("`{key}` in an assistant");
        return Err(text.unsupported(feature, "assistants without it"));
    }
    settle(config);
    Ok(())
}

fn read_gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config::gguf(keys, config)?;
    config.layers.target_dim = keys.required(GGUF_TARGET_DIM)?;
    settle(config);
    Ok(())
}

/// All layers read keys and values of the target. Its head has no bound.
fn settle(config: &mut ModelConfig) {
    config.layers.n_shared_kv = 0;
    config.layers.image_sight = crate::config::ImageSight::default();
    config.logit_softcap = None;
}

/// Reads the width of the target's stream, which folders have beside the object of the text.
fn read_target_dim(
    checkpoint: &Checkpoint,
    _catalog: &Catalog<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    let file = checkpoint.name();
    if let Some(map) = checkpoint
        .hf()
        .and_then(|files| files.config.as_ref()?.as_object())
    {
        let object = ConfigObject { file, map };
        let missing = || Error::MissingKey {
            file: file.into(),
            key: HF_TARGET_DIM.into(),
        };
        config.layers.target_dim = object.usize(HF_TARGET_DIM)?.ok_or_else(missing)?;
    }
    let dim = config.layers.target_dim;
    match (1..=crate::config::MAX_WIDTH).contains(&dim) {
        true => Ok(()),
        false => Err(Error::BadValue {
            file: file.into(),
            key: match checkpoint.hf() {
                Some(_) => HF_TARGET_DIM.into(),
                None => format!("{}.{GGUF_TARGET_DIM}", FAMILY.gguf_arch),
            },
            found: dim.to_string(),
            expected: format!("between 1 and {}", crate::config::MAX_WIDTH),
        }),
    }
}

/// The object of the text within that of the assistant.
fn write_hf(config: &ModelConfig, out: &mut Value) {
    config::write_hf(config, out);
    let mut text = out.take();
    *out = json!({
        "architectures": text["architectures"],
        "model_type": text["model_type"],
        "tie_word_embeddings": text["tie_word_embeddings"],
        "use_ordered_embeddings": false,
    });
    out[HF_TARGET_DIM] = json!(config.layers.target_dim);
    if let Some(text) = text.as_object_mut() {
        text.remove("architectures");
    }
    text["model_type"] = json!("gemma4_text");
    text["num_kv_shared_layers"] = json!(config.n_layers);
    // The class refuses another number, though it reads none.
    text["vocab_size_per_layer_input"] = json!(0);
    out["text_config"] = text;
}

fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    config::write_gguf(config, set);
    let size = |size: usize| GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX));
    set("attention.shared_kv_layers", size(config.n_layers));
    set("nextn_predict_layers", size(config.n_layers));
    set(GGUF_TARGET_DIM, size(config.layers.target_dim));
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let (d_model, target_dim) = (b.config().d_model, b.config().layers.target_dim);
    let width = 2 * target_dim;
    let given = b.push("target_state", TargetState { width }.into(), vec![], width);
    let mut x = b.linear(
        "draft_proj",
        WeightRole::AssistantIn,
        (d_model, false),
        given,
    )?;
    for layer in b.layers() {
        b.enter_layer(layer);
        x = attend(b, layer, x)?;
        x = feed_forward(b, layer, x)?;
        x = scale_layer(b, x)?;
    }
    b.leave_layers();
    let normed = norm::stream(b, "output_norm", WeightRole::OutputNorm, x)?;
    let state = b.linear(
        "draft_state",
        WeightRole::AssistantOut,
        (target_dim, false),
        normed,
    )?;
    b.hidden(state);
    b.head_of(normed, None)
}

fn attend(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    // Files may have the weights of layers with keys of their own.
    use WeightRole::{AttnK, AttnKNorm, AttnV};
    for role in [AttnK, AttnV, AttnKNorm] {
        b.unread(role);
    }
    let q = attention::queries(b, layer, normed)?;
    let out = attention::attend_target(b, layer, q)?;
    let out = attention::project_back(b, out)?;
    let out = norm::stream(b, "attn_post_norm", WeightRole::AttnPostNorm, out)?;
    Ok(b.residual("attn_residual", x, out))
}
