//! ModernBERT: rotated heads, windows to both sides in two layers of three with a different base. Networks are
//! gated, and a norm is before each half of a block but the first.

use super::Family;
use super::block::{self, attention, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::encoder::write_classifier;
use crate::config::gguf::{ACTIVATION_KEY, Keys};
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows, activation_name, shortest};
use crate::config::{ClassifierConfig, EncoderConfig, ModelConfig, RopeConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ValueId};

pub(super) static FAMILY: Family = Family {
    name: "modern-bert",
    gguf_arch: "modern-bert",
    hf_model_types: &["modernbert"],
    hf_classes: &[
        "ModernBertModel",
        "ModernBertForMaskedLM",
        "ModernBertForSequenceClassification",
    ],
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings.tok_embeddings"),
        (WeightRole::EmbeddingNorm, "embeddings.norm"),
        (WeightRole::AttnNorm, "attn_norm"),
        (WeightRole::AttnQkv, "attn.Wqkv"),
        (WeightRole::AttnOutput, "attn.Wo"),
        (WeightRole::FfnNorm, "mlp_norm"),
        (WeightRole::FfnGateUp, "mlp.Wi"),
        (WeightRole::FfnDown, "mlp.Wo"),
        (WeightRole::OutputNorm, "final_norm"),
    ],
    activation: Activation::Gelu,
    models: "ModernBERT: gte-modernbert, gte-reranker-modernbert, granite-embedding R2, nomic modernbert-embed",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_mlp_bias: true,
    local_rope_theta: Some(10_000.0),
    hf_windows: HfWindows::Local {
        window: 128,
        every: 3,
    },
    hf_defaults: HfDefaults {
        vocab_size: 50_368,
        d_model: 768,
        d_ff: 1152,
        n_layers: 22,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        tied_head: true,
        rope_theta: 160_000.0,
    },
    gguf_window_pattern: Some(3),
    first_layer_is_global: true,
    gguf_own_keys: &[ACTIVATION_KEY],
    own_roles: &[WeightRole::AttnQkv, WeightRole::FfnGateUp],
    gguf,
    hf,
    write_hf,
    write_gguf: |config, set| {
        set("attention.causal", GgufValue::Bool(false));
        set(
            ACTIVATION_KEY,
            GgufValue::Str(activation_name(config.activation).into()),
        );
    },
    build: |b| {
        let x = b.embed()?;
        let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
        block::encoder_from(b, block, x)
    },
    ..Family::PLAIN
};

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.encoder.get_or_insert_default().classifier = Some(ClassifierConfig::of_gguf(keys)?);
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("norm_bias")? == Some(true) {
        return Err(text.unsupported("`norm_bias` = true".into(), "norms without biases"));
    }
    if text.object("rope_scaling")?.is_some() {
        let feature = "`rope_scaling` beside two bases".into();
        return Err(text.unsupported(feature, "`rope_parameters` by type of layer"));
    }
    config.norm_eps = text.f32("norm_eps")?.unwrap_or(config.norm_eps);
    // Before transformers 5 the bases had separate names.
    let bases = [
        (Some(&mut config.rope), "global_rope_theta"),
        (config.rope_local.as_mut(), "local_rope_theta"),
    ];
    if text.object("rope_parameters")?.is_none() {
        for (rope, key) in bases {
            if let (Some(rope), Some(theta)) = (rope, text.f32(key)?) {
                *rope = RopeConfig::plain(theta);
            }
        }
    }
    config.encoder = Some(EncoderConfig {
        classifier: Some(ClassifierConfig::of_hf(text, "cls")?),
        ..EncoderConfig::default()
    });
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut serde_json::Value) {
    out["hidden_activation"] = out["hidden_act"].take();
    out["norm_eps"] = shortest(config.norm_eps);
    write_classifier(config, "cls", out);
    if let Some(map) = out.as_object_mut() {
        for key in [
            "hidden_act",
            "rms_norm_eps",
            "num_key_value_heads",
            "head_dim",
        ] {
            map.remove(key);
        }
    }
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    // The embeddings have their norm.
    let normed = match layer {
        0 => x,
        _ => norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?,
    };
    let heads = attention::project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::gated_in_one(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
