//! SmallThinker: experts of ReLU, chosen by the block's input, before attention. One layer in four attends to all
//! tokens without a rotation, the others within a window.

use super::block::feed_forward::Inner;
use super::block::{self, attention, experts, norm};
use super::{ExpertDefaults, Family, SetKey};
use crate::Error;
use crate::builder::GraphBuilder;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, HfDefaults, HfExperts};
use crate::config::{Biases, ExpertConfig, MAX_LAYERS, ModelConfig};
use crate::names::WeightRole;
use millrace_format::gguf::{GgufArray, GgufValue};
use millrace_graph::{Activation, Gating, ValueId};
use serde_json::{Value, json};

/// The window of every model whose GGUF files have one: llama.cpp supports no other.
const WINDOW: usize = 4096;

pub(super) static FAMILY: Family = Family {
    name: "smallthinker",
    gguf_arch: "smallthinker",
    hf_model_types: &["smallthinker"],
    hf_classes: &["SmallThinkerForCausalLM"],
    models: "SmallThinker 4B-A0.6B, 21B-A3B",
    activation: Activation::Relu,
    hf_biases: Some(Biases::NONE),
    hf_own_keys: &["hidden_act", "hidden_activation"],
    gguf_window_pattern: Some(4),
    first_layer_is_global: true,
    hf_names: &[
        (WeightRole::Router, "block_sparse_moe.primary_router"),
        (WeightRole::ExpertsGate, "block_sparse_moe.experts.{}.gate"),
        (WeightRole::ExpertsUp, "block_sparse_moe.experts.{}.up"),
        (WeightRole::ExpertsDown, "block_sparse_moe.experts.{}.down"),
    ],
    hf_experts: Some(HfExperts {
        n_experts: ("moe_num_primary_experts", 32),
        n_used: ("moe_num_active_primary_experts", 4),
        d_ff: ("moe_ffn_hidden_size", 768),
        ..HfExperts::PLAIN
    }),
    experts: ExpertDefaults {
        gating: Gating::Softmax,
        normalized: Some(0.0),
        group_best: 2,
    },
    hf_defaults: HfDefaults {
        vocab_size: 151_936,
        d_model: 1536,
        d_ff: 768,
        n_layers: 32,
        n_heads: 12,
        n_kv_heads: Some(2),
        head_dim: Some(128),
        context_length: 32_768,
        tied_head: true,
        rope_theta: 1_500_000.0,
    },
    gguf,
    write_gguf,
    hf,
    write_hf,
    build,
    ..Family::PLAIN
};

const SOFTMAX: &str = "moe_primary_router_apply_softmax";
const WINDOW_SIZE: &str = "sliding_window_size";
const WINDOWS: &str = "sliding_window_layout";
const ROTATED: &str = "rope_layout";
/// Keys of this program in GGUF files, for models that llama.cpp cannot express.
const WINDOW_KEY: &str = "attention.window_size";
const UNROTATED_KEY: &str = "attention.unrotated_layers";

fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    needs_experts(config.experts.as_ref()).map_err(|feature| keys.unsupported(feature, NEEDED))?;
    if config.window.is_some() {
        config.window = Some(keys.usize(WINDOW_KEY)?.unwrap_or(WINDOW));
        let n_layers = config.n_layers.min(MAX_LAYERS);
        config.unrotated_layers = unrotated(n_layers);
    }
    if let Some(layers) = keys.u32_array(UNROTATED_KEY)? {
        config.unrotated_layers = layers.into_iter().map(|layer| layer as usize).collect();
    }
    Ok(())
}

/// Layers that llama.cpp does not rotate in models with a window.
fn unrotated(n_layers: usize) -> Vec<usize> {
    (0..n_layers).step_by(4).collect()
}

fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let implied = match config.window {
        Some(_) => unrotated(config.n_layers),
        None => Vec::new(),
    };
    if config.unrotated_layers != implied {
        let layers = config.unrotated_layers.iter().map(|layer| *layer as u32);
        set(
            UNROTATED_KEY,
            GgufValue::Array(GgufArray::U32(layers.collect())),
        );
    }
    if let Some(window) = config.window.filter(|window| *window != WINDOW) {
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        set(WINDOW_KEY, GgufValue::U32(window));
    }
}

const NEEDED: &str = "experts in every layer";

fn needs_experts(experts: Option<&ExpertConfig>) -> Result<(), String> {
    match experts {
        Some(experts) if experts.dense_layers.is_empty() && experts.n_dense_layers == 0 => Ok(()),
        _ => Err("layers of SmallThinker without experts".into()),
    }
}

fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let n_layers = config.n_layers;
    let layout = text.usizes("moe_layer_layout")?.unwrap_or_default();
    let has_dense = layout.contains(&0);
    if has_dense {
        needs_experts(None).map_err(|feature| text.unsupported(feature, NEEDED))?;
    }
    needs_experts(config.experts.as_ref()).map_err(|feature| text.unsupported(feature, NEEDED))?;
    for (key, usual) in [
        ("moe_enable_early_router", true),
        ("moe_enable_secondary_experts", false),
    ] {
        if let Some(found) = text.bool(key)?.filter(|found| *found != usual) {
            return Err(text.unsupported(format!("`{key}` = {found}"), &usual.to_string()));
        }
    }
    let is_softmax = text.bool(SOFTMAX)?.unwrap_or(false);
    if let Some(experts) = &mut config.experts {
        experts.gating = match is_softmax {
            true => Gating::Softmax,
            false => Gating::Sigmoid,
        };
        config.d_ff = experts.d_ff;
    }
    let window = text.usize(WINDOW_SIZE)?.unwrap_or(WINDOW);
    let windowed = flags(text, WINDOWS, n_layers)?.unwrap_or_else(|| vec![false; n_layers]);
    config.window = windowed.contains(&true).then_some(window);
    config.layer_windowed = windowed;
    if let Some(rotated) = flags(text, ROTATED, n_layers)? {
        config.unrotated_layers = (0..n_layers).filter(|layer| !rotated[*layer]).collect();
    }
    Ok(())
}

/// A list of as many flags as there are layers, each 0 or 1.
fn flags(text: &ConfigObject<'_>, key: &str, n_layers: usize) -> Result<Option<Vec<bool>>, Error> {
    let Some(flags) = text.usizes(key)? else {
        return Ok(None);
    };
    if flags.len() != n_layers || flags.iter().any(|flag| *flag > 1) {
        let expected = format!("0 or 1 for each of the {n_layers} layers");
        return Err(text.bad(key, &json!(flags), &expected));
    }
    Ok(Some(flags.into_iter().map(|flag| flag == 1).collect()))
}

fn write_hf(config: &ModelConfig, out: &mut Value) {
    let experts = config.experts.as_ref();
    out[SOFTMAX] = json!(experts.is_some_and(|experts| experts.gating == Gating::Softmax));
    out["norm_topk_prob"] = json!(true);
    out["moe_enable_early_router"] = json!(true);
    out["moe_enable_secondary_experts"] = json!(false);
    let layers = || 0..config.n_layers;
    out["moe_layer_layout"] = layers().map(|_| 1).collect();
    let window = |layer| u8::from(config.window_of(layer).is_some());
    out[WINDOWS] = layers().map(window).collect();
    out[WINDOW_SIZE] = json!(config.window);
    out[ROTATED] = layers()
        .map(|layer| u8::from(config.rotates(layer)))
        .collect();
    if let Some(object) = out.as_object_mut() {
        object.remove("hidden_act");
    }
}

fn build(b: &mut GraphBuilder<'_>) -> Result<(), Error> {
    block::decoder(b, block)
}

fn block(b: &mut GraphBuilder<'_>, layer: usize, x: ValueId) -> Result<ValueId, Error> {
    let config = b.config();
    let experts = config.experts_of(layer).ok_or_else(|| Error::MissingKey {
        file: config.family.into(),
        key: "moe_num_primary_experts".into(),
    })?;
    let normed = norm::stream(b, "attn_norm", WeightRole::AttnNorm, x)?;
    let heads = attention::project(b, normed)?;
    let out = attention::attend(b, layer, heads)?;
    let attended = b.residual("attn_residual", x, out);
    let normed = norm::stream(b, "ffn_norm", WeightRole::FfnNorm, attended)?;
    let choice = experts::route(b, experts, x)?;
    let out = experts::routed_by(b, (experts, Inner::Gated(None)), choice, normed)?;
    Ok(b.residual("ffn_residual", attended, out))
}
