//! OLMo 2: norms behind both halves of a block and none before; a norm of all queries of a token together, and of all
//! keys.
//!
//! GGUF files of OLMo 3 call themselves `olmo2` and have a window.

use super::Family;
use super::block::{self, attention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::HfDefaults;
use crate::names::HfNorms;

pub(super) static FAMILY: Family = Family {
    name: "olmo2",
    gguf_arch: "olmo2",
    hf_model_types: &["olmo2"],
    hf_classes: &["Olmo2ForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    models: "OLMo 2",
    unscaled_local_rope: true,
    hf_norm_eps: 1e-5,
    hf_defaults: HfDefaults {
        vocab_size: 50_304,
        ..Family::PLAIN.hf_defaults
    },
    // OLMo 3 (llama.cpp, `olmo2.cpp`).
    gguf_window_pattern: Some(4),
    hf_family: |config| config.window.map(|_| "olmo3"),
    build,
    ..Family::PLAIN
};

/// Blocks with norms behind their halves, and of projections as a whole.
pub(super) fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        block::post_normed(b, layer, attention::norm_projections, x)
    })
}
