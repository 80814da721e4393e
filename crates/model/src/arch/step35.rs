//! Step 3.5: more query heads and other rotations in layers with a window, norms of heads, a gate on each head of the attention's
//! output, experts by sigmoid beside a shared one. Gated networks of some layers have bounds.

use super::Family;
use super::block::feed_forward::{self, GluBound, Inner};
use super::block::{self, attention, experts, gated_attention, kinds, norm};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{
    ConfigObject, FULL, HfDefaults, HfExperts, HfObject, HfShared, HfWindows, SLIDING, Spelling,
    shortest, words_of,
};
use crate::config::{GluBounds, HeadGates, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::{Activation, GateFunction, Gating, ValueId};
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "step35",
    gguf_arch: "step35",
    hf_model_types: &["step3p5", "step3p7"],
    hf_classes: &["Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"],
    models: "Step 3.5 Flash, Step 3.7 Flash (text)",
    hf_norm_eps: 1e-5,
    hf_mlp_bias: true,
    unit_norms: true,
    hf_rotates_part: true,
    local_rope_theta: Some(10_000.0),
    sizes_by_layer: true,
    // The class computes SiLU whatever it says.
    hf_own_keys: &["hidden_act"],
    hf_names: &[
        (WeightRole::AttnGate, "self_attn.g_proj"),
        (WeightRole::Router, "moe.gate"),
        (WeightRole::RouterBias, "moe.router_bias!"),
        (WeightRole::ExpertsGate, "moe.gate_proj"),
        (WeightRole::ExpertsUp, "moe.up_proj"),
        (WeightRole::ExpertsDown, "moe.down_proj"),
        (WeightRole::SharedGate, "share_expert.gate_proj"),
        (WeightRole::SharedUp, "share_expert.up_proj"),
        (WeightRole::SharedDown, "share_expert.down_proj"),
    ],
    hf_windows: HfWindows::Pattern {
        window: 512,
        pattern: 1,
    },
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 288),
        d_ff: ("moe_intermediate_size", 1280),
        scale: Some(("moe_router_scaling_factor", 1.0)),
        choice_bias: true,
        shared: HfShared::Width("share_expert_dim", 1280),
        shared_biases: true,
        layer_kinds: Some(KINDS),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(0.0),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 128_815,
        d_model: 4096,
        d_ff: 11_264,
        n_layers: N_LAYERS,
        n_heads: 64,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 128_000,
        tied_head: false,
        rope_theta: THETA,
    },
    hf_spelling: spelling,
    hf,
    write_hf,
    hf_unsayable,
    gguf,
    write_gguf,
    build,
    ..Family::PLAIN
};

const N_LAYERS: usize = 45;
const THETA: f32 = 10_000.0;
const KINDS: &str = "mlp_layer_types";
const SLIDING_HEADS: &str = "num_sliding_attention_heads";
/// Dense layers where nothing lists those with experts.
const N_DENSE: usize = 3;
/// Bounds of chosen experts, and of other networks.
const BOUNDS: [&str; 2] = ["swiglu_limits", "swiglu_limits_shared"];
const GGUF_BOUNDS: [&str; 2] = ["swiglu_clamp_exp", "swiglu_clamp_shexp"];
const N_ROT: &str = "rope.dimension_count";

/// Published files have other keys, lists that go on behind the last layer, and RoPE by layer.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    let n_layers = spelling.n_layers("num_hidden_layers", N_LAYERS)?;
    for (from, to) in [
        ("num_attention_groups", "num_key_value_heads"),
        ("moe_num_experts", "n_routed_experts"),
        ("moe_top_k", "num_experts_per_tok"),
        ("share_expert_dims", "share_expert_dim"),
    ] {
        spelling.rename(from, to);
    }
    spelling.default("layer_types", || {
        words_of(n_layers, [FULL, SLIDING], |_| true)
    });
    let sparse = sparse_layers(text, n_layers)?;
    spelling.default(KINDS, || {
        words_of(n_layers, ["sparse", "dense"], |layer| {
            sparse.contains(&layer)
        })
    });
    for key in ["layer_types", KINDS, BOUNDS[0], BOUNDS[1]] {
        spelling.cut(key, n_layers);
    }
    if !text.map.contains_key("sliding_window") {
        spelling.set("sliding_window", Value::Null);
    }
    if let Some(other) = text.object("attention_other_setting")? {
        if let Some(found) = other.usize("num_attention_groups")?
            && text.usize("num_attention_groups")? != Some(found)
        {
            let feature = format!("`attention_other_setting.num_attention_groups` = {found}");
            return Err(text.unsupported(feature, "as many as in other layers"));
        }
        if let Some(heads) = other.usize("num_attention_heads")? {
            spelling.default(SLIDING_HEADS, || json!(heads));
        }
    }
    let given = text.object("rope_parameters")?;
    if given.is_none_or(|rope| rope.get(FULL).is_none() && rope.get(SLIDING).is_none()) {
        let types = text.array("layer_types")?.map_or(&[][..], Vec::as_slice);
        spelling.set("rope_parameters", rope_by_kind(text, types)?);
    }
    for key in ["rope_theta", "rope_scaling", "partial_rotary_factors"] {
        spelling.remove(key);
    }
    spelling.done()
}

/// Layers with experts: those that a published file lists in a text or in a list.
fn sparse_layers(text: &ConfigObject<'_>, n_layers: usize) -> Result<Vec<usize>, Error> {
    const KEY: &str = "moe_layers_enum";
    let Some(Value::String(listed)) = text.get(KEY) else {
        let listed = text.usizes(KEY)?;
        return Ok(listed.unwrap_or_else(|| (N_DENSE..n_layers).collect()));
    };
    let words = listed.split(',').map(str::trim);
    let layers = words.filter(|word| !word.is_empty()).map(str::parse);
    let layers: Result<Vec<usize>, _> = layers.collect();
    layers.map_err(|_| text.bad(KEY, &json!(listed), "numbers of layers"))
}

/// RoPE of both kinds of layers, from lists with a number for each layer.
fn rope_by_kind(text: &ConfigObject<'_>, types: &[Value]) -> Result<Value, Error> {
    let mut out = json!({});
    for kind in [FULL, SLIDING] {
        let numbers = |key: &str| {
            let Some(Value::Array(list)) = text.get(key) else {
                return text.f64(key);
            };
            let of_kind = list.iter().zip(types).filter(|(_, layer)| **layer == kind);
            let mut of_kind = of_kind.map(|(number, _)| number);
            let first = of_kind.next().or(list.first());
            match of_kind.find(|other| Some(*other) != first) {
                Some(other) => {
                    let feature = format!("`{key}` with {other} in a layer of the type `{kind}`");
                    Err(text.unsupported(feature, "one number for all layers of a type"))
                }
                None => Ok(first.and_then(Value::as_f64)),
            }
        };
        let theta = numbers("rope_theta")?.unwrap_or(f64::from(THETA));
        let share = numbers("partial_rotary_factors")?.unwrap_or(1.0);
        out[kind] = json!({
            "rope_type": "default",
            "rope_theta": theta,
            "partial_rotary_factor": share,
        });
    }
    if let Some(scaling) = text.object("rope_scaling")? {
        for (key, value) in scaling.map {
            out[FULL][key] = value.clone();
        }
    }
    Ok(out)
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.activation = Activation::Silu;
    config.layers.head_gates = HeadGates::Heads;
    let usual = [
        ("use_head_wise_attn_gate", true),
        ("use_qk_norm", true),
        ("zero_centered", true),
        ("norm_expert_weight", true),
        ("use_moe_router_bias", true),
    ];
    for (key, usual) in usual {
        if let Some(found) = text.bool(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    if let Some(scalar) = text.f32("query_pre_attn_scalar")? {
        config.attention_scale = 1.0 / scalar.sqrt();
    }
    let in_windows = text.usize(SLIDING_HEADS)?.unwrap_or(config.n_heads);
    let n_heads = |layer| match config.window_of(layer) {
        Some(_) => in_windows,
        None => config.n_heads,
    };
    let heads = (0..config.n_layers).map(n_heads).collect();
    kinds::set_query_heads(config, heads);
    let [experts, network] = BOUNDS.map(|key| bounds(text, key, config.n_layers));
    set_bounds(config, [experts?, network?]);
    kinds::hf(text, config, config.n_kv_heads)
}

/// A bound for each layer; `null` is none.
fn bounds(text: &ConfigObject<'_>, key: &str, n_layers: usize) -> Result<Vec<f32>, Error> {
    let Some(list) = text.array(key)? else {
        return Ok(vec![0.0; n_layers]);
    };
    let bound = |value: &Value| match (value.is_null(), value.as_f64()) {
        (true, _) => Ok(0.0),
        (false, Some(bound)) => Ok(bound as f32),
        (false, None) => Err(text.bad(key, value, "numbers, or null")),
    };
    let bounds: Vec<f32> = list.iter().map(bound).collect::<Result<_, _>>()?;
    match bounds.len() == n_layers {
        true => Ok(bounds),
        false => {
            let expected = format!("one for each of the {n_layers} layers");
            Err(text.bad(key, &json!(format!("{} bounds", list.len())), &expected))
        }
    }
}

fn set_bounds(config: &mut ModelConfig, [experts, network]: [Vec<f32>; 2]) {
    let bounds = experts.into_iter().zip(network);
    let bounds = bounds.map(|(experts, network)| GluBounds { experts, network });
    let bounds: Vec<GluBounds> = bounds.collect();
    let is_bounded = bounds.iter().any(|of| *of != GluBounds::default());
    config.layers.glu_bounds = if is_bounded { bounds } else { Vec::new() };
}

/// Query heads of layers of both kinds; `None` where those of a kind differ.
fn query_heads(config: &ModelConfig) -> Option<[usize; 2]> {
    let of_kind = |slides: bool| {
        let layers = 0..config.n_layers;
        let mut heads = layers
            .filter(|layer| config.window_of(*layer).is_some() == slides)
            .map(|layer| config.n_heads_of(layer));
        let first = heads.next();
        heads.all(|n| Some(n) == first).then_some(first)
    };
    let [full, sliding] = [of_kind(false)?, of_kind(true)?];
    let full = full.or(sliding).unwrap_or(config.n_heads);
    Some([full, sliding.unwrap_or(full)])
}

fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let differ = query_heads(config).is_none();
    let kv_heads = kinds::sliding(config).n_kv_heads != config.n_kv_heads;
    (differ || kv_heads).then(|| "heads that differ among layers of a kind in step35".into())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    kinds::write_hf(config, out);
    let [full, sliding] = query_heads(config).unwrap_or_default();
    out["num_attention_heads"] = json!(full);
    out[SLIDING_HEADS] = json!(sliding);
    out["attention_other_setting"] = json!({ "num_attention_heads": sliding });
    // The scale is the inverse root of a whole number in every model.
    let scalar = 1.0 / f64::from(config.attention_scale).powi(2);
    let is_whole = (scalar - scalar.round()).abs() < 1e-3;
    out["query_pre_attn_scalar"] = match is_whole {
        true => json!(scalar.round() as u64),
        false => json!(scalar),
    };
    let layers = 0..config.n_layers;
    let bounds = layers.map(|layer| config.glu_bounds_of(layer));
    let bounds: Vec<GluBounds> = bounds.collect();
    if !config.layers.glu_bounds.is_empty() {
        out[BOUNDS[0]] = bounds.iter().map(|of| shortest(of.experts)).collect();
        out[BOUNDS[1]] = bounds.iter().map(|of| shortest(of.network)).collect();
    }
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.head_gates = HeadGates::Heads;
    let n_rot = config.n_rot;
    kinds::gguf(keys, config)?;
    let sliding = kinds::sliding(config);
    // llama.cpp's reader takes half of the number for layers without a window, whose heads rotate by half.
    config.n_rot = n_rot / 2;
    kinds::set_sliding(config, sliding);
    kinds::cut_factors(config);
    let n_layers = config.n_layers;
    let bounds = |key: &str| -> Result<Vec<f32>, Error> {
        let mut bounds = keys.f32_array(key)?.unwrap_or_else(|| vec![0.0; n_layers]);
        bounds.truncate(n_layers);
        Ok(bounds)
    };
    set_bounds(config, [bounds(GGUF_BOUNDS[0])?, bounds(GGUF_BOUNDS[1])?]);
    Ok(())
}

fn write_gguf(config: &ModelConfig, set: &mut super::SetKey<'_>) {
    kinds::write_gguf(config, set);
    let n_rot = u32::try_from(2 * config.n_rot).unwrap_or(u32::MAX);
    set(N_ROT, GgufValue::U32(n_rot));
    // llama.cpp refuses a file without the list.
    let layers = GgufArray::Bool(config.layer_windowed.clone());
    set("attention.sliding_window_pattern", GgufValue::Array(layers));
    if config.layers.glu_bounds.is_empty() {
        return;
    }
    let bounds = &config.layers.glu_bounds;
    let lists: [Vec<f32>; 2] = [
        bounds.iter().map(|of| of.experts).collect(),
        bounds.iter().map(|of| of.network).collect(),
    ];
    for (key, list) in GGUF_BOUNDS.into_iter().zip(lists) {
        set(key, GgufValue::Array(GgufArray::F32(list)));
    }
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let heads = attention::norm_heads(b, heads)?;
    let out = gated_attention::attend_scaled(b, layer, GateFunction::Sigmoid, (normed, heads))?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let GluBounds { experts, network } = b.config().glu_bounds_of(layer);
    let of = |bound| Inner::Gated(GluBound::of_factors(bound));
    let out = match b.config().experts_of(layer) {
        Some(config) => experts::mixture_of(b, config, [of(experts), of(network)], normed)?,
        None => feed_forward::network_of(b, of(network), layer, normed)?,
    };
    Ok(b.residual("ffn_residual", x, out))
}
