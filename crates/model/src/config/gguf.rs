//! GGUF metadata: `general.architecture` and the hyperparameters under its name.
//!
//! Values without a key come from the tensors: the vocabulary's size (rows of the embedding table),
//! a tied head (no `output.weight`), biases, and RoPE factors (`rope_freqs.weight`). Absent keys
//! take llama.cpp's defaults.

mod attention;
mod experts;
mod keys;
mod rope;
mod write;

pub use write::write;

use millrace_format::gguf::Metadata;

use attention::{biases, head_dim, latent, windows};
use experts::experts;
pub(crate) use keys::{ACTIVATION_KEY, Keys};
pub(crate) use rope::{RopeTables, YARN_TRUNCATE};

use super::{EncoderConfig, EncoderPooling, ExpertConfig, LatentConfig, LayerConfig, ModelConfig};
use crate::arch::{self, Family};
use crate::names::{TensorName, WeightRole};
use crate::{Error, catalog::Catalog};
use millrace_graph::Activation;

/// The exponent of two of the least slope by which scores fall with the distance (ALiBi), 0 for none.
pub(crate) const DISTANCE_BIAS_KEY: &str = "attention.max_alibi_bias";

/// Bound of queries, keys and values, which the hooks of families that have one read.
const QKV_BOUND: &str = "attention.clamp_kqv";

/// The bound of queries, keys and values in a file.
pub(crate) fn qkv_bound(keys: &Keys<'_>) -> Result<Option<f32>, Error> {
    factor(keys, QKV_BOUND)
}

/// Reads the configuration of a GGUF file. `tables` are the contents of the tensors of RoPE divisors.
pub(crate) fn read(
    metadata: &Metadata,
    catalog: &Catalog<'_>,
    tables: RopeTables,
) -> Result<ModelConfig, Error> {
    let file = catalog.file();
    let family = family_of(file, metadata)?;
    let keys = Keys {
        file,
        arch: family.gguf_arch,
        metadata,
        catalog,
    };
    refuse_features(family, &keys)?;
    let mut config = read_values(family, &keys, tables)?;
    config.attention_scale = match keys.f32("attention.scale")? {
        Some(scale) => scale,
        None => (family.gguf_attention_scale)(&config),
    };
    (family.fixed)(&mut config);
    (family.gguf)(&keys, &mut config)?;
    if config.layers.qkv_bound.is_none() {
        refuse_factor(&keys, QKV_BOUND, "clamped projections")?;
    }
    if let Some(encoder) = &mut config.encoder {
        read_encoder(&keys, catalog, encoder)?;
    }
    read_values_of_heads(family, &keys, &mut config)?;
    config.layers.keys_as_values = family.sizes_by_layer && has_keys_as_values(&config, catalog);
    config.validate(file)?;
    Ok(config)
}

/// Reads the keys that every family has.
fn read_values(
    family: &'static Family,
    keys: &Keys<'_>,
    tables: RopeTables,
) -> Result<ModelConfig, Error> {
    let catalog = keys.catalog;
    let n_layers = n_layers(family, keys)?;
    let d_model = keys.required("embedding_length")?;
    let (n_heads, latent, head_dim) = heads(family, keys, d_model)?;
    let windows = windows(family, keys, n_layers)?;
    let experts = experts(family, keys, catalog, n_layers)?;
    let (rope, rope_local) = rope::read(family, keys, windows.0.is_some(), tables)?;
    Ok(ModelConfig {
        family: family.name,
        n_layers,
        d_model,
        d_ff: d_ff(family, keys, experts.as_ref())?,
        n_heads,
        n_kv_heads: keys
            .leading(family, "attention.head_count_kv")?
            .unwrap_or(n_heads),
        head_dim,
        vocab_size: vocab_size(catalog)?,
        context_length: keys.required("context_length")?,
        norm_eps: norm_eps(family, keys)?,
        rope,
        rope_local,
        window: windows.0,
        layer_windowed: windows.1,
        tied_head: has_tied_head(catalog),
        // The default depends on the sizes above: the caller sets it.
        attention_scale: 1.0,
        embed_scale: factor(keys, "embedding_scale")?
            .unwrap_or_else(|| family.embed_scale(d_model)),
        activation: activation(family, keys)?,
        biases: biases(catalog, n_layers),
        n_rot: match latent {
            Some(latent) => latent.rope_dim,
            None => keys.usize("rope.dimension_count")?.unwrap_or(head_dim),
        },
        unrotated_layers: Vec::new(),
        query_scale: 1.0,
        residual_scale: factor(keys, "residual_scale")?.unwrap_or(1.0),
        logit_scale: logit_scale(family, keys)?,
        attention_softcap: factor(keys, "attn_logit_softcapping")?,
        logit_softcap: factor(keys, "final_logit_softcapping")?,
        temperature: None,
        max_distance_bias: None,
        rope_sections: Vec::new(),
        experts,
        qk_norm: family.hf_qk_norm.is_some()
            && catalog.has(&TensorName::block(0, WeightRole::AttnQNorm).gguf()),
        latent,
        layers: LayerConfig::default(),
        recurrent: None,
        encoder: family.is_encoder().then(EncoderConfig::default),
    })
}

/// The number of blocks. Those behind the last predict further tokens, and a model is complete without them. An assistant has
/// no others.
fn n_layers(family: &Family, keys: &Keys<'_>) -> Result<usize, Error> {
    let n_blocks = keys.required("block_count")?;
    let n_behind = match family.is_assistant() {
        true => None,
        false => keys.usize("nextn_predict_layers")?,
    };
    Ok(n_blocks.saturating_sub(n_behind.unwrap_or(0)))
}

/// The number of heads, the latent that they share, and elements a head.
fn heads(
    family: &Family,
    keys: &Keys<'_>,
    d_model: usize,
) -> Result<(usize, Option<LatentConfig>, usize), Error> {
    // Files say 0 where nothing attends.
    let n_heads = match family.attention_free {
        true => 1,
        false => keys
            .leading(family, "attention.head_count")?
            .ok_or_else(|| keys.missing("attention.head_count"))?,
    };
    let latent = latent(keys, (d_model, n_heads))?;
    let head_dim = match latent {
        Some(latent) => latent.q_dim(),
        None if family.attention_free => 1,
        None => head_dim(family, keys, d_model, n_heads)?,
    };
    Ok((n_heads, latent, head_dim))
}

/// Whether one matrix alone serves as table and head.
fn has_tied_head(catalog: &Catalog<'_>) -> bool {
    let roles = [WeightRole::TokenEmbedding, WeightRole::Output];
    let is_absent = |role: WeightRole| !catalog.has(&TensorName::global(role).gguf());
    roles.into_iter().any(is_absent)
}

/// Width of the feed-forward; in a model of experts alone, an expert's.
fn d_ff(family: &Family, keys: &Keys<'_>, experts: Option<&ExpertConfig>) -> Result<usize, Error> {
    match (keys.leading(family, "feed_forward_length")?, experts) {
        (Some(d_ff), _) if d_ff > 0 => Ok(d_ff),
        (_, Some(experts)) => Ok(experts.d_ff),
        _ => keys.required_uniform("feed_forward_length"),
    }
}

fn norm_eps(family: &Family, keys: &Keys<'_>) -> Result<f32, Error> {
    match keys.f32("attention.layer_norm_epsilon")? {
        Some(eps) if family.layer_norms => Ok(eps),
        // Some families use this name for norms of any kind.
        Some(eps) => Ok(keys.f32("attention.layer_norm_rms_epsilon")?.unwrap_or(eps)),
        None => keys.required_f32("attention.layer_norm_rms_epsilon"),
    }
}

/// The activation: that of the family, or the one that its files name.
fn activation(family: &Family, keys: &Keys<'_>) -> Result<Activation, Error> {
    let named = match family.owns_gguf_key(ACTIVATION_KEY) {
        true => keys.activation()?,
        false => None,
    };
    Ok(named.unwrap_or(family.activation))
}

fn logit_scale(family: &Family, keys: &Keys<'_>) -> Result<f32, Error> {
    Ok(match factor(keys, "logit_scale")? {
        Some(divisor) if family.logit_divisor => 1.0 / divisor,
        factor => factor.unwrap_or(1.0),
    })
}

/// Reads the size of value heads and the factor on them.
fn read_values_of_heads(
    family: &Family,
    keys: &Keys<'_>,
    config: &mut ModelConfig,
) -> Result<(), Error> {
    if family.small_values {
        let v_dim = keys.usize("attention.value_length")?;
        config.layers.v_dim = v_dim.filter(|v_dim| *v_dim != config.head_dim);
        let scale = factor(keys, VALUE_SCALE)?;
        config.layers.value_scale = scale.filter(|scale| *scale != 1.0);
    } else if let Some(scale) = factor(keys, VALUE_SCALE)?.filter(|scale| *scale != 1.0) {
        let feature = format!("a factor on values (`{}` = {scale})", keys.key(VALUE_SCALE));
        return Err(keys.unsupported(feature, "models without it"));
    }
    Ok(())
}

/// Factor on values.
const VALUE_SCALE: &str = "attention.value_scale";

/// Reads tensors and keys of an encoder of any family.
fn read_encoder(
    keys: &Keys<'_>,
    catalog: &Catalog<'_>,
    encoder: &mut EncoderConfig,
) -> Result<(), Error> {
    let types = TensorName::global(WeightRole::TokenTypes).gguf();
    encoder.n_token_types = match catalog.shape(&types) {
        Some(&[n_types, _]) => n_types,
        // A file of llama.cpp may have the one row as a vector.
        Some(&[_]) => 1,
        _ => 0,
    };
    // The first writer spelled it so, and all others since.
    encoder.separator = keys.metadata.get_u32("tokenizer.ggml.seperator_token_id")?;
    encoder.pooling = match keys.usize("pooling_type")? {
        Some(1) => Some(EncoderPooling::Mean),
        Some(2) => Some(EncoderPooling::First),
        Some(3) => Some(EncoderPooling::Last),
        // No pooling, or that of a head for ranking.
        _ => None,
    };
    Ok(())
}

/// Whether a global layer with keys has no values.
fn has_keys_as_values(config: &ModelConfig, catalog: &Catalog<'_>) -> bool {
    let lacks_values = |layer: usize| {
        let has = |role| catalog.has(&TensorName::block(layer, role).gguf());
        let has_own = config.window_of(layer).is_none() && config.kv_layer_of(layer) == layer;
        has_own && has(WeightRole::AttnK) && !has(WeightRole::AttnV)
    };
    (0..config.n_layers).any(lacks_values)
}

/// A number for which 0 means absent.
fn factor(keys: &Keys<'_>, key: &str) -> Result<Option<f32>, Error> {
    Ok(keys.f32(key)?.filter(|factor| *factor != 0.0))
}

fn family_of(file: &str, metadata: &Metadata) -> Result<&'static Family, Error> {
    let key = "general.architecture";
    let missing = || Error::MissingKey {
        file: file.into(),
        key: key.into(),
    };
    let name = metadata.get_str(key)?.ok_or_else(missing)?;
    arch::by_gguf_arch(name).ok_or_else(|| Error::Architecture {
        file: file.into(),
        found: name.chars().take(80).collect(),
        supported: arch::supported_gguf(),
    })
}

/// Refuses features that change the function of a model and that no family here has.
fn refuse_features(family: &Family, keys: &Keys<'_>) -> Result<(), Error> {
    if !family.owns_gguf_key(DISTANCE_BIAS_KEY) {
        refuse_factor(keys, DISTANCE_BIAS_KEY, "ALiBi")?;
    }
    let causal = keys.key("attention.causal");
    if keys.metadata.get_bool(&causal)? == Some(false) && !family.is_encoder() {
        return Err(keys.unsupported(format!("`{causal}` = false"), "causal language models"));
    }
    Ok(())
}

/// Refuses a number other than 0.
fn refuse_factor(keys: &Keys<'_>, key: &str, what: &str) -> Result<(), Error> {
    match factor(keys, key)? {
        None => Ok(()),
        Some(value) => {
            let feature = format!("{what} (`{}` = {value})", keys.key(key));
            Err(keys.unsupported(feature, "models without it"))
        }
    }
}

fn vocab_size(catalog: &Catalog<'_>) -> Result<usize, Error> {
    let name = TensorName::global(WeightRole::TokenEmbedding).gguf();
    let head = TensorName::global(WeightRole::Output).gguf();
    match catalog.shape(&name).or_else(|| catalog.shape(&head)) {
        Some(&[vocab_size, _]) => Ok(vocab_size),
        Some(shape) => Err(Error::BadValue {
            file: catalog.file().into(),
            key: format!("shape of {name}"),
            found: format!("{shape:?}"),
            expected: "a matrix".into(),
        }),
        None => {
            let key = format!("tensor {name}");
            Err(Error::MissingKey {
                file: catalog.file().into(),
                key,
            })
        }
    }
}
