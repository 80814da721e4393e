//! Muse Glimmer, text part: norms before and behind both halves of a block, a gate on the attention's output, a norm of
//! embeddings. Heads rotate only in layers with a window. Norms of heads and of embeddings have no weights.

use super::block::attention::Heads;
use super::block::{self, attention, feed_forward, gated_attention, norm};
use super::{Family, StoredForm, WeightConvention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::catalog::Catalog;
use crate::config::gguf::Keys;
use crate::config::hf::{
    ConfigObject, HfDefaults, HfWindows, shortest, unrotated_layers, write_unrotated_layers,
};
use crate::config::{Biases, ModelConfig};
use crate::names::{HfNorms, ParameterKind, TensorName, WeightRole};
use millrace_format::gguf::GgufValue;
use millrace_format::{Checkpoint, TensorType};
use millrace_graph::ValueId;
use millrace_quant::DType;
use serde_json::{Value, json};

/// Epsilon of norms behind halves of a block. GGUF files have no key for it.
const POST_NORM_EPS: f32 = 1e-8;
/// Values that the class takes where `config.json` has no key.
const QUERY_SCALE: f32 = 3.87;
const LOGIT_SCALE: f32 = 0.196_116_14;
const SOFTCAP: f32 = 20.0;
/// A key of this program: other readers have the factor only in the norm of queries.
const QUERY_SCALE_KEY: &str = "attention.query_scale";
/// Distance from global layer to global layer; the last layer is global.
const PERIOD: usize = 4;

pub(super) static FAMILY: Family = Family {
    name: "muse-glimmer",
    gguf_arch: "muse-glimmer",
    hf_model_types: &["muse_glimmer", "muse_glimmer_text"],
    hf_classes: &["MuseGlimmerForConditionalGeneration"],
    hf_prefix: "model.language_model.",
    hf_norms: HfNorms::PreAndPost,
    hf_names: &[(WeightRole::AttnGate, "self_attn.gate_proj")],
    models: "Muse Glimmer 30B (text)",
    permuted_in_gguf: true,
    unit_norms: true,
    stored: |_, (name, _)| StoredForm {
        is_whole_norm: name.role == WeightRole::OutputNorm,
        ..StoredForm::PLAIN
    },
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::NONE),
    hf_windows: HfWindows::Pattern {
        window: 2048,
        pattern: PERIOD,
    },
    hf_defaults: HfDefaults {
        vocab_size: 202_048,
        d_model: 6656,
        d_ff: 19_968,
        n_layers: 52,
        n_heads: 32,
        n_kv_heads: Some(2),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 10_000.0,
    },
    gguf_window_pattern: Some(PERIOD),
    gguf,
    tensors,
    values,
    hf,
    write_hf,
    write_gguf: |config, set| {
        set(QUERY_SCALE_KEY, GgufValue::F32(config.query_scale));
        // llama.cpp asks for the key.
        set("logit_scale", GgufValue::F32(config.logit_scale));
    },
    build,
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.unrotated_layers = config.global_layers();
    if let Some(scale) = keys.f32(QUERY_SCALE_KEY)? {
        config.query_scale = scale;
    }
    Ok(())
}

/// The factor on queries, which files of other programs store in every element of the norms of queries.
fn tensors(
    checkpoint: &Checkpoint,
    catalog: &Catalog<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    if catalog.layout() != WeightConvention::Gguf {
        return Ok(());
    }
    let mut scale = None;
    for layer in 0..config.n_layers {
        let name = TensorName::block(layer, WeightRole::AttnQNorm).gguf();
        // The graph's checks name a tensor that is missing or has another shape.
        let Some(tensor) = checkpoint.tensor(&name) else {
            return Ok(());
        };
        if tensor.info.tensor_type != TensorType::Weights(DType::F32) {
            return Ok(());
        }
        let (numbers, _) = tensor.bytes.as_chunks::<4>();
        for number in numbers {
            let number = f32::from_le_bytes(*number);
            if *scale.get_or_insert(number) != number {
                return Err(Error::Unsupported {
                    file: checkpoint.name().into(),
                    feature: format!("{name} with elements that differ"),
                    supported: "one factor on all queries".into(),
                });
            }
        }
    }
    config.query_scale = scale.unwrap_or(config.query_scale);
    Ok(())
}

/// Norms of heads, whose weights are the factor on queries, and ones.
fn values(
    config: &ModelConfig,
    (name, layout): (TensorName, WeightConvention),
) -> Option<Vec<f32>> {
    if layout != WeightConvention::Gguf {
        return None;
    }
    let value = match (name.role, name.part) {
        (WeightRole::AttnQNorm, ParameterKind::Weight) => config.query_scale,
        (WeightRole::AttnKNorm, ParameterKind::Weight) => 1.0,
        _ => return None,
    };
    Some(vec![value; config.head_dim])
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let eps = text.f32("post_norm_eps")?.unwrap_or(POST_NORM_EPS);
    if eps != POST_NORM_EPS {
        let feature = format!("`post_norm_eps` = {eps}");
        return Err(text.unsupported(feature, "1e-8, the only one that GGUF readers know"));
    }
    config.query_scale = text.f32("qk_scale_factor")?.unwrap_or(QUERY_SCALE);
    config.logit_scale = text.f32("output_multiplier")?.unwrap_or(LOGIT_SCALE);
    config.logit_softcap = config.logit_softcap.or(Some(SOFTCAP));
    if config.window.is_some() && text.get("layer_types").is_none() {
        // The class counts from the last layer.
        let last = config.n_layers.saturating_sub(1);
        let slides = |layer: usize| !(last - layer).is_multiple_of(PERIOD);
        config.layer_windowed = (0..config.n_layers).map(slides).collect();
    }
    let global = config.global_layers();
    match unrotated_layers(text, config.rope.theta)? {
        Some(unrotated) if unrotated != global => {
            let feature = format!("layers {unrotated:?} without RoPE beside windows in others");
            Err(text.unsupported(
                feature,
                "RoPE in the layers with a window, and in no others",
            ))
        }
        _ => {
            config.unrotated_layers = global;
            Ok(())
        }
    }
}

/// The text model is nested in that of images, as published.
fn write_hf(config: &ModelConfig, out: &mut Value) {
    out["model_type"] = json!("muse_glimmer_text");
    out["hidden_activation"] = out["hidden_act"].take();
    out["final_logit_softcapping"] = config.logit_softcap.map_or(Value::Null, shortest);
    out["qk_scale_factor"] = shortest(config.query_scale);
    out["output_multiplier"] = shortest(config.logit_scale);
    out["post_norm_eps"] = shortest(POST_NORM_EPS);
    write_unrotated_layers(config, out);
    let mut text = out.take();
    if let Some(map) = text.as_object_mut() {
        map.remove("hidden_act");
        map.remove("architectures");
    }
    *out = json!({
        "architectures": FAMILY.hf_classes,
        "model_type": FAMILY.hf_model_types[0],
        "tie_word_embeddings": config.tied_head,
        "text_config": text,
    });
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let x = b.embed()?;
    let d_model = b.config().d_model;
    let x = norm::bare(b, "embed_norm", d_model, x);
    block::decoder_from(b, block, x)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = norm_heads(b, heads)?;
    let out = gated_attention::attend_gated(b, layer, normed, heads)?;
    let out = post_norm(b, ("attn_post_norm", WeightRole::AttnPostNorm), out)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    let out = post_norm(b, ("ffn_post_norm", WeightRole::FfnPostNorm), out)?;
    Ok(b.residual("ffn_residual", x, out))
}

/// Norms of heads of queries and keys, and a factor on queries, which GGUF files have as weights of these norms.
fn norm_heads(b: &mut GraphBuilder<'_>, heads: Heads) -> Result<Heads, Error> {
    if b.is_gguf() {
        return attention::norm_heads(b, heads);
    }
    let (head_dim, query_scale) = (b.config().head_dim, b.config().query_scale);
    let q = norm::bare(b, "attn_q_norm", head_dim, heads.q);
    Ok(Heads {
        q: b.scale("attn_q_scale", query_scale, q),
        k: norm::bare(b, "attn_k_norm", head_dim, heads.k),
        ..heads
    })
}

/// A norm behind a half of a block.
fn post_norm(
    b: &mut GraphBuilder<'_>,
    (label, role): (&'static str, WeightRole),
    x: ValueId,
) -> Result<ValueId, Error> {
    let d_model = b.config().d_model;
    norm::rms_with(label, (role, d_model), POST_NORM_EPS, b, x)
}
