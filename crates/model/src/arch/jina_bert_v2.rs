//! Jina's embeddings of the second version: BERT's blocks with biases by distance in place of positions, and gated networks.

use super::Family;
use super::bert::add_token_type;
use super::block::{self, feed_forward, norm};
use super::bloom::{MAX_DISTANCE_BIAS, set_distance_biases};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, EncoderConfig, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, ValueId};
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "jina-bert-v2",
    gguf_arch: "jina-bert-v2",
    // BERT's type: the class decides between the two.
    hf_model_types: &["bert"],
    hf_classes: &["JinaBertModel", "JinaBertForMaskedLM"],
    hf_prefix: "",
    hf_layers: "encoder.layer",
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings.word_embeddings"),
        (WeightRole::TokenTypes, "embeddings.token_type_embeddings"),
        (WeightRole::EmbeddingNorm, "embeddings.LayerNorm"),
        (WeightRole::AttnQ, "attention.self.query"),
        (WeightRole::AttnK, "attention.self.key"),
        (WeightRole::AttnV, "attention.self.value"),
        (WeightRole::AttnOutput, "attention.output.dense"),
        (WeightRole::AttnOutNorm, "attention.output.LayerNorm"),
        (WeightRole::FfnGateUp, "mlp.gated_layers"),
        (WeightRole::FfnDown, "mlp.wo"),
        (WeightRole::LayerOutNorm, "mlp.layernorm"),
    ],
    activation: Activation::Gelu,
    models: "jina-embeddings-v2 (base, small; not code)",
    layer_norms: true,
    hf_norm_eps: 1e-12,
    hf_biases: Some(Biases {
        qkv: true,
        attn_output: true,
        // Only of the down projection.
        ffn: true,
    }),
    hf_defaults: HfDefaults {
        vocab_size: 30_528,
        d_model: 768,
        d_ff: 3072,
        n_layers: 12,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::FfnGateUp,
        WeightRole::EmbeddingNorm,
        WeightRole::AttnOutNorm,
        WeightRole::LayerOutNorm,
    ],
    gguf: |_, config| {
        set_distance_biases(config, MAX_DISTANCE_BIAS);
        Ok(())
    },
    hf,
    write_hf: |config, out| {
        let encoder = config.encoder.clone().unwrap_or_default();
        out["type_vocab_size"] = json!(encoder.n_token_types);
        out["layer_norm_eps"] = shortest(config.norm_eps);
        out["position_embedding_type"] = json!("alibi");
        out["feed_forward_type"] = match config.activation {
            Activation::Relu => json!("reglu"),
            _ => json!("geglu"),
        };
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: |b| {
        let x = b.embed()?;
        let x = add_token_type(b, x)?;
        let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
        block::sum_normed(b, |b, _, x| network(b, x), x)
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let kind = text.str("position_embedding_type")?.unwrap_or("absolute");
    if kind != "alibi" {
        let feature = format!("positions of the kind `{kind}` (`position_embedding_type`)");
        return Err(text.unsupported(feature, "alibi in this family"));
    }
    config.activation = match text.str("feed_forward_type")?.unwrap_or("original") {
        "geglu" => Activation::Gelu,
        "reglu" => Activation::Relu,
        other => {
            let feature = format!("networks of the kind `{other}` (`feed_forward_type`)");
            return Err(text.unsupported(feature, "geglu, reglu"));
        }
    };
    config.encoder = Some(EncoderConfig {
        n_token_types: text.usize("type_vocab_size")?.unwrap_or(2),
        ..EncoderConfig::default()
    });
    set_distance_biases(config, MAX_DISTANCE_BIAS);
    Ok(())
}

/// A gated network with a bias at its end. Older files of llama.cpp have gate and up projection apart.
fn network(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let (d_ff, d_model) = (b.config().d_ff, b.config().d_model);
    let out = match b.has_own(b.name_of(WeightRole::FfnGate)) {
        true => {
            let gate = b.linear("ffn_gate", WeightRole::FfnGate, (d_ff, false), x)?;
            let up = b.linear("ffn_up", WeightRole::FfnUp, (d_ff, false), x)?;
            feed_forward::glu(b, "ffn_glu", gate, up)
        }
        false => feed_forward::glu_in_one(b, false, x)?,
    };
    b.linear("ffn_down", WeightRole::FfnDown, (d_model, true), out)
}
