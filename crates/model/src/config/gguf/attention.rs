//! Attention: sizes of heads, latents, biases, windows.

use super::Keys;
use crate::Error;
use crate::arch::Family;
use crate::catalog::Catalog;
use crate::config::latent::LATENT_NORM_EPS;
use crate::config::{Biases, LatentConfig, MAX_LAYERS};
use crate::names::{TensorName, WeightRole};

/// Sizes of latent attention, of a model with width `d_model` and so many heads. Current files have the two matrices of a head; older
/// ones have them as one.
pub(super) fn latent(
    keys: &Keys<'_>,
    (d_model, n_heads): (usize, usize),
) -> Result<Option<LatentConfig>, Error> {
    let Some(kv_rank) = keys.usize("attention.kv_lora_rank")?.filter(|n| *n > 0) else {
        return Ok(None);
    };
    let rope_dim = keys.required("rope.dimension_count")?;
    // Since heads are absorbed, the plain keys hold the cache's sizes.
    let key = keys.usize("attention.key_length_mla")?;
    let value = keys.usize("attention.value_length_mla")?;
    let size = |mla: Option<usize>, plain: &str| match mla.filter(|n| *n > 0) {
        Some(size) => Ok(size),
        None => keys.required(plain),
    };
    let q_dim = size(key, "attention.key_length")?;
    let v_dim = match (value, keys.usize("attention.value_length")?) {
        (None, None) => unsaid_v_dim(keys, (d_model, n_heads), q_dim.saturating_sub(rope_dim)),
        _ => size(value, "attention.value_length")?,
    };
    Ok(Some(LatentConfig {
        q_rank: keys.usize("attention.q_lora_rank")?.filter(|n| *n > 0),
        kv_rank,
        nope_dim: q_dim.saturating_sub(rope_dim),
        rope_dim,
        v_dim,
        // The key is that of the other norms.
        norm_eps: LATENT_NORM_EPS,
    }))
}

/// The size of value heads where no key gives it: the rest of the matrix of keys and values after keys of `nope_dim`
/// elements, else llama.cpp's default.
fn unsaid_v_dim(keys: &Keys<'_>, (d_model, n_heads): (usize, usize), nope_dim: usize) -> usize {
    let n_heads = n_heads.max(1);
    match keys.shape(TensorName::block(0, WeightRole::AttnKvB)) {
        Some(&[n_rows, _]) => (n_rows / n_heads).saturating_sub(nope_dim),
        _ => d_model / n_heads,
    }
}

pub(super) fn head_dim(
    family: &Family,
    keys: &Keys<'_>,
    d_model: usize,
    n_heads: usize,
) -> Result<usize, Error> {
    let head_dim = match keys.usize("attention.key_length")? {
        Some(head_dim) => head_dim,
        None if n_heads > 0 && d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => {
            return Err(Error::BadValue {
                file: keys.file.into(),
                key: keys.key("attention.head_count"),
                found: n_heads.to_string(),
                expected: format!(
                    "a divisor of the embedding length {d_model}, as `{}` is absent",
                    keys.key("attention.key_length")
                ),
            });
        }
    };
    let same = [
        (
            "attention.value_length",
            "value heads of another size than key heads",
        ),
        (
            "attention.key_length_swa",
            "another head size in sliding layers",
        ),
        (
            "attention.value_length_swa",
            "another head size in sliding layers",
        ),
    ];
    let n_same = if family.sizes_by_layer { 1 } else { 3 };
    let n_other = usize::from(family.small_values);
    for (key, what) in same.into_iter().take(n_same).skip(n_other) {
        if let Some(found) = keys.usize(key)?.filter(|found| *found != head_dim) {
            let feature = format!("{what} (`{}` = {found})", keys.key(key));
            return Err(keys.unsupported(feature, &format!("the head size {head_dim}")));
        }
    }
    Ok(head_dim)
}

/// A block with a bias shows that all have one; the checks of the graph find any that lack it.
pub(super) fn biases(catalog: &Catalog<'_>, n_layers: usize) -> Biases {
    // Not every layer attends, and not every layer has a plain network.
    let layers = 0..n_layers.min(MAX_LAYERS);
    let has = |role| {
        let mut names = layers.clone().map(|layer| TensorName::block(layer, role));
        names.any(|name| catalog.has(&name.bias().gguf()))
    };
    Biases {
        qkv: [
            WeightRole::AttnQ,
            WeightRole::AttnK,
            WeightRole::AttnV,
            WeightRole::AttnQkv,
            WeightRole::AttnQA,
            WeightRole::AttnKvA,
        ]
        .into_iter()
        .any(has),
        attn_output: has(WeightRole::AttnOutput),
        ffn: [
            WeightRole::FfnGate,
            WeightRole::FfnUp,
            WeightRole::FfnDown,
            WeightRole::SharedUp,
            WeightRole::SharedDown,
        ]
        .into_iter()
        .any(has),
    }
}

/// The window and the layers that use it.
pub(super) fn windows(
    family: &Family,
    keys: &Keys<'_>,
    n_layers: usize,
) -> Result<(Option<usize>, Vec<bool>), Error> {
    if n_layers > MAX_LAYERS {
        return Err(Error::BadValue {
            file: keys.file.into(),
            key: keys.key("block_count"),
            found: n_layers.to_string(),
            expected: format!("at most {}", MAX_LAYERS),
        });
    }
    let window = keys
        .usize("attention.sliding_window")?
        .filter(|window| *window > 0);
    let none = || (None, vec![false; n_layers]);
    let Some(window) = window else {
        return Ok(none());
    };
    let pattern = "attention.sliding_window_pattern";
    let layers = match keys.flags(pattern)? {
        Some(mut layers) => {
            // Blocks behind the last predict further tokens.
            layers.truncate(n_layers);
            layers
        }
        None => {
            let given = keys.usize(pattern)?.or(family.gguf_window_pattern);
            // A family that no program windows by default: the window's key alone has no meaning.
            let Some(pattern) = given else {
                return Ok(none());
            };
            let slides = |layer: usize| family.slides(layer, pattern);
            (0..n_layers).map(slides).collect()
        }
    };
    Ok((Some(window), layers))
}
