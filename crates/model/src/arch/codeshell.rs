//! CodeShell: LayerNorms, a network without a gate, biases on all projections; queries, keys and values are one matrix, and
//! groups of query heads share keys.

use super::Family;
use super::gpt2::{self, hf_words, write_words};
use super::starcoder2;
use crate::Error;
use crate::config::hf::{ConfigObject, HfDefaults};
use crate::config::{Biases, ModelConfig};
use crate::names::WeightRole;
use millrace_graph::Activation;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "codeshell",
    gguf_arch: "codeshell",
    hf_model_types: &["codeshell"],
    hf_classes: &["CodeShellForCausalLM"],
    hf_layers: "h",
    hf_prefix: "transformer.",
    hf_names: gpt2::NAMES,
    activation: Activation::GeluTanh,
    models: "CodeShell 7B",
    layer_norms: true,
    hf_norm_eps: 1e-5,
    hf_biases: Some(Biases::ALL),
    hf_defaults: HfDefaults {
        vocab_size: 70_144,
        d_model: 4096,
        d_ff: 16_384,
        n_layers: 42,
        n_heads: 32,
        n_kv_heads: None,
        head_dim: None,
        context_length: 8192,
        tied_head: true,
        rope_theta: 10_000.0,
    },
    own_roles: &[
        WeightRole::AttnNorm,
        WeightRole::AttnQkv,
        WeightRole::FfnNorm,
        WeightRole::OutputNorm,
    ],
    hf,
    write_hf,
    build: starcoder2::plain_network,
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let kind = text.str("position_embedding_type")?.unwrap_or("rope");
    if kind != "rope" {
        let feature = format!("`position_embedding_type` = {kind} in CodeShell");
        return Err(text.unsupported(feature, "rope"));
    }
    hf_words(text, config, &FAMILY.hf_defaults)?;
    if text.bool("group_query_attention")?.unwrap_or(true) {
        config.n_kv_heads = text.usize("num_query_groups")?.unwrap_or(8);
    }
    Ok(())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let rope = out["rope_parameters"].take();
    write_words(config, &FAMILY, out);
    out["position_embedding_type"] = json!("rope");
    out["group_query_attention"] = json!(true);
    out["num_query_groups"] = json!(config.n_kv_heads);
    out["rope_parameters"] = rope;
}
