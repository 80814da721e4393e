//! Maincoder: Llama with a norm on each head of queries and keys behind their rotation, of neighbouring elements.

use super::{Family, hunyuan};
use crate::config::Biases;

pub(super) static FAMILY: Family = Family {
    name: "maincoder",
    gguf_arch: "maincoder",
    hf_model_types: &["maincoder"],
    hf_classes: &["MaincoderForCausalLM"],
    models: "Maincoder 1B",
    interleaved: true,
    hf_biases: Some(Biases::NONE),
    build: hunyuan::build,
    ..Family::PLAIN
};
