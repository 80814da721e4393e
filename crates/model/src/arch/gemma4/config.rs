//! Keys that only files of Gemma 4 have.

use crate::Error;
use crate::arch::block::kinds::{cut_factors, of_kind, set_sliding};
use crate::arch::{self, SetKey};
use crate::config::gguf::Keys;
use crate::config::hf::{self, ConfigObject, shortest};
use crate::config::{HeadSizes, ImageSight, ModelConfig, RopeConfig, RopeScaling};
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Map, Value, json};

/// Scores have no factor and no bound, and no key gives one.
pub(super) fn fixed(config: &mut ModelConfig) {
    config.attention_scale = 1.0;
    config.attention_softcap = None;
}

pub(super) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    config.layers.n_shared_kv = keys.usize("attention.shared_kv_layers")?.unwrap_or(0);
    config.layers.embedding_dim = keys.usize("embedding_length_per_layer_input")?.unwrap_or(0);
    // No key records it. The models with embeddings by layer, E2B and E4B, are those whose images are seen like text; llama.cpp
    // recognises them by their widths (`mtmd.cpp`).
    if config.layers.embedding_dim == 0 {
        config.layers.image_sight = ImageSight::AllInWindows;
    }
    if let Some(widths) = keys.by_layer("feed_forward_length")? {
        config.layers.d_ff = widths.into_iter().take(config.n_layers).collect();
        drop_equal_widths(config);
    }
    let kv_key = "attention.head_count_kv";
    let mut kv_heads = [config.n_kv_heads; 2];
    if let Some(sizes) = keys.by_layer(kv_key)? {
        for (heads, slides) in kv_heads.iter_mut().zip([false, true]) {
            *heads = of_kind(keys, kv_key, (&sizes, config), slides)?.unwrap_or(*heads);
        }
    }
    config.n_kv_heads = kv_heads[0];
    let head_dim = keys.usize("attention.key_length_swa")?;
    let value_dim = keys.usize("attention.value_length_swa")?;
    if let (Some(key), Some(value)) = (head_dim, value_dim)
        && key != value
    {
        let feature = format!("value heads of {value} elements beside key heads of {key}");
        return Err(keys.unsupported(feature, "heads of one size"));
    }
    let n_rot = keys.usize("rope.dimension_count_swa")?;
    let sliding = HeadSizes {
        n_kv_heads: kv_heads[1],
        head_dim: head_dim.or(value_dim).unwrap_or(config.head_dim),
        n_rot: n_rot.unwrap_or(config.n_rot),
    };
    set_sliding(config, sliding);
    cut_factors(config);
    // Divisors that are all equal could also belong to other scalings.
    config.rope = config.rope.as_proportional().unwrap_or(config.rope.clone());
    name_full_rotation(config);
    Ok(())
}

/// All pairs at their own frequency, under the name that GGUF files have for it.
fn name_full_rotation(config: &mut ModelConfig) {
    if config.rope.scaling == RopeScaling::None {
        config.rope.scaling = RopeScaling::Proportional {
            factor: 1.0,
            n_rotated: config.n_rot / 2,
        };
    }
}

fn drop_equal_widths(config: &mut ModelConfig) {
    let widths = &mut config.layers.d_ff;
    if let Some(first) = widths.first().copied() {
        config.d_ff = first;
        if widths.iter().all(|width| *width == first) {
            widths.clear();
        }
    }
}

pub(super) fn hf(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let is_unified = text
        .str("model_type")?
        .is_some_and(|name| name.starts_with("gemma4_unified"));
    if is_unified && !text.map.contains_key("sliding_window") {
        config.window = Some(1024);
    }
    // The class makes its last layer a global one in any case.
    if let Some(last) = config.layer_windowed.last_mut() {
        *last = false;
    }
    read_experts(text, config)?;
    read_embeddings(text, config, is_unified)?;
    let both_ways = text.get("use_bidirectional_attention");
    if both_ways.is_some_and(|found| *found == "vision") {
        config.layers.image_sight = ImageSight::AllInWindows;
    }
    // The class of the unified model has no such key, and always shares.
    let keys_as_values = text.bool("attention_k_eq_v")?;
    config.layers.keys_as_values = keys_as_values.unwrap_or(false);
    let n_shared = text.usize("num_kv_shared_layers")?.unwrap_or(0);
    config.layers.n_shared_kv = n_shared;
    if text.bool("use_double_wide_mlp")? == Some(true) && n_shared > 0 {
        let (n_layers, d_ff) = (config.n_layers, config.d_ff);
        let first = n_layers.saturating_sub(n_shared);
        let width = |layer| if layer < first { d_ff } else { 2 * d_ff };
        config.layers.d_ff = (0..n_layers).map(width).collect();
        drop_equal_widths(config);
    }
    read_heads(text, config)
}

fn read_experts(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let has = text.bool("enable_moe_block")?.unwrap_or(false);
    match (has, &config.experts) {
        (false, _) => config.experts = None,
        (true, Some(_)) => {}
        (true, None) => {
            return Err(Error::MissingKey {
                file: text.file.into(),
                key: "num_experts".into(),
            });
        }
    }
    Ok(())
}

fn read_embeddings(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    is_unified: bool,
) -> Result<(), Error> {
    const KEY: &str = "vocab_size_per_layer_input";
    let default = match is_unified || text.map.contains_key("hidden_size_per_layer_input") {
        true => 0,
        false => 256,
    };
    let dim = text.usize("hidden_size_per_layer_input")?;
    config.layers.embedding_dim = dim.unwrap_or(default);
    let n_rows = text.usize(KEY)?.unwrap_or(262_144);
    if config.layers.embedding_dim > 0 && n_rows != config.vocab_size {
        let feature = format!("`{KEY}` = {n_rows} beside {} tokens", config.vocab_size);
        return Err(text.unsupported(feature, "a row a token"));
    }
    Ok(())
}

/// Heads of both kinds of layers, and their RoPE.
fn read_heads(text: &ConfigObject<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    let (head_dim, n_kv_heads) = (config.head_dim, config.n_kv_heads);
    let sliding = HeadSizes {
        n_kv_heads,
        head_dim,
        n_rot: head_dim,
    };
    config.head_dim = text.usize("global_head_dim")?.unwrap_or(512);
    // A head count of global layers counts where their keys are values.
    let n_global = text.usize("num_global_key_value_heads")?;
    config.n_kv_heads = n_global
        .filter(|_| config.layers.keys_as_values)
        .unwrap_or(n_kv_heads);
    if let Some(layers) = text.object("per_layer_config")? {
        let [sizes, others] = layer_sizes(text, &layers, config, [n_kv_heads, head_dim])?;
        if others.is_some_and(|others| others != [n_kv_heads, head_dim]) {
            let feature = "`per_layer_config` of sliding layers".into();
            return Err(text.unsupported(feature, "sizes of global layers there"));
        }
        [config.n_kv_heads, config.head_dim] = sizes.unwrap_or([n_kv_heads, head_dim]);
    }
    config.n_rot = config.head_dim;
    read_ropes(text, config, head_dim)?;
    set_sliding(config, sliding);
    Ok(())
}

/// Key heads and head size of global layers and of sliding ones, each of which must be uniform.
fn layer_sizes(
    text: &ConfigObject<'_>,
    layers: &ConfigObject<'_>,
    config: &ModelConfig,
    usual: [usize; 2],
) -> Result<[Option<[usize; 2]>; 2], Error> {
    let mut found = [None; 2];
    for layer in 0..config.n_layers {
        let sizes = match layers.object(&layer.to_string())? {
            Some(own) => [
                own.usize("num_key_value_heads")?.unwrap_or(usual[0]),
                own.usize("head_dim")?.unwrap_or(usual[1]),
            ],
            None => usual,
        };
        let kind = &mut found[usize::from(config.layer_windowed[layer])];
        if kind.is_some_and(|kind| kind != sizes) {
            let feature = "`per_layer_config` that differs among layers of one kind".into();
            let known = "one size for all sliding or global layers";
            return Err(text.unsupported(feature, known));
        }
        *kind = Some(sizes);
    }
    Ok(found)
}

fn read_ropes(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    sliding_dim: usize,
) -> Result<(), Error> {
    let family = arch::by_name(config.family);
    let given = text.object("rope_parameters")?.is_some();
    let read = |kind: &str, head_dim| {
        hf::rope_of_kind(family, text, kind, (config.context_length, head_dim))
    };
    let (global, local) = match given {
        true => (
            read("full_attention", config.head_dim)?,
            read("sliding_attention", sliding_dim)?,
        ),
        false => (
            RopeConfig {
                theta: 1_000_000.0,
                scaling: RopeScaling::Proportional {
                    factor: 1.0,
                    n_rotated: config.head_dim / 8,
                },
            },
            RopeConfig::plain(10_000.0),
        ),
    };
    for rope in [&global, &local] {
        if !matches!(
            rope.scaling,
            RopeScaling::None | RopeScaling::Proportional { .. }
        ) {
            let feature = format!("RoPE scaling {:?} in gemma4", rope.scaling);
            return Err(text.unsupported(feature, "default, proportional"));
        }
    }
    config.rope = global;
    name_full_rotation(config);
    config.rope_local = Some(local).filter(|_| config.window.is_some());
    Ok(())
}

pub(super) fn write_hf(config: &ModelConfig, out: &mut Value) {
    let layers = &config.layers;
    let sliding = layers.sliding_heads.unwrap_or(HeadSizes {
        n_kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        n_rot: config.n_rot,
    });
    if let Some(map) = out.as_object_mut() {
        let act = map.remove("hidden_act");
        map.insert("hidden_activation".into(), act.unwrap_or_default());
    }
    out["num_key_value_heads"] = json!(sliding.n_kv_heads);
    out["head_dim"] = json!(sliding.head_dim);
    out["global_head_dim"] = json!(config.head_dim);
    out["num_global_key_value_heads"] = json!(config.n_kv_heads);
    out["attention_k_eq_v"] = json!(layers.keys_as_values);
    // The two keys alone would not count where values have a projection.
    let mut by_layer = Map::new();
    for layer in config.global_layers() {
        let sizes = json!({
            "head_dim": config.head_dim,
            "num_key_value_heads": config.n_kv_heads,
        });
        by_layer.insert(layer.to_string(), sizes);
    }
    out["per_layer_config"] = Value::Object(by_layer);
    out["use_bidirectional_attention"] = match layers.image_sight {
        ImageSight::AllInWindows => json!("vision"),
        ImageSight::Before | ImageSight::All => Value::Null,
    };
    out["num_kv_shared_layers"] = json!(layers.n_shared_kv);
    out["use_double_wide_mlp"] = json!(!layers.d_ff.is_empty());
    out["hidden_size_per_layer_input"] = json!(layers.embedding_dim);
    out["vocab_size_per_layer_input"] = json!(config.vocab_size);
    out["enable_moe_block"] = json!(config.experts.is_some());
    out["final_logit_softcapping"] = config.logit_softcap.map_or(Value::Null, shortest);
}

pub(super) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let size = |size: usize| GgufValue::U32(u32::try_from(size).unwrap_or(u32::MAX));
    let list = |sizes: Vec<usize>| {
        let sizes = sizes.into_iter();
        let sizes = sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        GgufValue::Array(GgufArray::U32(sizes.collect()))
    };
    let layers = &config.layers;
    set("attention.shared_kv_layers", size(layers.n_shared_kv));
    set(
        "embedding_length_per_layer_input",
        size(layers.embedding_dim),
    );
    let all = 0..config.n_layers;
    let heads: Vec<HeadSizes> = all.map(|layer| config.heads_of(layer)).collect();
    let sliding = layers.sliding_heads.unwrap_or(HeadSizes {
        n_kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        n_rot: config.n_rot,
    });
    set("attention.key_length_swa", size(sliding.head_dim));
    set("attention.value_length_swa", size(sliding.head_dim));
    set("rope.dimension_count_swa", size(sliding.n_rot));
    if sliding.n_kv_heads != config.n_kv_heads {
        let kv_heads = heads.iter().map(|heads| heads.n_kv_heads).collect();
        set("attention.head_count_kv", list(kv_heads));
    }
    if !layers.d_ff.is_empty() {
        set("feed_forward_length", list(layers.d_ff.clone()));
    }
}
