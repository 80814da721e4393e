//! BioGPT: OPT's blocks behind embeddings with a factor. llama.cpp has no name for it.

use super::Family;
use super::block::{self, attention};
use super::bloom::unsayable_heads;
use super::gpt2::set_positions;
use super::opt;
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::ACTIVATION_KEY;
use crate::config::hf::{ConfigObject, HfDefaults, shortest};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::{Value, json};

/// Whether embeddings are multiplied by the root of their width.
const SCALES: &str = "scale_embedding";

pub(super) static FAMILY: Family = Family {
    name: "biogpt",
    gguf_arch: "biogpt",
    hf_model_types: &["biogpt"],
    hf_classes: &["BioGptForCausalLM"],
    models: "BioGPT, BioGPT Large",
    hf_prefix: "biogpt.",
    hf_names: &opt::names("layer_norm", "output_projection"),
    activation: Activation::Gelu,
    gguf_own_keys: &[ACTIVATION_KEY],
    scaled_embeddings: true,
    layer_norms: true,
    // A LayerNorm without an epsilon in the class's call has PyTorch's; the key of the file is not read.
    hf_norm_eps: opt::EPS,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 42_384,
        d_model: 1024,
        d_ff: 4096,
        n_layers: 24,
        n_heads: 16,
        n_kv_heads: None,
        head_dim: None,
        context_length: 1024,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf: |_, config| {
        set_positions(config);
        Ok(())
    },
    hf,
    write_hf,
    hf_unsayable,
    build: |b| {
        let x = b.embed()?;
        let x = block::add_position_from(b, opt::FIRST_POSITION, x)?;
        let block =
            |b: &mut GraphBuilder<'_>, layer, x| block::ungated(b, layer, attention::project, x);
        block::decoder_from(b, block, x)
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool(SCALES)? == Some(false) {
        config.embed_scale = 1.0;
    }
    config.norm_eps = opt::EPS;
    set_positions(config);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    out[SCALES] = json!(config.embed_scale != 1.0);
    out["layer_norm_eps"] = shortest(config.norm_eps);
    if let Some(map) = out.as_object_mut() {
        for key in [
            "rms_norm_eps",
            "num_key_value_heads",
            "head_dim",
            "rope_parameters",
        ] {
            map.remove(key);
        }
    }
}

/// The class has one epsilon, one factor on embeddings, and heads as wide as the stream.
fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    if config.norm_eps != opt::EPS {
        return Some(format!("an epsilon of {} in BioGPT", config.norm_eps));
    }
    opt::unsayable_scale(config, "BioGPT").or_else(|| unsayable_heads(config, "BioGPT"))
}
