//! EXAONE 4: norms behind both halves of a block and none before, norms of heads. In models with a window, layers
//! without it do not rotate.

use super::Family;
use super::block::{self, attention};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::hf::{HfDefaults, HfWindows};
use crate::config::{Biases, ModelConfig};
use crate::names::HfNorms;

pub(super) static FAMILY: Family = Family {
    name: "exaone4",
    gguf_arch: "exaone4",
    hf_model_types: &["exaone4"],
    hf_classes: &["Exaone4ForCausalLM"],
    hf_norms: HfNorms::PreAndPost,
    models: "EXAONE 4",
    hf_biases: Some(Biases::NONE),
    hf_norm_eps: 1e-5,
    hf_windows: HfWindows::Pattern {
        window: 4096,
        pattern: 4,
    },
    hf_defaults: HfDefaults {
        vocab_size: 102_400,
        d_ff: 16_384,
        ..Family::PLAIN.hf_defaults
    },
    gguf_window_pattern: Some(4),
    gguf: |_, config| {
        leave_global_unrotated(config);
        Ok(())
    },
    hf: |_, config| {
        leave_global_unrotated(config);
        Ok(())
    },
    build,
    ..Family::PLAIN
};

/// Layers without a window do not rotate, where others have one.
pub(super) fn leave_global_unrotated(config: &mut ModelConfig) {
    if config.window.is_some() {
        config.unrotated_layers = config.global_layers();
    }
}

/// Blocks with norms behind their halves, and of each head.
fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, |b, layer, x| {
        block::post_normed(b, layer, attention::norm_heads, x)
    })
}
