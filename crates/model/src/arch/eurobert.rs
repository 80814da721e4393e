//! EuroBERT: Llama whose tokens see each other both ways, without a head.

use super::{Family, block, llama};
use crate::config::encoder::write_classifier;
use crate::config::hf::HfDefaults;
use crate::config::{ClassifierConfig, EncoderConfig};
use millrace_format::gguf::GgufValue;

pub(super) static FAMILY: Family = Family {
    name: "eurobert",
    gguf_arch: "eurobert",
    hf_model_types: &["eurobert"],
    hf_classes: &[
        "EuroBertModel",
        "EuroBertForMaskedLM",
        "EuroBertForSequenceClassification",
    ],
    models: "EuroBERT",
    hf_mlp_bias: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 128_256,
        d_model: 768,
        d_ff: 3072,
        n_layers: 12,
        n_heads: 12,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        // A head in a file is another matrix, which nothing here reads.
        tied_head: true,
        rope_theta: 10_000.0,
    },
    gguf: |keys, config| {
        let encoder = config.encoder.get_or_insert_default();
        encoder.classifier = Some(ClassifierConfig::of_gguf(keys)?);
        Ok(())
    },
    hf: |text, config| {
        config.tied_head = true;
        config.encoder = Some(EncoderConfig {
            classifier: Some(ClassifierConfig::of_hf(text, "late")?),
            ..EncoderConfig::default()
        });
        Ok(())
    },
    write_hf: |config, out| write_classifier(config, "bos", out),
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: |b| block::encoder(b, llama::block),
    ..Family::PLAIN
};
