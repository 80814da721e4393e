//! EmbeddingGemma: Gemma 3 whose tokens see each other both ways, without a head.

use super::{Family, block, gemma2, gemma3};
use millrace_format::gguf::GgufValue;
use serde_json::json;

pub(super) static FAMILY: Family = Family {
    name: "gemma-embedding",
    gguf_arch: "gemma-embedding",
    // The types of Gemma 3: a key of the configuration distinguishes this family.
    hf_model_types: &["gemma3_text"],
    hf_classes: &["Gemma3TextModel"],
    models: "EmbeddingGemma",
    golden: None,
    // The head size decides, for any number of layers.
    gguf_attention_scale: Family::PLAIN.gguf_attention_scale,
    write_hf: |config, out| {
        gemma2::write_scale(config, out);
        out["use_bidirectional_attention"] = json!(true);
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: |b| block::encoder(b, gemma3::block),
    ..gemma3::FAMILY
};
