//! Laguna: query heads that differ by layer, norms of heads, a gate by softplus on each head of the attention's output or on each
//! of its elements, experts by sigmoid with a bias for the choice beside a shared one.

use super::Family;
use super::block::{self, attention, feed_forward, gated_attention, kinds, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{
    ConfigObject, FULL, HfDefaults, HfExperts, HfObject, HfShared, HfWindows, SLIDING, Spelling,
    words_of,
};
use crate::config::{HeadGates, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_graph::{GateFunction, Gating, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "laguna",
    gguf_arch: "laguna",
    hf_model_types: &["laguna"],
    hf_classes: &["LagunaForCausalLM"],
    models: "Laguna XS, S, M",
    hf_rotates_part: true,
    local_rope_theta: Some(10_000.0),
    sizes_by_layer: true,
    hf_names: &[
        (WeightRole::AttnGate, "self_attn.g_proj"),
        (
            WeightRole::RouterBias,
            "mlp.experts.e_score_correction_bias!",
        ),
    ],
    hf_windows: HfWindows::Pattern {
        window: 512,
        pattern: 1,
    },
    gguf_window_pattern: Some(4),
    first_layer_is_global: true,
    hf_experts: Some(HfExperts {
        n_experts: ("num_experts", 256),
        d_ff: ("moe_intermediate_size", 512),
        scale: Some(("moe_routed_scaling_factor", 1.0)),
        softcap: Some("moe_router_logit_softcapping"),
        choice_bias: true,
        shared: HfShared::Width("shared_expert_intermediate_size", 512),
        layer_kinds: Some(KINDS),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(0.0),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 100_352,
        d_model: 2048,
        d_ff: 8192,
        n_layers: N_LAYERS,
        n_heads: 48,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    hf_spelling: spelling,
    hf,
    write_hf,
    hf_unsayable: |config| {
        let differ = kinds::sliding(config).n_kv_heads != config.n_kv_heads;
        differ.then(|| "key heads that differ by layer in laguna".into())
    },
    gguf,
    write_gguf: kinds::write_gguf,
    build,
    ..Family::PLAIN
};

const N_LAYERS: usize = 40;
const KINDS: &str = "mlp_layer_types";
const HEADS: &str = "num_attention_heads_per_layer";

/// Values that the class computes where a file leaves them out.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    let n_layers = spelling.n_layers("num_hidden_layers", N_LAYERS)?;
    spelling.default("layer_types", || {
        words_of(n_layers, [FULL, SLIDING], |_| true)
    });
    spelling.default(KINDS, || {
        words_of(n_layers, ["dense", "sparse"], |layer| layer == 0)
    });
    // Models without windows may say so by 0.
    if text.usize("sliding_window")? == Some(0) {
        spelling.set("sliding_window", Value::Null);
    }
    spelling.default("rope_parameters", || {
        let rope = |theta: f64, share: f64| {
            json!({
                "rope_type": "default",
                "rope_theta": theta,
                "partial_rotary_factor": share,
            })
        };
        json!({ FULL: rope(500_000.0, 0.5), SLIDING: rope(10_000.0, 1.0) })
    });
    spelling.done()
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases.ffn = false;
    if text.bool("moe_apply_router_weight_on_input")? == Some(true) {
        let feature = "`moe_apply_router_weight_on_input` = true".into();
        return Err(text.unsupported(feature, "false"));
    }
    config.layers.head_gates = gates(text)?;
    if let Some(heads) = text.usizes(HEADS)? {
        kinds::set_query_heads(config, heads);
    }
    kinds::hf(text, config, config.n_kv_heads)
}

/// The kind of gates: a flag means one for each head.
fn gates(text: &ConfigObject<'_>) -> Result<HeadGates, Error> {
    const KEY: &str = "gating";
    let unknown = |found: &Value| {
        let feature = format!("`{KEY}` = {found}");
        text.unsupported(feature, "true, `per-head`, `per-element`")
    };
    match text.get(KEY) {
        None | Some(Value::Bool(true)) => Ok(HeadGates::Heads),
        Some(Value::String(name)) if name == "per-head" => Ok(HeadGates::Heads),
        Some(Value::String(name)) if name == "per-element" => Ok(HeadGates::Elements),
        Some(found) => Err(unknown(found)),
    }
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    kinds::write_hf(config, out);
    out["gating"] = match config.layers.head_gates {
        HeadGates::Elements => json!("per-element"),
        HeadGates::Heads | HeadGates::Absent => json!(true),
    };
    let layers = 0..config.n_layers;
    out[HEADS] = layers.map(|layer| config.n_heads_of(layer)).collect();
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    kinds::gguf(keys, config)?;
    // No key says it: the matrix has a row for each gate.
    let gate = TensorName::block(0, WeightRole::AttnGate);
    let by_heads = config.n_heads_of(0);
    config.layers.head_gates = match keys.shape(gate) {
        Some(&[n_gates, _]) if n_gates != by_heads => HeadGates::Elements,
        _ => HeadGates::Heads,
    };
    Ok(())
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = attention::norm_heads(b, heads)?;
    let out = gated_attention::attend_scaled(b, layer, GateFunction::Softplus, (normed, heads))?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = feed_forward::network(b, layer, normed)?;
    Ok(b.residual("ffn_residual", x, out))
}
