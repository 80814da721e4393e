//! Heads that differ between layers with a window and the others: in their number, and in the elements that rotate.

use crate::Error;
use crate::arch::{SetKey, by_name};
use crate::config::gguf::Keys;
use crate::config::hf::{ConfigObject, FULL, SLIDING, n_rot_of_kind, share};
use crate::config::{HeadSizes, ModelConfig, RopeScaling};
use millrace_format::gguf::{GgufArray, GgufValue};
use serde_json::{Value, json};

const HEADS: &str = "attention.head_count";
const KV_HEADS: &str = "attention.head_count_kv";
const N_ROT: &str = "rope.dimension_count_swa";
const PARTIAL: &str = "partial_rotary_factor";

/// A size that GGUF files give by layer, which must be one in all layers of a kind; `None` where the model has no such layer.
pub(in crate::arch) fn of_kind(
    keys: &Keys<'_>,
    key: &str,
    (sizes, config): (&[usize], &ModelConfig),
    slides: bool,
) -> Result<Option<usize>, Error> {
    let mut found = None;
    for (layer, size) in sizes.iter().enumerate().take(config.n_layers) {
        if config.window_of(layer).is_some() != slides {
            continue;
        }
        if found.is_some_and(|found| found != *size) {
            let feature = format!("`{key}` that differs among layers of one kind");
            return Err(keys.unsupported(feature, "one value for all sliding or global layers"));
        }
        found = Some(*size);
    }
    Ok(found)
}

/// Sets the heads of layers with a window, where they differ from those of the others.
pub(in crate::arch) fn set_sliding(config: &mut ModelConfig, sliding: HeadSizes) {
    let global = global(config);
    let differ = config.window.is_some() && sliding != global;
    config.layers.sliding_heads = differ.then_some(sliding);
}

/// Sets query heads by layer; a list of equal numbers becomes one number.
pub(in crate::arch) fn set_query_heads(config: &mut ModelConfig, mut heads: Vec<usize>) {
    config.n_heads = heads.first().copied().unwrap_or(config.n_heads);
    if heads.iter().all(|n| *n == config.n_heads) {
        heads.clear();
    }
    config.layers.n_heads = heads;
}

fn global(config: &ModelConfig) -> HeadSizes {
    HeadSizes {
        n_kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        n_rot: config.n_rot,
    }
}

/// Heads of layers with a window.
pub(in crate::arch) fn sliding(config: &ModelConfig) -> HeadSizes {
    config.layers.sliding_heads.unwrap_or(global(config))
}

/// Reads the elements that rotate in layers with a window, which have so many key heads.
pub(in crate::arch) fn hf(
    text: &ConfigObject<'_>,
    config: &mut ModelConfig,
    n_kv_heads: usize,
) -> Result<(), Error> {
    let head_dim = config.head_dim;
    let family = by_name(config.family);
    let n_rot = match config.rope_local.as_ref().map(|rope| &rope.scaling) {
        // There the share gives the number of pairs that rotate.
        Some(RopeScaling::Proportional { .. }) => head_dim,
        _ => n_rot_of_kind(family, text, (SLIDING, head_dim))?,
    };
    let heads = HeadSizes {
        n_kv_heads,
        head_dim,
        n_rot,
    };
    set_sliding(config, heads);
    Ok(())
}

/// Writes `rope_parameters` by type of layer, with the share of a head that rotates in each.
pub(in crate::arch) fn write_hf(config: &ModelConfig, out: &mut Value) {
    if config.rope_local.is_none() {
        let one = out["rope_parameters"].take();
        out["rope_parameters"] = json!({ FULL: one.clone(), SLIDING: one });
    }
    if let Some(words) = out.as_object_mut() {
        words.remove(PARTIAL);
    }
    let kinds = [(FULL, global(config)), (SLIDING, sliding(config))];
    for (
        kind,
        HeadSizes {
            head_dim, n_rot, ..
        },
    ) in kinds
    {
        let rope = &mut out["rope_parameters"][kind];
        if rope["rope_type"] != json!("proportional") {
            rope[PARTIAL] = json!(share(n_rot, head_dim));
        }
    }
}

/// Reads numbers of heads by layer, and the elements that rotate in layers with a window.
pub(in crate::arch) fn gguf(keys: &Keys<'_>, config: &mut ModelConfig) -> Result<(), Error> {
    if let Some(mut heads) = keys.by_layer(HEADS)? {
        heads.truncate(config.n_layers);
        set_query_heads(config, heads);
    }
    let mut kv_heads = [config.n_kv_heads; 2];
    if let Some(sizes) = keys.by_layer(KV_HEADS)? {
        for (heads, slides) in kv_heads.iter_mut().zip([false, true]) {
            *heads = of_kind(keys, KV_HEADS, (&sizes, config), slides)?.unwrap_or(*heads);
        }
    }
    config.n_kv_heads = kv_heads[0];
    let heads = HeadSizes {
        n_kv_heads: kv_heads[1],
        head_dim: config.head_dim,
        n_rot: keys.usize(N_ROT)?.unwrap_or(config.n_rot),
    };
    set_sliding(config, heads);
    cut_factors(config);
    Ok(())
}

/// Cuts a table of RoPE divisors that is as long as the heads of layers with a window need.
pub(in crate::arch) fn cut_factors(config: &mut ModelConfig) {
    let n_pairs = sliding(config).n_rot / 2;
    if let RopeScaling::Factors(factors) = &mut config.rope.scaling
        && factors.len() == n_pairs
    {
        factors.truncate(config.n_rot / 2);
    }
}

/// Writes the keys that [`gguf`] reads.
pub(in crate::arch) fn write_gguf(config: &ModelConfig, set: &mut SetKey<'_>) {
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let list = |of: &dyn Fn(usize) -> usize| {
        let numbers = (0..config.n_layers).map(|layer| number(of(layer)));
        GgufValue::Array(GgufArray::I32(numbers.collect()))
    };
    if !config.layers.n_heads.is_empty() {
        set(HEADS, list(&|layer| config.n_heads_of(layer)));
    }
    let sliding = sliding(config);
    if sliding.n_kv_heads != config.n_kv_heads {
        set(KV_HEADS, list(&|layer| config.heads_of(layer).n_kv_heads));
    }
    if config.window.is_some() {
        let n_rot = u32::try_from(sliding.n_rot).unwrap_or(u32::MAX);
        set(N_ROT, GgufValue::U32(n_rot));
    }
}
