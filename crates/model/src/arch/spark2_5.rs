//! Spark 2.5: windows in some layers, which rotate otherwise, a gate by sigmoid on each head of the attention's output, and
//! gated networks with GELU.

use super::Family;
use super::block::{self, attention, feed_forward, gated_attention, kinds, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfWindows};
use crate::config::{HeadGates, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::{Activation, GateFunction, ValueId};
use serde_json::{Value, json};

/// Keys for the kind of gates, with the values of every published model.
const GATES: &str = "headwise_attn_output_gate";
const GATE_FUNCTION: &str = "gate_attn_act_mode";

pub(super) static FAMILY: Family = Family {
    name: "spark2_5",
    gguf_arch: "spark2_5",
    hf_model_types: &["spark2_5"],
    hf_classes: &["Spark2_5ForCausalLM"],
    models: "Spark X2.5 1.7B",
    activation: Activation::Gelu,
    hf_rotates_part: true,
    local_rope_theta: Some(10_000.0),
    sizes_by_layer: true,
    own_roles: &[WeightRole::AttnQkv],
    hf_names: &[
        (WeightRole::AttnQkv, "self_attn.q_k_v_proj"),
        (WeightRole::AttnGate, "self_attn.g_proj"),
    ],
    hf_biases: Some(crate::config::Biases::NONE),
    hf_windows: HfWindows::Pattern {
        window: 128,
        pattern: 4,
    },
    gguf_window_pattern: Some(4),
    hf_defaults: HfDefaults {
        tied_head: true,
        ..Family::PLAIN.hf_defaults
    },
    hf,
    write_hf,
    hf_unsayable: |config| {
        let differ = kinds::sliding(config).n_kv_heads != config.n_kv_heads;
        let differ = differ || !config.layers.n_heads.is_empty();
        differ.then(|| "heads that differ by layer in spark2_5".into())
    },
    gguf: |keys: &Keys<'_>, config| {
        config.layers.head_gates = HeadGates::Heads;
        kinds::gguf(keys, config)
    },
    write_gguf: |config, set| {
        kinds::write_gguf(config, set);
        // llama.cpp refuses a file without the list.
        let layers = GgufArray::Bool(config.layer_windowed.clone());
        set("attention.sliding_window_pattern", GgufValue::Array(layers));
    },
    build: |b| block::decoder(b, block),
    ..Family::PLAIN
};

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if text.bool(GATES)? != Some(true) {
        let feature = format!("`{GATES}` other than true");
        return Err(text.unsupported(feature, "a gate for each head"));
    }
    let function = text.str(GATE_FUNCTION)?.unwrap_or("absent");
    if function != "sigmoid" {
        let feature = format!("`{GATE_FUNCTION}` = {function}");
        return Err(text.unsupported(feature, "sigmoid"));
    }
    for key in ["attention_bias", "mlp_bias"] {
        if text.bool(key)? == Some(true) {
            return Err(text.unsupported(format!("`{key}` = true"), "models without biases"));
        }
    }
    config.layers.head_gates = HeadGates::Heads;
    kinds::hf(text, config, config.n_kv_heads)
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    kinds::write_hf(config, out);
    out[GATES] = json!(true);
    out[GATE_FUNCTION] = json!("sigmoid");
    out["attention_bias"] = json!(false);
    out["mlp_bias"] = json!(false);
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let out = gated_attention::attend_scaled(b, layer, GateFunction::Sigmoid, (normed, heads))?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::gated(b, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
