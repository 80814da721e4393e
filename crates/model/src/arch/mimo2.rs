//! MiMo 2: heads of values smaller than those of keys, with a factor; twice as many key heads, and sinks, in layers with a
//! window; experts by sigmoid with a bias for the choice.

use super::block::kinds;
use super::glm4moe::SUM_EPS;
use super::{Family, llama};
use crate::Error;
use crate::config::gguf::Keys;
use crate::config::hf::{
    ConfigObject, FULL, HfDefaults, HfExperts, HfObject, HfWindows, SLIDING, Spelling, shortest,
    words_of,
};
use crate::config::{Biases, ModelConfig};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::Gating;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    name: "mimo2",
    gguf_arch: "mimo2",
    hf_model_types: &["mimo_v2_flash"],
    hf_classes: &["MiMoV2FlashForCausalLM"],
    models: "MiMo 2 Flash (MiMo-V2-Flash)",
    hf_norm_eps: 1e-5,
    hf_own_biases: true,
    hf_partial_rotary: PARTIAL,
    hf_rotates_part: true,
    local_rope_theta: Some(LOCAL_THETA),
    sizes_by_layer: true,
    small_values: true,
    own_roles: &[WeightRole::AttnSinks],
    hf_names: &[(WeightRole::AttnSinks, "self_attn.attention_sink_bias!")],
    hf_windows: HfWindows::Pattern {
        window: 129,
        pattern: 1,
    },
    hf_experts: Some(HfExperts {
        n_experts: ("n_routed_experts", 256),
        d_ff: ("moe_intermediate_size", 2048),
        normalized: Some(("norm_topk_prob", true)),
        scale: Some(("routed_scaling_factor", 1.0)),
        groups: Some([("n_group", 1), ("topk_group", 1)]),
        choice_bias: true,
        layer_kinds: Some(KINDS),
        ..HfExperts::PLAIN
    }),
    experts: super::ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: Some(SUM_EPS),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 152_576,
        d_model: 4096,
        d_ff: 16_384,
        n_layers: N_LAYERS,
        n_heads: 64,
        n_kv_heads: Some(4),
        head_dim: Some(192),
        context_length: 131_072,
        tied_head: false,
        rope_theta: THETA,
    },
    hf_spelling: spelling,
    hf,
    write_hf,
    hf_unsayable,
    gguf,
    write_gguf,
    build: llama::build,
    ..Family::PLAIN
};

const N_LAYERS: usize = 48;
const THETA: f32 = 5_000_000.0;
const LOCAL_THETA: f32 = 10_000.0;
const PARTIAL: f64 = 0.334;
/// Elements of a head of values, and the factor on them, of the class.
const V_DIM: usize = 128;
const VALUE_SCALE: f32 = 0.707;
const KINDS: &str = "mlp_layer_types";
const SLIDING_KV_HEADS: &str = "swa_num_key_value_heads";
/// Whether heads have sinks: in layers without a window, and in those with one.
const SINKS: [&str; 2] = [
    "add_full_attention_sink_bias",
    "add_swa_attention_sink_bias",
];

/// Published files mark layers by numbers, and give RoPE as before transformers 5.
fn spelling(text: &ConfigObject<'_>) -> Result<Option<HfObject>, Error> {
    let mut spelling = Spelling::of(text);
    let n_layers = spelling.n_layers("num_hidden_layers", N_LAYERS)?;
    spelling.rename("layernorm_epsilon", "rms_norm_eps");
    let slides = text.usizes("hybrid_layer_pattern")?;
    spelling.default("layer_types", || match &slides {
        Some(slides) => words_of(slides.len(), [SLIDING, FULL], |layer| slides[layer] != 0),
        None => words_of(n_layers, [FULL, SLIDING], |layer| {
            layer == 0 || (layer + 1).is_multiple_of(6)
        }),
    });
    let sparse = text.usizes("moe_layer_freq")?;
    spelling.default(KINDS, || match &sparse {
        Some(sparse) => words_of(sparse.len(), ["sparse", "dense"], |layer| {
            sparse[layer] != 0
        }),
        None => words_of(n_layers, ["dense", "sparse"], |layer| layer == 0),
    });
    // The class counts the token itself too.
    if let Some(before) = text.usize("sliding_window_size")? {
        spelling.set("sliding_window", json!(before.saturating_add(1)));
    }
    let theta = |key: &str, usual: f32| Ok::<_, Error>(text.f32(key)?.unwrap_or(usual));
    let thetas = [
        theta("rope_theta", THETA)?,
        theta("swa_rope_theta", LOCAL_THETA)?,
    ];
    let partial = text.f64("partial_rotary_factor")?.unwrap_or(PARTIAL);
    let rope = |theta| {
        json!({
            "rope_type": "default",
            "rope_theta": shortest(theta),
            "partial_rotary_factor": partial,
        })
    };
    spelling.default(
        "rope_parameters",
        || json!({ FULL: rope(thetas[0]), SLIDING: rope(thetas[1]) }),
    );
    spelling.remove("partial_rotary_factor");
    spelling.remove("rope_scaling");
    spelling.done()
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.biases = Biases {
        qkv: text.bool("attention_bias")?.unwrap_or(false),
        ..Biases::NONE
    };
    let v_dim = text.usize("v_head_dim")?.unwrap_or(V_DIM);
    let usual = [
        ("swa_head_dim", config.head_dim),
        ("swa_v_head_dim", v_dim),
        ("swa_num_attention_heads", config.n_heads),
    ];
    for (key, usual) in usual {
        if let Some(found) = text.usize(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    for (key, usual) in [("topk_method", "noaux_tc"), ("scoring_func", "sigmoid")] {
        if let Some(found) = text.str(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), usual));
        }
    }
    config.layers.v_dim = Some(v_dim).filter(|v_dim| *v_dim != config.head_dim);
    // `null` differs from an absent key.
    let key = "attention_value_scale";
    let scale = match text.map.contains_key(key) {
        true => text.f32(key)?.unwrap_or(1.0),
        false => VALUE_SCALE,
    };
    config.layers.value_scale = Some(scale).filter(|scale| *scale != 1.0);
    let has = |key, usual| Ok::<_, Error>(text.bool(key)?.unwrap_or(usual));
    let has_sinks = [has(SINKS[0], false)?, has(SINKS[1], true)?];
    let lacks = |layer: &usize| !has_sinks[usize::from(config.window_of(*layer).is_some())];
    config.layers.without_sinks = (0..config.n_layers).filter(lacks).collect();
    let n_kv_heads = text.usize(SLIDING_KV_HEADS)?;
    let twice = config.n_kv_heads.saturating_mul(2);
    kinds::hf(text, config, n_kv_heads.unwrap_or(twice))
}

/// Whether layers of each kind have sinks; `None` where those of a kind differ.
fn sinks_by_kind(config: &ModelConfig) -> Option<[bool; 2]> {
    let mut found = [None; 2];
    for layer in 0..config.n_layers {
        let has = !config.layers.without_sinks.contains(&layer);
        let of_kind = &mut found[usize::from(config.window_of(layer).is_some())];
        if of_kind.replace(has).is_some_and(|other| other != has) {
            return None;
        }
    }
    Some([found[0].unwrap_or(false), found[1].unwrap_or(true)])
}

fn hf_unsayable(config: &ModelConfig) -> Option<String> {
    let Biases {
        attn_output, ffn, ..
    } = config.biases;
    if attn_output || ffn {
        return Some(format!("{:?} in {}", config.biases, config.family));
    }
    if !config.layers.n_heads.is_empty() {
        return Some("query heads that differ by layer in mimo2".into());
    }
    let same = sinks_by_kind(config).is_none();
    same.then(|| "sinks in some layers of a kind in mimo2".into())
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    kinds::write_hf(config, out);
    out["attention_bias"] = json!(config.biases.qkv);
    out["v_head_dim"] = json!(config.v_dim_of(0));
    out["attention_value_scale"] = shortest(config.layers.value_scale.unwrap_or(1.0));
    out[SLIDING_KV_HEADS] = json!(kinds::sliding(config).n_kv_heads);
    let sinks = sinks_by_kind(config).unwrap_or_default();
    for (key, has) in SINKS.into_iter().zip(sinks) {
        out[key] = json!(has);
    }
}

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    kinds::gguf(keys, config)?;
    let lacks = |layer: &usize| !keys.has(TensorName::block(*layer, WeightRole::AttnSinks));
    let layers = 0..config.n_layers.min(crate::config::MAX_LAYERS);
    config.layers.without_sinks = layers.filter(lacks).collect();
    // llama.cpp's converter leaves the number of leading dense layers to the tensors.
    if let Some(experts) = &mut config.experts {
        experts.count_leading_dense();
    }
    Ok(())
}

fn write_gguf(config: &ModelConfig, set: &mut super::SetKey<'_>) {
    kinds::write_gguf(config, set);
    // llama.cpp refuses a file without the list.
    let layers = GgufArray::Bool(config.layer_windowed.clone());
    set("attention.sliding_window_pattern", GgufValue::Array(layers));
}
