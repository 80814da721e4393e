//! Llama 4, text part. Three layers in four attend within chunks; the fourth attends to all tokens, without a rotation and
//! with a factor on queries by position. Heads of queries and keys have norms without a weight behind their rotation. The
//! inputs of experts are weighed, not their outputs.

use super::block::feed_forward::{self, Inner};
use super::block::{self, attention, experts, norm};
use super::{ExpertDefaults, Family, GateOrder, SetKey};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts, HfShared, HfWindows, shortest};
use crate::config::{ExpertConfig, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::{Gating, Temperature, ValueId};
use serde_json::{Value, json};

/// Number of experts in the models whose heads have no norms; GGUF files have no other sign of it (llama.cpp,
/// `llama4.cpp`).
const EXPERTS_WITHOUT_NORMS: usize = 128;

/// Tokens of a chunk, and steps of the factor on queries. llama.cpp knows no others.
const CHUNK: usize = 8192;
const FACTOR: f32 = 0.1;

pub(super) static FAMILY: Family = Family {
    name: "llama4",
    gguf_arch: "llama4",
    hf_model_types: &["llama4_text", "llama4"],
    hf_classes: &["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
    models: "Llama 4 Scout, Maverick (text)",
    interleaved: true,
    hf_norm_eps: 1e-5,
    hf_qk_norm: Some("use_qk_norm"),
    hf_own_keys: &["no_rope_layers", "no_rope_layer_interval"],
    hf_windows: HfWindows::Chunks(CHUNK),
    gguf_window_pattern: Some(4),
    hf_turned_experts: Some(GateOrder::GateFirstTurned),
    hf_names: &[
        (WeightRole::FfnGate, "feed_forward.gate_proj"),
        (WeightRole::FfnUp, "feed_forward.up_proj"),
        (WeightRole::FfnDown, "feed_forward.down_proj"),
        (WeightRole::Router, "feed_forward.router"),
        (
            WeightRole::ExpertsGateUp,
            "feed_forward.experts.gate_up_proj!",
        ),
        (WeightRole::ExpertsDown, "feed_forward.experts.down_proj!"),
        (
            WeightRole::SharedGate,
            "feed_forward.shared_expert.gate_proj",
        ),
        (WeightRole::SharedUp, "feed_forward.shared_expert.up_proj"),
        (
            WeightRole::SharedDown,
            "feed_forward.shared_expert.down_proj",
        ),
    ],
    hf_roles: &[WeightRole::ExpertsGateUp],
    hf_experts: Some(HfExperts {
        n_experts: ("num_local_experts", 16),
        n_used: ("num_experts_per_tok", 1),
        d_ff: (EXPERT_WIDTH, 8192),
        shared: HfShared::Width(EXPERT_WIDTH, 8192),
        ..HfExperts::PLAIN
    }),
    experts: ExpertDefaults {
        gating: Gating::Sigmoid,
        normalized: None,
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 202_048,
        d_model: 5120,
        d_ff: 16_384,
        n_layers: 48,
        n_heads: 40,
        n_kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 131_072,
        tied_head: false,
        rope_theta: 500_000.0,
    },
    gguf,
    write_gguf,
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

const EXPERT_WIDTH: &str = "intermediate_size";
const DENSE_WIDTH: &str = "intermediate_size_mlp";
/// Key in GGUF files: distance from one layer with experts to the next.
const STEP: &str = "interleave_moe_layer_step";
/// Keys of this program in GGUF files, for models that llama.cpp cannot express.
const CHUNK_KEY: &str = "attention.chunk_size";
const NORMS_KEY: &str = "attention.qk_norm";
const UNROTATED_KEY: &str = "attention.unrotated_layers";

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_layers = config.n_layers.min(MAX_LAYERS);
    // The key is only there with 0, in models without chunks.
    if keys.usize("attention.sliding_window")? != Some(0) {
        config.window = Some(keys.usize(CHUNK_KEY)?.unwrap_or(CHUNK));
        if keys.flags("attention.sliding_window_pattern")?.is_none() {
            config.layer_windowed = (0..n_layers).map(|layer| FAMILY.slides(layer, 4)).collect();
        }
        config.unrotated_layers = config.global_layers();
        config.temperature = Some(Temperature {
            scale: keys.f32("attention.temperature_scale")?.unwrap_or(FACTOR),
            length: keys.usize("attention.temperature_length")?.unwrap_or(CHUNK),
            first: 1,
        });
    }
    if let Some(layers) = keys.u32_array(UNROTATED_KEY)? {
        config.unrotated_layers = layers.into_iter().map(|layer| layer as usize).collect();
    }
    config.temperature = config
        .temperature
        .filter(|temperature| temperature.scale != 0.0);
    let n_experts = config
        .experts
        .as_ref()
        .map_or(0, |experts| experts.n_experts);
    config.qk_norm = keys
        .bool(NORMS_KEY)?
        .unwrap_or(n_experts != EXPERTS_WITHOUT_NORMS);
    if let Some(experts) = &mut config.experts {
        // Files may list the leading dense layers, or leave it to the tensors.
        let dense = (0..n_layers).filter(|layer| !experts.has(*layer)).collect();
        set_dense(experts, dense, n_layers);
    }
    finish(config);
    Ok(())
}

fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let size = |size: usize| GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX));
    match config.window {
        Some(chunk) => {
            set("attention.sliding_window", size(chunk));
            if chunk != CHUNK {
                set(CHUNK_KEY, size(chunk));
            }
        }
        None => set("attention.sliding_window", size(0)),
    }
    let implied = match config.window {
        Some(_) => config.global_layers(),
        None => Vec::new(),
    };
    if config.unrotated_layers != implied {
        let layers = config.unrotated_layers.iter().map(|layer| *layer as u32);
        set(
            UNROTATED_KEY,
            GgufValue::Array(GgufArray::U32(layers.collect())),
        );
    }
    if config.temperature.is_none() {
        set("attention.temperature_scale", GgufValue::F32(0.0));
    }
    let experts = config.experts.as_ref();
    let n_experts = experts.map_or(0, |experts| experts.n_experts);
    if config.qk_norm != (n_experts != EXPERTS_WITHOUT_NORMS) {
        set(NORMS_KEY, GgufValue::Bool(config.qk_norm));
    }
    set(STEP, size(experts.map_or(0, |experts| experts.every)));
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_layers = config.n_layers;
    config.d_ff = text.usize(DENSE_WIDTH)?.unwrap_or(FAMILY.hf_defaults.d_ff);
    config.qk_norm = text.bool("use_qk_norm")?.unwrap_or(true);
    config.unrotated_layers = super::smollm3::unrotated_layers(text, n_layers)?;
    if text.get("layer_types").is_none() && config.window.is_some() {
        config.layer_windowed = (0..n_layers).map(|layer| config.rotates(layer)).collect();
    }
    let is_tuned = match text.get("attn_temperature_tuning") {
        // Published files have a number.
        Some(Value::Number(number)) => number.as_u64() != Some(0),
        _ => text.bool("attn_temperature_tuning")?.unwrap_or(true),
    };
    let temperature = Temperature {
        scale: text.f32("attn_scale")?.unwrap_or(FACTOR),
        length: text.usize("floor_scale")?.unwrap_or(CHUNK),
        first: 1,
    };
    config.temperature = Some(temperature).filter(|of| is_tuned && of.scale != 0.0);
    let dense = dense_layers(text, n_layers)?;
    if dense.len() == n_layers {
        config.experts = None;
    }
    if let Some(experts) = &mut config.experts {
        set_dense(experts, dense, n_layers);
    }
    finish(config);
    Ok(())
}

/// Sets values that follow from the rest.
fn finish(config: &mut ModelConfig) {
    config.layers.windows_are_chunks = config.window.is_some();
    config.layers.temperature_without_rope = true;
}

/// Layers without experts.
fn dense_layers(text: &ConfigObject<'_>, n_layers: usize) -> Result<Vec<usize>, Error> {
    let with_experts = match text.usizes("moe_layers")? {
        Some(layers) => layers,
        None => match text.usize("interleave_moe_layer_step")?.unwrap_or(1) {
            0 => Vec::new(),
            step => (0..n_layers)
                .filter(|layer| (layer + 1).is_multiple_of(step))
                .collect(),
        },
    };
    if let Some(layer) = with_experts.iter().find(|layer| **layer >= n_layers) {
        let expected = format!("layers below {n_layers}");
        return Err(text.bad("moe_layers", &json!(layer), &expected));
    }
    Ok((0..n_layers)
        .filter(|layer| !with_experts.contains(layer))
        .collect())
}

/// Sets which layers are dense: by a step, where there is one.
fn set_dense(experts: &mut ExpertConfig, dense: Vec<usize>, n_layers: usize) {
    let fits = |step: &usize| {
        let is_dense = |layer: usize| !(layer + 1).is_multiple_of(*step);
        (0..n_layers)
            .filter(|layer| is_dense(*layer))
            .eq(dense.iter().copied())
    };
    experts.n_dense_layers = 0;
    (experts.every, experts.dense_layers) = match (1..=n_layers).find(fits) {
        Some(step) => (step, Vec::new()),
        None => (1, dense),
    };
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    out[DENSE_WIDTH] = json!(config.d_ff);
    let layers = || 0..config.n_layers;
    let with_experts = layers().filter(|layer| config.experts_of(*layer).is_some());
    out["moe_layers"] = with_experts.collect();
    out[STEP] = json!(config.experts.as_ref().map_or(0, |experts| experts.every));
    if config.experts.is_none() {
        out["num_local_experts"] = json!(0);
    }
    out["no_rope_layers"] = layers()
        .map(|layer| u8::from(config.rotates(layer)))
        .collect();
    out["attn_temperature_tuning"] = json!(config.temperature.is_some());
    if let Some(temperature) = config.temperature {
        out["attn_scale"] = shortest(temperature.scale);
        out["floor_scale"] = json!(temperature.length);
    }
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let mut heads = attention::rotate(b, layer, heads);
    if b.config().qk_norm && b.config().rotates(layer) {
        heads.q = attention::norm_bare(b, "attn_q_norm", heads.q);
        heads.k = attention::norm_bare(b, "attn_k_norm", heads.k);
    }
    let out = attention::attend_rotated(b, layer, heads)?;
    let out = attention::project_back(b, out)?;
    let x = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, x)?;
    let out = match b.config().experts_of(layer) {
        Some(config) => experts::mixture_of_weighed(b, config, normed)?,
        None => feed_forward::network_of(b, Inner::Gated(None), layer, normed)?,
    };
    Ok(b.residual("ffn_residual", x, out))
}
