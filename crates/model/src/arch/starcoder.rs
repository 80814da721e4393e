//! StarCoder of the first generation, SantaCoder: GPT-2's blocks, whose query heads share one head of keys and values.

use super::Family;
use super::block;
use super::gpt2::{self, hf_words, set_positions};
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "starcoder",
    gguf_arch: "starcoder",
    hf_model_types: &["gpt_bigcode"],
    hf_classes: &["GPTBigCodeForCausalLM"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: gpt2::NAMES,
    activation: Activation::GeluTanh,
    models: "StarCoder, StarCoderBase, SantaCoder",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        n_kv_heads: Some(1),
        ..gpt2::FAMILY.hf_defaults
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    gguf: |_, config| {
        set_positions(config);
        Ok(())
    },
    hf,
    write_hf,
    build: |b| {
        let x = b.embed()?;
        let x = block::add_position(b, x)?;
        block::decoder_from(b, |b, layer, x| gpt2::decoder_block(b, layer, x, false), x)
    },
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool("multi_query")? == Some(false) {
        let feature = "`multi_query` = false".into();
        return Err(text.unsupported(feature, "one head of keys and values for all queries"));
    }
    hf_words(text, config, &FAMILY.hf_defaults)?;
    config.n_kv_heads = 1;
    set_positions(config);
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    gpt2::write_words(config, &FAMILY, out);
    out["multi_query"] = json!(true);
}
