//! Llama Embed: Llama whose tokens see each other both ways, without a head.

use super::{Family, block, llama};
use crate::config::hf::HfDefaults;
use crate::config::{EncoderConfig, EncoderPooling};
use millrace_format::gguf::GgufValue;
use serde_json::json;

const POOLING: &str = "pooling";
/// Words of that key.
const POOLINGS: [(&str, EncoderPooling); 3] = [
    ("avg", EncoderPooling::Mean),
    ("cls", EncoderPooling::First),
    ("last", EncoderPooling::Last),
];

pub(super) static FAMILY: Family = Family {
    name: "llama-embed",
    gguf_arch: "llama-embed",
    hf_model_types: &["llama_bidirec"],
    hf_classes: &["LlamaBidirectionalModel"],
    hf_prefix: "",
    models: "llama-embed-nemotron, llama-nemotron-embed",
    permuted_in_gguf: true,
    hf_mlp_bias: true,
    hf_defaults: HfDefaults {
        // A head in a file is another matrix, which nothing here reads.
        tied_head: true,
        ..Family::PLAIN.hf_defaults
    },
    hf: |text, config| {
        config.tied_head = true;
        let pooling = match text.str(POOLING)? {
            None => None,
            Some(name) => match POOLINGS.iter().find(|(word, _)| *word == name) {
                Some((_, pooling)) => Some(*pooling),
                None => {
                    let feature = format!("pooling `{name}` (`{POOLING}`)");
                    return Err(text.unsupported(feature, "avg, cls, last"));
                }
            },
        };
        config.encoder = Some(EncoderConfig {
            pooling,
            ..EncoderConfig::default()
        });
        Ok(())
    },
    write_hf: |config, out| {
        let pooling = config.encoder.as_ref().and_then(|encoder| encoder.pooling);
        if let Some((word, _)) = POOLINGS.iter().find(|(_, known)| Some(*known) == pooling) {
            out[POOLING] = json!(word);
        }
    },
    write_gguf: |_, set| set("attention.causal", GgufValue::Bool(false)),
    build: |b| block::encoder(b, llama::block),
    ..Family::PLAIN
};
