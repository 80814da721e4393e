//! Jina's embeddings of the third version, without the adapters of its tasks: BERT's blocks, whose heads rotate.

use super::bert::add_token_type;
use super::block::{feed_forward, norm};
use super::{Family, block};
use crate::config::Biases;
use crate::config::EncoderConfig;
use crate::config::hf::{HfDefaults, shortest};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::Activation;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "jina-bert-v3",
    gguf_arch: "jina-bert-v3",
    hf_model_types: &["jina_embeddings_v3"],
    hf_classes: &["JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM"],
    hf_prefix: "",
    hf_layers: "encoder.layers",
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings.word_embeddings"),
        (WeightRole::TokenTypes, "embeddings.token_type_embeddings"),
        (WeightRole::EmbeddingNorm, "emb_ln"),
        (WeightRole::AttnQkv, "mixer.Wqkv"),
        (WeightRole::AttnOutput, "mixer.out_proj"),
        (WeightRole::AttnOutNorm, "norm1"),
        (WeightRole::FfnUp, "mlp.fc1"),
        (WeightRole::FfnDown, "mlp.fc2"),
        (WeightRole::LayerOutNorm, "norm2"),
    ],
    activation: Activation::Gelu,
    models: "jina-embeddings-v3, without the adapters of its tasks",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 250_002,
        d_model: 1024,
        d_ff: 4096,
        n_layers: 24,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8194,
        tied_head: true,
        rope_theta: 20_000.0,
    },
    own_roles: &[
        WeightRole::AttnQkv,
        WeightRole::EmbeddingNorm,
        WeightRole::AttnOutNorm,
        WeightRole::LayerOutNorm,
    ],
    hf: |text, config| {
        config.encoder = Some(EncoderConfig {
            n_token_types: text.usize("type_vocab_size")?.unwrap_or(1),
            ..EncoderConfig::default()
        });
        Ok(())
    },
    write_hf: |config, out| {
        let encoder = config.encoder.clone().unwrap_or_default();
        out["type_vocab_size"] = json!(encoder.n_token_types);
        out["layer_norm_eps"] = shortest(config.norm_eps);
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: |b| {
        let x = b.embed()?;
        let x = add_token_type(b, x)?;
        let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
        block::sum_normed(b, |b, _, x| feed_forward::plain(b, x), x)
    },
    ..Family::PLAIN
};
