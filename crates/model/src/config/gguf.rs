//! GGUF metadata: `general.architecture` and the hyperparameters under its name.
//!
//! What the metadata leaves out is in the tensors: the vocabulary's size (rows of the embedding
//! table), a tied head (no `output.weight`), biases, and RoPE factors (`rope_freqs.weight`). Absent
//! keys take llama.cpp's defaults.

mod rope;
mod write;

pub use write::write;

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use millrace_graph::{Gating, RouteGroups};

pub(crate) use rope::RopeTables;

use super::hf::HfWindows;
use super::{
    Biases, EncoderConfig, EncoderPooling, ExpertConfig, LatentConfig, LayerConfig, ModelConfig,
};
use crate::arch::{self, Family};
use crate::names::{TensorName, WeightRole};
use crate::{Error, catalog::Catalog};

/// Metadata keys under the architecture's name.
pub(crate) struct Keys<'a> {
    file: &'a str,
    arch: &'static str,
    metadata: &'a Metadata,
    catalog: &'a Catalog<'a>,
}

impl<'a> Keys<'a> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    pub(crate) fn usize(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.metadata.get_usize(&self.key(key))?)
    }

    pub(crate) fn required(&self, key: &str) -> Result<usize, Error> {
        self.usize(key)?.ok_or_else(|| self.missing(key))
    }

    fn required_f32(&self, key: &str) -> Result<f32, Error> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    fn required_uniform(&self, key: &str) -> Result<usize, Error> {
        self.uniform(key)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> Error {
        Error::MissingKey {
            file: self.file.into(),
            key: self.key(key),
        }
    }

    pub(crate) fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        Ok(self.metadata.get_f32(&self.key(key))?)
    }

    pub(crate) fn str(&self, key: &str) -> Result<Option<&'a str>, Error> {
        Ok(self.metadata.get_str(&self.key(key))?)
    }

    /// A size that may be given once or once a layer; layers must agree.
    pub(crate) fn uniform(&self, key: &str) -> Result<Option<usize>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            return self.usize(key);
        }
        let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
        match sizes.split_first() {
            Some((first, rest)) if rest.iter().all(|size| size == first) => {
                Ok(Some(*first as usize))
            }
            _ => Err(self.unsupported(format!("`{name}` that differs by layer"), "one value")),
        }
    }

    /// A size that may be given once a layer; `None` where it is given once, or not at all.
    pub(crate) fn by_layer(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            return Ok(None);
        }
        let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
        Ok(Some(sizes.into_iter().map(|size| size as usize).collect()))
    }

    /// A size of all layers; of the first one in families where layers may differ, which their hooks sort out.
    fn leading(&self, family: &Family, key: &str) -> Result<Option<usize>, Error> {
        match self.by_layer(key)? {
            Some(sizes) if family.sizes_by_layer => Ok(sizes.first().copied()),
            _ => self.uniform(key),
        }
    }

    /// As [`uniform`](Keys::uniform), zeros left out.
    fn uniform_but_zeros(&self, key: &str) -> Result<Option<usize>, Error> {
        let name = self.key(key);
        if !matches!(self.metadata.get(&name), Some(GgufValue::Array(_))) {
            return self.usize(key);
        }
        let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
        let mut sizes = sizes.into_iter().filter(|size| *size > 0);
        match sizes.next() {
            None => Ok(None),
            Some(first) if sizes.all(|size| size == first) => Ok(Some(first as usize)),
            _ => {
                Err(self.unsupported(format!("`{name}` that differs by layer"), "one value, or 0"))
            }
        }
    }

    /// A size that may be given once or once a layer.
    pub(crate) fn per_layer(&self, key: &str, n_layers: usize) -> Result<Vec<usize>, Error> {
        let name = self.key(key);
        match self.metadata.get(&name) {
            Some(GgufValue::Array(_)) => {
                let sizes = self.metadata.get_u32_array(&name)?.unwrap_or_default();
                Ok(sizes.into_iter().map(|size| size as usize).collect())
            }
            _ => Ok(vec![self.required(key)?; n_layers]),
        }
    }

    /// Flags, a boolean or a number each; one by itself is none.
    pub(crate) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        let name = self.key(key);
        Ok(match self.metadata.get(&name) {
            Some(GgufValue::Array(GgufArray::Bool(flags))) => Some(flags.clone()),
            Some(GgufValue::Array(_)) => {
                let flags = self.metadata.get_i32_array(&name)?.unwrap_or_default();
                Some(flags.into_iter().map(|flag| flag != 0).collect())
            }
            _ => None,
        })
    }

    /// Whether the file has that weight.
    pub(crate) fn has(&self, name: TensorName) -> bool {
        self.catalog.has(&name.gguf())
    }

    pub(crate) fn u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        Ok(self.metadata.get_u32_array(&self.key(key))?)
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        Ok(self.metadata.get_bool(&self.key(key))?)
    }

    pub(crate) fn unsupported(&self, feature: String, supported: &str) -> Error {
        Error::Unsupported {
            file: self.file.into(),
            feature,
            supported: supported.into(),
        }
    }
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
    // Blocks behind the last predict further tokens; a model without them is whole.
    let n_behind = keys.usize("nextn_predict_layers")?.unwrap_or(0);
    let n_layers = keys.required("block_count")?.saturating_sub(n_behind);
    let d_model = keys.required("embedding_length")?;
    let n_heads = keys.required_uniform("attention.head_count")?;
    let latent = latent(&keys)?;
    let head_dim = match latent {
        Some(latent) => latent.q_dim(),
        None => head_dim(family, &keys, d_model, n_heads)?,
    };
    let windows = windows(family, &keys, n_layers)?;
    let experts = experts(family, &keys, catalog, n_layers)?;
    let (rope, rope_local) = rope::read(family, &keys, windows.0.is_some(), tables)?;
    let mut config = ModelConfig {
        family: family.name,
        n_layers,
        d_model,
        d_ff: match (keys.leading(family, "feed_forward_length")?, &experts) {
            (Some(d_ff), _) if d_ff > 0 => d_ff,
            (_, Some(experts)) => experts.d_ff,
            _ => keys.required_uniform("feed_forward_length")?,
        },
        n_heads,
        n_kv_heads: match family.hf_windows {
            HfWindows::Recurrent => keys.uniform_but_zeros("attention.head_count_kv")?,
            _ => keys.leading(family, "attention.head_count_kv")?,
        }
        .unwrap_or(n_heads),
        head_dim,
        vocab_size: vocab_size(catalog)?,
        context_length: keys.required("context_length")?,
        norm_eps: match keys.f32("attention.layer_norm_epsilon")? {
            Some(eps) if family.layer_norms => eps,
            _ => keys.required_f32("attention.layer_norm_rms_epsilon")?,
        },
        rope,
        rope_local,
        window: windows.0,
        layer_windowed: windows.1,
        // One matrix alone serves as both.
        tied_head: [WeightRole::TokenEmbedding, WeightRole::Output]
            .iter()
            .any(|role| !catalog.has(&TensorName::global(*role).gguf())),
        // Set below: the default depends on the sizes above.
        attention_scale: 1.0,
        embed_scale: factor(&keys, "embedding_scale")?
            .unwrap_or_else(|| family.embed_scale(d_model)),
        activation: family.activation,
        biases: biases(catalog),
        n_rot: match latent {
            Some(latent) => latent.rope_dim,
            None => keys.usize("rope.dimension_count")?.unwrap_or(head_dim),
        },
        unrotated_layers: Vec::new(),
        residual_scale: factor(&keys, "residual_scale")?.unwrap_or(1.0),
        logit_scale: match factor(&keys, "logit_scale")? {
            Some(divisor) if family.logit_divisor => 1.0 / divisor,
            factor => factor.unwrap_or(1.0),
        },
        attention_softcap: factor(&keys, "attn_logit_softcapping")?,
        logit_softcap: factor(&keys, "final_logit_softcapping")?,
        temperature: None,
        rope_sections: Vec::new(),
        experts,
        qk_norm: family.hf_qk_norm.is_some()
            && catalog.has(&TensorName::block(0, WeightRole::AttnQNorm).gguf()),
        latent,
        layers: LayerConfig::default(),
        recurrent: None,
        encoder: None,
    };
    config.attention_scale = match keys.f32("attention.scale")? {
        Some(scale) => scale,
        None => family.gguf_attention_scale(&config),
    };
    (family.gguf)(&keys, &mut config)?;
    if let Some(encoder) = &mut config.encoder {
        read_encoder(&keys, catalog, encoder)?;
    }
    config.layers.keys_as_values = family.sizes_by_layer && has_keys_as_values(&config, catalog);
    config.validate(file)?;
    Ok(config)
}

/// What the tensors and keys of an encoder say, whatever its family.
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
    // Spelled so by its first writer, and by all since.
    encoder.separator = keys.metadata.get_u32("tokenizer.ggml.seperator_token_id")?;
    encoder.pooling = match keys.usize("pooling_type")? {
        Some(1) => Some(EncoderPooling::Mean),
        Some(2) => Some(EncoderPooling::First),
        Some(3) => Some(EncoderPooling::Last),
        // None, or that of a head for ranking.
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

/// A number that 0 leaves unsaid.
fn factor(keys: &Keys<'_>, key: &str) -> Result<Option<f32>, Error> {
    Ok(keys.f32(key)?.filter(|factor| *factor != 0.0))
}

/// Sizes of latent attention. Files of today have the two matrices of a head; older ones have them as one.
fn latent(keys: &Keys<'_>) -> Result<Option<LatentConfig>, Error> {
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
    Ok(Some(LatentConfig {
        q_rank: keys.usize("attention.q_lora_rank")?.filter(|n| *n > 0),
        kv_rank,
        nope_dim: q_dim.saturating_sub(rope_dim),
        rope_dim,
        v_dim: size(value, "attention.value_length")?,
        norm_eps: keys.required_f32("attention.layer_norm_rms_epsilon")?,
    }))
}

fn experts(
    family: &Family,
    keys: &Keys<'_>,
    catalog: &Catalog<'_>,
    n_layers: usize,
) -> Result<Option<ExpertConfig>, Error> {
    let Some(n_experts) = keys.usize("expert_count")?.filter(|n| *n > 0) else {
        return Ok(None);
    };
    let has = |name: TensorName| catalog.has(&name.gguf());
    let layers = 0..n_layers.min(super::MAX_LAYERS);
    // The first layer that has experts says what all have.
    let first = layers
        .clone()
        .find(|layer| has(TensorName::block(*layer, WeightRole::Router)));
    let first = first.unwrap_or(0);
    let defaults = &family.experts;
    let d_ff = match keys
        .uniform("expert_feed_forward_length")?
        .filter(|n| *n > 0)
    {
        Some(d_ff) => d_ff,
        None => keys.required_uniform("feed_forward_length")?,
    };
    let n_shared = keys.usize("expert_shared_count")?.unwrap_or(0);
    let shared_name = TensorName::block(first, WeightRole::SharedUp);
    let shared_d_ff = match keys
        .usize("expert_shared_feed_forward_length")?
        .filter(|n| *n > 0)
    {
        Some(d_ff) => d_ff,
        // The tensor knows where the key is absent.
        None => match catalog.shape(&shared_name.gguf()) {
            Some(&[d_ff, _]) => d_ff,
            _ => n_shared.saturating_mul(d_ff),
        },
    };
    let gating = match keys.usize("expert_gating_func")?.unwrap_or(0) {
        0 => defaults.gating,
        1 => Gating::Softmax,
        2 => Gating::Sigmoid,
        3 => Gating::SoftmaxChosen,
        other => {
            let feature = format!("`{}` = {other}", keys.key("expert_gating_func"));
            return Err(keys.unsupported(
                feature,
                "1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)",
            ));
        }
    };
    let normalized = match keys.bool("expert_weights_norm")? {
        Some(true) => Some(defaults.normalized.unwrap_or(0.0)),
        Some(false) => None,
        None => defaults.normalized,
    };
    let groups = match (
        keys.usize("expert_group_count")?,
        keys.usize("expert_group_used_count")?,
    ) {
        (Some(n_groups), Some(n_used)) if n_groups > 1 => Some(RouteGroups {
            n_groups,
            n_used,
            n_best: defaults.group_best,
        }),
        _ => None,
    };
    let leading = keys.usize("leading_dense_block_count")?.unwrap_or(0);
    let is_dense = |layer: &usize| !has(TensorName::block(*layer, WeightRole::Router));
    Ok(Some(ExpertConfig {
        n_experts,
        n_used: keys.required("expert_used_count")?,
        d_ff,
        gating,
        normalized,
        scale: factor(keys, "expert_weights_scale")?.unwrap_or(1.0),
        groups,
        choice_bias: has(TensorName::router_bias(first)),
        shared_d_ff,
        shared_gate: has(TensorName::block(first, WeightRole::SharedRouter)),
        n_dense_layers: leading,
        every: 1,
        // Whatever the keys say, a layer without a router has none; where all lack it, the graph names it.
        dense_layers: match layers.clone().all(|layer| is_dense(&layer)) {
            true => Vec::new(),
            false => layers.filter(|l| *l >= leading && is_dense(l)).collect(),
        },
        biases: has(TensorName::block(first, WeightRole::ExpertsDown).bias()),
    }))
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

/// Features that change the function a model computes and that no family here has.
fn refuse_features(family: &Family, keys: &Keys<'_>) -> Result<(), Error> {
    let neutral = [
        ("attention.clamp_kqv", 0.0, "clamped projections"),
        ("attention.max_alibi_bias", 0.0, "ALiBi"),
    ];
    for (key, neutral, what) in neutral {
        if let Some(value) = keys
            .f32(key)?
            .filter(|value| *value != neutral && *value != 0.0)
        {
            let feature = format!("{what} (`{}` = {value})", keys.key(key));
            return Err(keys.unsupported(feature, "models without it"));
        }
    }
    let causal = keys.key("attention.causal");
    if keys.metadata.get_bool(&causal)? == Some(false) && !family.is_encoder {
        return Err(keys.unsupported(format!("`{causal}` = false"), "causal language models"));
    }
    Ok(())
}

fn head_dim(
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
    for (key, what) in same.into_iter().take(n_same) {
        if let Some(found) = keys.usize(key)?.filter(|found| *found != head_dim) {
            let feature = format!("{what} (`{}` = {found})", keys.key(key));
            return Err(keys.unsupported(feature, &format!("the head size {head_dim}")));
        }
    }
    Ok(head_dim)
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

/// A block with a bias says that all have one; the checks of the graph find any that lack it.
fn biases(catalog: &Catalog<'_>) -> Biases {
    let has = |role| catalog.has(&TensorName::block(0, role).bias().gguf());
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
        ffn: has(WeightRole::FfnGate) || has(WeightRole::FfnUp) || has(WeightRole::FfnDown),
    }
}

/// The window and the layers that use it.
fn windows(
    family: &Family,
    keys: &Keys<'_>,
    n_layers: usize,
) -> Result<(Option<usize>, Vec<bool>), Error> {
    if n_layers > super::MAX_LAYERS {
        return Err(Error::BadValue {
            file: keys.file.into(),
            key: keys.key("block_count"),
            found: n_layers.to_string(),
            expected: format!("at most {}", super::MAX_LAYERS),
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
        Some(layers) => layers,
        None => {
            let given = keys.usize(pattern)?.or(family.gguf_window_pattern);
            // A family that no program windows by default: the key alone is a stray.
            let Some(pattern) = given else {
                return Ok(none());
            };
            // A pattern of 0 has no global layer at all (llama.cpp, `set_swa_pattern`).
            let slides = |layer: usize| pattern == 0 || !(layer + 1).is_multiple_of(pattern);
            (0..n_layers).map(slides).collect()
        }
    };
    Ok((Some(window), layers))
}
