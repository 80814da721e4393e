//! DistilBERT: BERT's blocks, without kinds of text. Its GGUF files call themselves `bert`, so this row is for Hugging Face
//! files.

use super::bloom::{check_heads, set_sizes, unsayable_heads};
use super::{Family, bert};
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults, activation_name, activation_of};
use crate::config::{Biases, EncoderConfig, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::GgufValue;
use millrace_graph::Activation;
use serde_json::{Value, json};

/// Added under the root of the norms by the class; `config.json` has no key for it.
const EPS: f32 = 1e-12;

pub(super) static FAMILY: Family = Family {
    name: "distilbert",
    gguf_arch: "bert",
    hf_model_types: &["distilbert"],
    hf_classes: &["DistilBertModel", "DistilBertForMaskedLM"],
    hf_prefix: "",
    hf_layers: "transformer.layer",
    hf_names: &[
        (WeightRole::TokenEmbedding, "embeddings.word_embeddings"),
        (
            WeightRole::PositionEmbedding,
            "embeddings.position_embeddings",
        ),
        (WeightRole::EmbeddingNorm, "embeddings.LayerNorm"),
        (WeightRole::AttnQ, "attention.q_lin"),
        (WeightRole::AttnK, "attention.k_lin"),
        (WeightRole::AttnV, "attention.v_lin"),
        (WeightRole::AttnOutput, "attention.out_lin"),
        (WeightRole::AttnOutNorm, "sa_layer_norm"),
        (WeightRole::FfnUp, "ffn.lin1"),
        (WeightRole::FfnDown, "ffn.lin2"),
        (WeightRole::LayerOutNorm, "output_layer_norm"),
    ],
    activation: Activation::Gelu,
    models: "DistilBERT: msmarco-distilbert, multi-qa-distilbert, distiluse",
    layer_norms: true,
    hf_norm_eps: EPS,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 30_522,
        d_model: 768,
        d_ff: 3072,
        n_layers: 6,
        // The class has a key of its own, which the hook reads.
        n_heads: 1,
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
    hf,
    write_hf,
    hf_unsayable: |config| {
        if config.norm_eps != EPS {
            return Some(format!("an epsilon of {} in DistilBERT", config.norm_eps));
        }
        unsayable_heads(config, "DistilBERT")
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: bert::build,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let defaults = &FAMILY.hf_defaults;
    // The class also takes the usual names.
    let first = |keys: [&str; 2], usual: usize| {
        let [own, other] = keys.map(|key| text.usize(key));
        Ok::<usize, Error>(own?.or(other?).unwrap_or(usual))
    };
    config.d_model = first(["dim", "hidden_size"], defaults.d_model)?;
    let n_layers = first(["n_layers", "num_hidden_layers"], defaults.n_layers)?;
    let n_heads = first(["n_heads", "num_attention_heads"], 12)?;
    set_sizes(config, n_layers, n_heads);
    check_heads(text, "n_heads", config)?;
    config.n_rot = config.head_dim;
    config.d_ff = text.usize("hidden_dim")?.unwrap_or(defaults.d_ff);
    config.norm_eps = EPS;
    let activation = activation_of(text, "activation")?;
    config.activation = activation.unwrap_or(FAMILY.activation);
    // `validate` refuses more layers after this.
    config.unrotated_layers = (0..n_layers.min(MAX_LAYERS)).collect();
    config.encoder = Some(EncoderConfig {
        learned_positions: true,
        ..EncoderConfig::default()
    });
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    *out = json!({
        "architectures": [FAMILY.hf_classes[0]],
        "model_type": "distilbert",
        "vocab_size": config.vocab_size,
        "dim": config.d_model,
        "hidden_dim": config.d_ff,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "max_position_embeddings": config.context_length,
        "activation": activation_name(config.activation),
        "sinusoidal_pos_embds": false,
    });
}
