//! Nomic's BERT: rotated heads in place of learned positions, a gated network, no biases.

use super::bert::add_token_type;
use super::block::feed_forward::{self, Inner};
use super::block::{self, norm};
use super::{ExpertDefaults, Family};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, EncoderConfig, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, Gating};
use serde_json::json;

pub(super) const FAMILY: Family = Family {
    name: "nomic-bert",
    gguf_arch: "nomic-bert",
    hf_model_types: &["nomic_bert"],
    hf_classes: &[
        "NomicBertModel",
        "NomicBertForMaskedLM",
        "NomicBertForSequenceClassification",
    ],
    hf_prefix: "",
    hf_layers: "encoder.layers",
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings.word_embeddings"),
        (WeightRole::TokenTypes, "embeddings.token_type_embeddings"),
        (WeightRole::EmbeddingNorm, "emb_ln"),
        (WeightRole::AttnQkv, "attn.Wqkv"),
        (WeightRole::AttnOutput, "attn.out_proj"),
        (WeightRole::AttnOutNorm, "norm1"),
        (WeightRole::FfnUp, "mlp.fc11"),
        (WeightRole::FfnGate, "mlp.fc12"),
        (WeightRole::FfnDown, "mlp.fc2"),
        (WeightRole::LayerOutNorm, "norm2"),
    ],
    models: "nomic-embed-text 1.5",
    layer_norms: true,
    hf_norm_eps: 1e-12,
    hf_biases: Some(Biases::NONE),
    hf_defaults: HfDefaults {
        vocab_size: 30_528,
        d_model: 768,
        d_ff: 3072,
        n_layers: 12,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: true,
        rope_theta: 1000.0,
    },
    own_roles: &[
        WeightRole::AttnQkv,
        WeightRole::EmbeddingNorm,
        WeightRole::AttnOutNorm,
        WeightRole::LayerOutNorm,
    ],
    hf,
    write_hf: |config, out| {
        let encoder = config.encoder.clone().unwrap_or_default();
        out["type_vocab_size"] = json!(encoder.n_token_types);
        out["layer_norm_eps"] = shortest(config.norm_eps);
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build,
    ..Family::PLAIN
};

/// With experts in some layers, biases, and networks without gates.
pub(super) static WITH_EXPERTS: Family = Family {
    name: "nomic-bert-moe",
    gguf_arch: "nomic-bert-moe",
    hf_model_types: &[],
    hf_classes: &[],
    models: "nomic-embed-text 2 (from GGUF files)",
    activation: Activation::Gelu,
    experts: ExpertDefaults {
        gating: Gating::Softmax,
        normalized: None,
        group_best: 2,
    },
    hf_biases: None,
    build: |b| {
        let x = b.embed()?;
        let x = add_token_type(b, x)?;
        let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
        let network = |b: &mut GraphBuilder<'_>, layer, x| {
            feed_forward::network_of(b, Inner::Plain, layer, x)
        };
        block::sum_normed(b, network, x)
    },
    ..FAMILY
};

/// Keys of the files that were published before transformers had the class, with their required values.
const FLAGS: [(&str, bool); 6] = [
    ("prenorm", false),
    ("qkv_proj_bias", false),
    ("mlp_fc1_bias", false),
    ("mlp_fc2_bias", false),
    ("causal", false),
    ("rotary_emb_interleaved", false),
];

/// Those files have the keys of GPT-2.
fn hf_older(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    for (key, expected) in FLAGS {
        if text.bool(key)?.is_some_and(|found| found != expected) {
            let feature = format!("`{key}` = {} in nomic-bert", !expected);
            return Err(text.unsupported(feature, "nomic-embed-text 1 and 1.5"));
        }
    }
    if let Some(name) = text.str("activation_function")?
        && name != "swiglu"
    {
        let feature = format!("activation `{name}` (`activation_function`)");
        return Err(text.unsupported(feature, "swiglu"));
    }
    if let Some(every) = text.usize("moe_every_n_layers")?.filter(|n| *n > 0) {
        let feature = format!("experts in every layer of {every} (`moe_every_n_layers`)");
        return Err(text.unsupported(feature, "dense models of this family"));
    }
    let size = |key: &str, usual: usize| Ok::<_, Error>(text.usize(key)?.unwrap_or(usual));
    config.d_model = size("n_embd", config.d_model)?;
    config.n_heads = size("n_head", config.n_heads)?;
    config.n_kv_heads = config.n_heads;
    if text.get("head_dim").is_none() {
        // `validate` refuses zero heads after this.
        config.head_dim = config.d_model / config.n_heads.max(1);
        config.n_rot = config.head_dim;
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
    }
    config.d_ff = size("n_inner", config.d_ff)?;
    config.context_length = size("n_positions", config.context_length)?;
    config.n_layers = size("n_layer", config.n_layers)?;
    if config.n_layers <= MAX_LAYERS {
        config.layer_windowed = vec![false; config.n_layers];
    }
    if let Some(share) = text.f64("rotary_emb_fraction")? {
        config.n_rot = (config.head_dim as f64 * share) as usize;
    }
    config.rope.theta = text.f32("rotary_emb_base")?.unwrap_or(config.rope.theta);
    config.norm_eps = text.f32("layer_norm_epsilon")?.unwrap_or(config.norm_eps);
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    hf_older(text, config)?;
    config.encoder = Some(EncoderConfig {
        n_token_types: text.usize("type_vocab_size")?.unwrap_or(2),
        ..EncoderConfig::default()
    });
    Ok(())
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let x = b.embed()?;
    let x = add_token_type(b, x)?;
    let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
    block::sum_normed(b, |b, _, x| feed_forward::gated(b, x), x)
}
