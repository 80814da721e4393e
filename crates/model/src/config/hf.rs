//! `config.json` of Hugging Face folders, as transformers 4 and 5 write it.
//!
//! The two versions differ in RoPE only. Version 4 has `rope_theta`, `rope_local_base_freq` and
//! `rope_scaling` beside each other, version 5 has one `rope_parameters`, flat or by layer type.
//! Absent keys take the defaults of the family's transformers class (`HfDefaults`), because
//! `save_pretrained` leaves out values of nested configurations that equal them.

mod experts;
mod family;
mod object;
mod rope;
mod spelling;
mod windows;
mod write;

use serde_json::Value;

use super::{Biases, EncoderConfig, ExpertConfig, LayerConfig, ModelConfig};
use crate::Error;
use crate::arch::Family;
use millrace_format::Packing;
use millrace_graph::Activation;

pub(crate) use experts::{HfExperts, HfShared};
pub(crate) use object::ConfigObject;
pub(crate) use rope::{n_rot_of_kind, rope_of_kind, unrotated_layers, write_unrotated_layers};
pub(crate) use spelling::{FULL, HfObject, SLIDING, Spelling, words_of};
pub(crate) use windows::HfWindows;
pub use write::write;
pub(crate) use write::{activation_name, share, shortest};

/// The defaults of a family's transformers configuration class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HfDefaults {
    pub(crate) vocab_size: usize,
    pub(crate) d_model: usize,
    pub(crate) d_ff: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    /// `None`: as many as query heads.
    pub(crate) n_kv_heads: Option<usize>,
    /// `None`: `d_model / n_heads`.
    pub(crate) head_dim: Option<usize>,
    pub(crate) context_length: usize,
    pub(crate) tied_head: bool,
    pub(crate) rope_theta: f32,
}

/// Reads a `config.json`. `file` is for messages.
///
/// # Errors
/// An architecture, RoPE scaling, activation or feature outside the table of families, named; a
/// value of the wrong type; sizes that do not fit each other.
pub fn read(file: &str, config: &Value) -> Result<ModelConfig, Error> {
    let map = config.as_object().ok_or_else(|| Error::BadValue {
        file: file.into(),
        key: "config.json".into(),
        found: "not an object".into(),
        expected: "an object".into(),
    })?;
    let outer = ConfigObject { file, map };
    // Multimodal models keep the language model's hyperparameters in an inner object.
    let inner = outer.object("text_config")?;
    let family = family::of(&outer, inner.as_ref())?;
    let has_head = !family::is_headless(family, &outer)?;
    let text = inner.unwrap_or(outer);
    let spelled = (family.hf_spelling)(&text)?;
    let text = ConfigObject {
        map: spelled.as_ref().unwrap_or(text.map),
        ..text
    };
    for object in [&outer, &text] {
        refuse_features(family, object)?;
    }
    let mut config = read_text(family, &outer, &text)?;
    // Without a head of its own the table is it.
    config.tied_head |= !has_head;
    config.validate(file)?;
    Ok(config)
}

/// Features that change the function a model computes and that no family here has.
fn refuse_features(family: &Family, config: &ConfigObject<'_>) -> Result<(), Error> {
    for key in experts::COUNTS
        .iter()
        .filter(|_| family.hf_experts.is_none())
    {
        if config
            .get(key)
            .is_some_and(|value| value.as_u64() != Some(0))
        {
            let feature = format!("mixture of experts (`{key}`) in {}", family.name);
            return Err(config.unsupported(feature, "dense models of this family"));
        }
    }
    // Text stays causal where only the elements of images see each other.
    let both_ways = config.get("use_bidirectional_attention");
    let is_other = |found: &&Value| **found != false && **found != "vision";
    if let Some(found) = both_ways.filter(is_other).filter(|_| !family.is_encoder()) {
        let feature = format!("`use_bidirectional_attention` = {found}");
        return Err(config.unsupported(feature, "causal language models"));
    }
    if !family.owns_hf_key(PACKING_KEY) {
        refuse_packing(config)?;
    }
    let unrotated = ["no_rope_layers", "no_rope_layer_interval"];
    for key in unrotated.iter().filter(|key| !family.owns_hf_key(key)) {
        if config.get(key).is_some() {
            let feature = format!("layers without RoPE (`{key}`)");
            return Err(config.unsupported(feature, "RoPE in every layer"));
        }
    }
    Ok(())
}

/// The object that says how a quantiser packed the matrices.
pub(crate) const PACKING_KEY: &str = "quantization_config";

/// Refuses matrices in a packing that no reader here knows.
pub(crate) fn refuse_packing(config: &ConfigObject<'_>) -> Result<(), Error> {
    let unknown = config.get(PACKING_KEY).map(Packing::read);
    match unknown.and_then(Result::err) {
        Some(unknown) => Err(config.unsupported(unknown.feature, unknown.supported)),
        None => Ok(()),
    }
}

fn read_text(
    family: &'static Family,
    outer: &ConfigObject<'_>,
    text: &ConfigObject<'_>,
) -> Result<ModelConfig, Error> {
    let defaults = &family.hf_defaults;
    let size = |key: &str, default: usize| -> Result<usize, Error> {
        Ok(text.usize(key)?.unwrap_or(default))
    };
    let d_model = size("hidden_size", defaults.d_model)?;
    let n_heads = size("num_attention_heads", defaults.n_heads)?;
    let n_kv_heads = text.usize("num_key_value_heads")?.or(defaults.n_kv_heads);
    let head_dim = head_dim(text, defaults, (d_model, n_heads))?;
    let n_layers = size("num_hidden_layers", defaults.n_layers)?;
    let context_length = size("max_position_embeddings", defaults.context_length)?;
    let windows = family.hf_windows.read(text, n_layers)?;
    let (rope, rope_local) = rope::read(family, text, (context_length, head_dim))?;
    let n_rot = rope::n_rot(family, text, head_dim, &rope)?;
    let mut config = ModelConfig {
        family: family.name,
        n_layers,
        d_model,
        d_ff: d_ff(family, text)?,
        n_heads,
        n_kv_heads: n_kv_heads.unwrap_or(n_heads),
        head_dim,
        vocab_size: size("vocab_size", defaults.vocab_size)?,
        context_length,
        norm_eps: norm_eps(family, text)?,
        rope,
        rope_local: rope_local.filter(|_| windows.window.is_some()),
        window: windows.window,
        layer_windowed: windows.layers,
        tied_head: tied_head(outer, text)?.unwrap_or(defaults.tied_head),
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        embed_scale: family.embed_scale(d_model),
        activation: activation(family, text)?,
        biases: biases(family, text)?,
        n_rot,
        unrotated_layers: Vec::new(),
        query_scale: 1.0,
        residual_scale: text.f32("residual_multiplier")?.unwrap_or(1.0),
        logit_scale: 1.0,
        // Other classes have the key and do not read it.
        attention_softcap: None,
        logit_softcap: text.f32("final_logit_softcapping")?,
        temperature: None,
        max_distance_bias: None,
        rope_sections: Vec::new(),
        experts: experts(family, text)?,
        qk_norm: qk_norm(family, text)?,
        latent: None,
        layers: LayerConfig::default(),
        recurrent: None,
        encoder: family.is_encoder().then(EncoderConfig::default),
    };
    (family.fixed)(&mut config);
    (family.hf)(text, &mut config)?;
    Ok(config)
}

/// Whether one matrix is table and head, if the inner or the outer object says so.
fn tied_head(outer: &ConfigObject<'_>, text: &ConfigObject<'_>) -> Result<Option<bool>, Error> {
    let key = "tie_word_embeddings";
    Ok(match (text.bool(key)?, outer.bool(key)?) {
        // transformers goes by the outer flag; where the file has a separate head, the head decides.
        (Some(own), Some(outer)) => Some(own || outer),
        (own, outer) => own.or(outer),
    })
}

/// Width of the feed-forward; the first one of a list, in families that have lists.
fn d_ff(family: &Family, text: &ConfigObject<'_>) -> Result<usize, Error> {
    const KEY: &str = "intermediate_size";
    let is_list = text.get(KEY).is_some_and(Value::is_array);
    let found = match family.owns_hf_key(KEY) && is_list {
        true => text.usizes(KEY)?.and_then(|sizes| sizes.first().copied()),
        false => text.usize(KEY)?,
    };
    Ok(found.unwrap_or(family.hf_defaults.d_ff))
}

fn norm_eps(family: &Family, text: &ConfigObject<'_>) -> Result<f32, Error> {
    let eps = match family.layer_norms {
        true => text.f32("layer_norm_eps")?.or(text.f32("norm_epsilon")?),
        false => text.f32("rms_norm_eps")?,
    };
    Ok(eps.unwrap_or(family.hf_norm_eps))
}

fn experts(family: &Family, text: &ConfigObject<'_>) -> Result<Option<ExpertConfig>, Error> {
    match &family.hf_experts {
        Some(keys) => keys.read(family, text),
        None => Ok(None),
    }
}

fn qk_norm(family: &Family, text: &ConfigObject<'_>) -> Result<bool, Error> {
    match family.hf_qk_norm {
        Some(key) => Ok(text.bool(key)?.unwrap_or(false)),
        None => Ok(false),
    }
}

fn head_dim(
    text: &ConfigObject<'_>,
    defaults: &HfDefaults,
    (d_model, n_heads): (usize, usize),
) -> Result<usize, Error> {
    // `null` differs from an absent key: the size then follows from the others.
    let is_absent = !text.map.contains_key("head_dim");
    let default = defaults.head_dim.filter(|_| is_absent);
    match text.usize("head_dim")?.or(default) {
        Some(head_dim) => Ok(head_dim),
        None => derived_head_dim(text, d_model, n_heads),
    }
}

fn derived_head_dim(
    text: &ConfigObject<'_>,
    d_model: usize,
    n_heads: usize,
) -> Result<usize, Error> {
    if n_heads == 0 || !d_model.is_multiple_of(n_heads) {
        return Err(Error::BadValue {
            file: text.file.into(),
            key: "num_attention_heads".into(),
            found: n_heads.to_string(),
            expected: format!("a divisor of hidden_size {d_model}, as head_dim is absent"),
        });
    }
    Ok(d_model / n_heads)
}

fn activation(family: &Family, text: &ConfigObject<'_>) -> Result<Activation, Error> {
    let keys = ["hidden_activation", "hidden_act"].into_iter();
    for key in keys.filter(|key| !family.owns_hf_key(key)) {
        if let Some(activation) = activation_of(text, key)? {
            return Ok(activation);
        }
    }
    Ok(family.activation)
}

/// The activation that `key` names; `None` where it is absent.
pub(crate) fn activation_of(
    text: &ConfigObject<'_>,
    key: &str,
) -> Result<Option<Activation>, Error> {
    let Some(name) = text.str(key)? else {
        return Ok(None);
    };
    match activation_named(name) {
        Some(activation) => Ok(Some(activation)),
        None => {
            let feature = format!("activation `{name}` (`{key}`)");
            Err(text.unsupported(feature, ACTIVATIONS))
        }
    }
}

/// Names of activations, for messages.
pub(crate) const ACTIVATIONS: &str = "silu, gelu_pytorch_tanh, gelu, relu, relu2";

/// The activation of a name of transformers.
pub(crate) fn activation_named(name: &str) -> Option<Activation> {
    Some(match name {
        "silu" | "swish" => Activation::Silu,
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Activation::GeluTanh,
        "gelu" | "gelu_python" => Activation::Gelu,
        "relu" => Activation::Relu,
        "relu2" => Activation::ReluSquared,
        _ => return None,
    })
}

fn biases(family: &Family, text: &ConfigObject<'_>) -> Result<Biases, Error> {
    if let Some(fixed) = family.hf_biases {
        return Ok(fixed);
    }
    let attention = text.bool("attention_bias")?.unwrap_or(false);
    let ffn = text.bool("mlp_bias")?.unwrap_or(false);
    Ok(Biases {
        qkv: attention,
        attn_output: attention,
        ffn,
    })
}
