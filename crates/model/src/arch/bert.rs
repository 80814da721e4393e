//! BERT, RoBERTa, XLM-R: learned positions, attention both ways, a norm behind each half of a block.

use super::Family;
use super::block::{self, feed_forward, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, EncoderConfig, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::{Activation, TableRow, TokenTypes, ValueId, WeightSource};
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "bert",
    gguf_arch: "bert",
    hf_model_types: &["bert", "roberta", "xlm-roberta", "camembert"],
    hf_classes: &[
        "BertModel",
        "BertForMaskedLM",
        "BertForSequenceClassification",
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "XLMRobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
        "CamembertModel",
        "CamembertForMaskedLM",
        "CamembertForSequenceClassification",
    ],
    hf_prefix: "",
    hf_layers: "encoder.layer",
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings.word_embeddings"),
        (
            WeightRole::PositionEmbedding,
            "embeddings.position_embeddings",
        ),
        (WeightRole::TokenTypes, "embeddings.token_type_embeddings"),
        (WeightRole::EmbeddingNorm, "embeddings.LayerNorm"),
        (WeightRole::AttnQ, "attention.self.query"),
        (WeightRole::AttnK, "attention.self.key"),
        (WeightRole::AttnV, "attention.self.value"),
        (WeightRole::AttnOutput, "attention.output.dense"),
        (WeightRole::AttnOutNorm, "attention.output.LayerNorm"),
        (WeightRole::FfnUp, "intermediate.dense"),
        (WeightRole::FfnDown, "output.dense"),
        (WeightRole::LayerOutNorm, "output.LayerNorm"),
    ],
    activation: Activation::Gelu,
    models: "BERT, RoBERTa, XLM-R: MiniLM, BGE, E5, GTE (first), bge-m3, bge-reranker",
    layer_norms: true,
    hf_norm_eps: 1e-12,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 30_522,
        d_model: 768,
        d_ff: 3072,
        n_layers: 12,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 512,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::EmbeddingNorm,
        WeightRole::AttnOutNorm,
        WeightRole::LayerOutNorm,
    ],
    gguf,
    hf,
    write_hf,
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build,
    ..Family::PLAIN
};

/// Families whose positions begin after that of the padding token.
const OFFSET_TYPES: [&str; 3] = ["roberta", "xlm-roberta", "camembert"];

fn gguf(_: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let encoder = config.encoder.get_or_insert_default();
    encoder.learned_positions = true;
    config.unrotated_layers = (0..config.n_layers).collect();
    Ok(())
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("is_decoder")? == Some(true) {
        return Err(text.unsupported("`is_decoder` = true".into(), "encoders in this family"));
    }
    if let Some(kind) = text.str("position_embedding_type")?
        && kind != "absolute"
    {
        let feature = format!("positions of the kind `{kind}` (`position_embedding_type`)");
        return Err(text.unsupported(feature, "absolute"));
    }
    let model_type = text.str("model_type")?.unwrap_or_default();
    let first_position = match OFFSET_TYPES.contains(&model_type) {
        true => text.usize("pad_token_id")?.unwrap_or(1).saturating_add(1),
        false => 0,
    };
    config.context_length = config.context_length.saturating_sub(first_position);
    config.unrotated_layers = (0..config.n_layers).collect();
    config.encoder = Some(EncoderConfig {
        learned_positions: true,
        first_position,
        n_token_types: text.usize("type_vocab_size")?.unwrap_or(2),
        separator: None,
        ..EncoderConfig::default()
    });
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut serde_json::Value) {
    let encoder = config.encoder.clone().unwrap_or_default();
    let first = encoder.first_position;
    if first > 0 {
        out["architectures"] = json!(["XLMRobertaModel"]);
        out["model_type"] = json!("xlm-roberta");
        out["pad_token_id"] = json!(first - 1);
    }
    out["max_position_embeddings"] = json!(config.context_length + first);
    out["type_vocab_size"] = json!(encoder.n_token_types);
    out["layer_norm_eps"] = shortest(config.norm_eps);
    if let Some(map) = out.as_object_mut() {
        for key in ["rms_norm_eps", "rope_parameters", "num_key_value_heads"] {
            map.remove(key);
        }
    }
}

pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    let x = b.embed()?;
    let x = add_token_type(b, x)?;
    let x = block::add_position(b, x)?;
    let x = norm::stream(b, "embed_norm", WeightRole::EmbeddingNorm, x)?;
    block::sum_normed(b, |b, _, x| feed_forward::plain(b, x), x)
}

/// Adds the embedding of the token's text: that of the first text, as long as no separator is known.
pub(super) fn add_token_type(b: &mut GraphBuilder<'_>, x: ValueId) -> Result<ValueId, Error> {
    let n_types = b.config().encoder.as_ref().map_or(0, |e| e.n_token_types);
    if n_types == 0 {
        return Ok(x);
    }
    let d_model = b.config().d_model;
    let name = b.name_of(WeightRole::TokenTypes);
    let table = b.weight_from(name, name, &[n_types, d_model], WeightSource::Whole)?;
    let separator = b.config().encoder.as_ref().and_then(|e| e.separator);
    let op = match separator.filter(|_| n_types > 1) {
        Some(separator) => TokenTypes {
            table,
            separator,
            state: 0,
        }
        .into(),
        None => TableRow { table, step: 0 }.into(),
    };
    let row = b.push("token_type", op, vec![], d_model);
    Ok(b.add("token_type_add", x, row))
}
