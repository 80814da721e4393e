//! Keys that only files of Gemma 3n have.

use crate::Error;
use crate::arch::SetKey;
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, shortest};
use crate::config::{ModelConfig, StreamConfig, deviations_of, share_below};
use crate::names::{TensorName, WeightRole};
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Value, json};

/// Values that llama.cpp takes where a file gives none: streams, elements of a layer's embedding, the bound of
/// logits, layers with separate keys and values (`gemma3n.cpp`, `llama-hparams.h`).
const N_STREAMS: usize = 4;
const EMBEDDING_DIM: usize = 256;
const LOGIT_SOFTCAP: f32 = 30.0;
const KV_LAYERS: usize = 20;

/// Sparse gates of the first layers, where a file does not give them (`configuration_gemma3n.py`).
const SPARSE_LAYERS: usize = 10;
const SPARSITY: f64 = 0.95;

fn usual_sparsity(n_layers: usize) -> Vec<f32> {
    let is_sparse = |layer| n_layers > SPARSE_LAYERS && layer < SPARSE_LAYERS;
    let share = |layer| if is_sparse(layer) { SPARSITY } else { 0.0 };
    (0..n_layers)
        .map(|layer| deviations_of(share(layer)))
        .collect()
}

/// Takes widths by layer, of which the first is the usual one.
fn take_widths(config: &mut ModelConfig, widths: Vec<usize>) {
    if let Some(first) = widths.first().copied() {
        config.d_ff = first;
        let are_equal = widths.iter().all(|width| *width == first);
        // A list of another length is refused by its length.
        if !are_equal || widths.len() != config.n_layers {
            config.layers.d_ff = widths;
        }
    }
}

/// Scores have no factor and no bound, and no key gives one.
pub(super) fn fixed(config: &mut ModelConfig) {
    config.attention_scale = 1.0;
    config.attention_softcap = None;
}

pub(super) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.logit_softcap = config.logit_softcap.or(Some(LOGIT_SOFTCAP));
    let n_shared = keys.usize("attention.shared_kv_layers")?;
    let n_layers = config.n_layers;
    config.layers.n_shared_kv = n_shared.unwrap_or(n_layers.saturating_sub(KV_LAYERS));
    let dim = keys.usize("embedding_length_per_layer_input")?;
    config.layers.embedding_dim = dim.unwrap_or(EMBEDDING_DIM);
    if let Some(widths) = keys.by_layer("feed_forward_length")? {
        take_widths(config, widths);
    }
    let laurel = keys.shape(TensorName::block(0, WeightRole::LaurelDown));
    let sparsity = keys.f32_array("activation_sparsity_scale")?;
    config.layers.streams = Some(StreamConfig {
        n_streams: keys.usize("altup.num_inputs")?.unwrap_or(N_STREAMS),
        active: keys.usize("altup.active_idx")?.unwrap_or(0),
        // The graph's checks name a matrix that is missing.
        laurel_rank: laurel
            .and_then(|shape| shape.first().copied())
            .unwrap_or(64),
        gate_deviations: sparsity.unwrap_or_else(|| usual_sparsity(n_layers)),
        n_embedding_rows: config.vocab_size,
    });
    Ok(())
}

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    // An absent key means the class's default, `null` means none.
    if !text.map.contains_key("final_logit_softcapping") {
        config.logit_softcap = Some(LOGIT_SOFTCAP);
    }
    if text.bool("altup_correct_scale")? == Some(false) {
        let feature = "`altup_correct_scale` = false".into();
        return Err(text.unsupported(feature, "factors on the corrected stream (true)"));
    }
    let size = |key: &str, usual: usize| Ok::<usize, Error>(text.usize(key)?.unwrap_or(usual));
    config.layers.n_shared_kv = size("num_kv_shared_layers", 15)?;
    config.layers.embedding_dim = size("hidden_size_per_layer_input", EMBEDDING_DIM)?;
    if text.get("intermediate_size").is_some_and(Value::is_array) {
        take_widths(
            config,
            text.usizes("intermediate_size")?.unwrap_or_default(),
        );
    }
    let pattern = text.f64s("activation_sparsity_pattern")?;
    let deviations = |shares: Vec<f64>| shares.into_iter().map(share_to_deviations).collect();
    config.layers.streams = Some(StreamConfig {
        n_streams: size("altup_num_inputs", N_STREAMS)?,
        active: size("altup_active_idx", 0)?,
        laurel_rank: size("laurel_rank", 64)?,
        gate_deviations: match pattern {
            Some(shares) => deviations(shares),
            // `validate` refuses more layers after this.
            None => usual_sparsity(config.n_layers.min(crate::config::MAX_LAYERS)),
        },
        n_embedding_rows: size("vocab_size_per_layer_input", 262_144)?,
    });
    Ok(())
}

/// The deviations for a share. A share that is not below 1 gives infinity, which `validate` refuses.
fn share_to_deviations(share: f64) -> f32 {
    match share < 1.0 {
        true => deviations_of(share),
        false => f32::INFINITY,
    }
}

pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    let layers = &config.layers;
    if let Some(map) = out.as_object_mut() {
        let act = map.remove("hidden_act");
        map.insert("hidden_activation".into(), act.unwrap_or_default());
    }
    let widths = (0..config.n_layers).map(|layer| config.d_ff_of(layer));
    out["intermediate_size"] = widths.collect();
    out["final_logit_softcapping"] = config.logit_softcap.map_or(Value::Null, shortest);
    out["num_kv_shared_layers"] = json!(layers.n_shared_kv);
    out["hidden_size_per_layer_input"] = json!(layers.embedding_dim);
    let Some(streams) = &layers.streams else {
        return;
    };
    out["vocab_size_per_layer_input"] = json!(streams.n_embedding_rows);
    out["altup_num_inputs"] = json!(streams.n_streams);
    out["altup_active_idx"] = json!(streams.active);
    out["altup_correct_scale"] = json!(true);
    out["laurel_rank"] = json!(streams.laurel_rank);
    // Deviations are in f32: more digits of a share have no meaning.
    let share = |deviations: &f32| json!((share_below(*deviations) * 1e7).round() / 1e7);
    let shares = streams.gate_deviations.iter().map(share);
    out["activation_sparsity_pattern"] = shares.collect();
}

pub(super) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let size = |size: usize| GgufValue::U32(number(size));
    let layers = &config.layers;
    set("attention.shared_kv_layers", size(layers.n_shared_kv));
    set(
        "embedding_length_per_layer_input",
        size(layers.embedding_dim),
    );
    // llama.cpp reads the pattern from this key.
    let windowed = GgufArray::Bool(config.layer_windowed.clone());
    set(
        "attention.sliding_window_pattern",
        GgufValue::Array(windowed),
    );
    if !layers.d_ff.is_empty() {
        let widths = layers.d_ff.iter().map(|width| number(*width)).collect();
        let widths = GgufValue::Array(GgufArray::U32(widths));
        set("feed_forward_length", widths);
    }
    let Some(streams) = &layers.streams else {
        return;
    };
    set("altup.num_inputs", size(streams.n_streams));
    set("altup.active_idx", size(streams.active));
    let deviations = GgufArray::F32(streams.gate_deviations.clone());
    set("activation_sparsity_scale", GgufValue::Array(deviations));
}
