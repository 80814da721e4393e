//! RoPE parameters in the spellings of transformers 4 and 5.

use serde_json::Value;

use super::{ConfigObject, HfWindows, shortest};
use crate::Error;
use crate::arch::Family;
use crate::config::{LongScaling, ModelConfig, RopeConfig, RopeScaling, YarnScaling};

/// RoPE of global layers and, where the family distinguishes them, of sliding layers.
pub(super) fn read(
    family: &'static Family,
    text: &ConfigObject<'_>,
    (context_length, head_dim): (usize, usize),
) -> Result<(RopeConfig, Option<RopeConfig>), Error> {
    let theta = text
        .f32("rope_theta")?
        .unwrap_or(family.hf_defaults.rope_theta);
    let parameters = text.object("rope_parameters")?;
    let by_type = |kind: &str| match &parameters {
        Some(parameters) => parameters.object(kind),
        None => Ok(None),
    };
    let (full, sliding) = (by_type("full_attention")?, by_type("sliding_attention")?);
    let nested = full.is_some() || sliding.is_some();
    let version4 = text.object("rope_scaling")?;
    let global = if nested {
        full
    } else {
        version4.or(parameters)
    };
    let original = text.usize("original_max_position_embeddings")?;
    let local_default = match family.unscaled_local_rope {
        true => Some(theta),
        false => family.local_rope_theta,
    };
    // OLMo 2 has no windows in folders: its class has one RoPE.
    let is_split = local_default.is_some() && !matches!(family.hf_windows, HfWindows::Never);
    let reader = RopeReader {
        family,
        context_length,
        head_dim,
        original,
        partial: text.f64(PARTIAL)?,
        by_type: nested || is_split,
    };
    let rope = reader.read(global.as_ref(), theta)?;
    let Some(local_theta) = local_default else {
        // A family with one RoPE: that of sliding layers must be the same.
        if let Some(sliding) = &sliding
            && reader.read(Some(sliding), theta)? != rope
        {
            let feature = "another RoPE for sliding layers (`rope_parameters`)".into();
            return Err(text.unsupported(feature, "one RoPE for all layers in this family"));
        }
        return Ok((rope, None));
    };
    let local_theta = text.f32("rope_local_base_freq")?.unwrap_or(local_theta);
    let local = reader.read(sliding.as_ref(), local_theta)?;
    Ok((rope, Some(local)))
}

/// RoPE of layers of a kind, whose heads have a different size.
///
/// # Errors
/// As every RoPE; [`Error::MissingKey`] where `rope_parameters` do not name the kind.
pub(crate) fn rope_of_kind(
    family: &'static Family,
    text: &ConfigObject<'_>,
    kind: &str,
    (context_length, head_dim): (usize, usize),
) -> Result<RopeConfig, Error> {
    let parameters = text.object("rope_parameters")?;
    let of_kind = match &parameters {
        Some(parameters) => parameters.object(kind)?,
        None => None,
    };
    let of_kind = of_kind.ok_or_else(|| Error::MissingKey {
        file: text.file.into(),
        key: format!("rope_parameters.{kind}"),
    })?;
    let reader = RopeReader {
        family,
        context_length,
        head_dim,
        original: None,
        partial: None,
        by_type: true,
    };
    reader.read(Some(&of_kind), family.hf_defaults.rope_theta)
}

/// The key of a base for each layer, 0 in layers whose heads do not rotate.
const LAYER_THETAS: &str = "layer_rope_theta";

/// Layers whose heads do not rotate, from a list of bases in which the others have `theta`; `None` without a list.
///
/// # Errors
/// [`Error::Unsupported`] for a base that differs from `theta` and from 0.
pub(crate) fn unrotated_layers(
    text: &ConfigObject<'_>,
    theta: f32,
) -> Result<Option<Vec<usize>>, Error> {
    let Some(thetas) = text.array(LAYER_THETAS)? else {
        return Ok(None);
    };
    let mut unrotated = Vec::new();
    for (layer, found) in thetas.iter().enumerate() {
        match found.as_f64() {
            Some(0.0) => unrotated.push(layer),
            Some(own) if own as f32 == theta => {}
            Some(own) => {
                let feature = format!("a RoPE base of {own} in layer {layer} (`{LAYER_THETAS}`)");
                return Err(text.unsupported(feature, "0, or the base of all layers"));
            }
            None => return Err(text.bad(LAYER_THETAS, found, "a list of numbers")),
        }
    }
    Ok(Some(unrotated))
}

/// The list that [`unrotated_layers`] reads.
pub(crate) fn write_unrotated_layers(config: &ModelConfig, out: &mut Value) {
    let theta = |layer| match config.rotates(layer) {
        true => shortest(config.rope.theta),
        false => 0.into(),
    };
    out[LAYER_THETAS] = (0..config.n_layers).map(theta).collect();
}

/// The share of a head that rotates.
const PARTIAL: &str = "partial_rotary_factor";

/// Growth of YaRN's factor on all elements of queries and keys with the scaling.
const MSCALE_ALL_DIM: &str = "mscale_all_dim";

/// Elements of a head that rotate.
pub(super) fn n_rot(
    family: &Family,
    text: &ConfigObject<'_>,
    head_dim: usize,
    rope: &RopeConfig,
) -> Result<usize, Error> {
    // There the share gives the number of pairs that rotate, and frequencies are those of the whole head.
    if matches!(rope.scaling, RopeScaling::Proportional { .. }) {
        return Ok(head_dim);
    }
    let mut nested = None;
    if let Some(rope) = text.object("rope_parameters")? {
        // In an object by type of layer, keys beside the types have no meaning.
        nested = match rope.object("full_attention")? {
            Some(full) => full.f64(PARTIAL)?,
            None => rope.f64(PARTIAL)?,
        };
    } else if let Some(rope) = text.object("rope_scaling")? {
        nested = rope.f64(PARTIAL)?;
    }
    let own = nested.or(text.f64(PARTIAL)?);
    let factor = own.unwrap_or(family.hf_partial_rotary);
    if factor != 1.0 && !family.rotates_part() {
        let feature = format!("`{PARTIAL}` = {factor} in {}", family.name);
        return Err(text.unsupported(feature, "heads that rotate as a whole in this family"));
    }
    // As transformers: `int(head_dim * factor)`.
    Ok((head_dim as f64 * factor) as usize)
}

/// Elements that rotate in heads of `head_dim` elements, in layers of a kind that `rope_parameters` name.
pub(crate) fn n_rot_of_kind(
    family: &Family,
    text: &ConfigObject<'_>,
    (kind, head_dim): (&str, usize),
) -> Result<usize, Error> {
    let parameters = text.object("rope_parameters")?;
    let of_kind = match &parameters {
        Some(parameters) => parameters.object(kind)?,
        None => None,
    };
    let own = match &of_kind {
        Some(of_kind) => of_kind.f64(PARTIAL)?,
        None => None,
    };
    let share = own.unwrap_or(family.hf_partial_rotary);
    Ok((head_dim as f64 * share) as usize)
}

struct RopeReader {
    family: &'static Family,
    context_length: usize,
    head_dim: usize,
    /// The original context beside the dictionary, which takes precedence over the one within.
    original: Option<usize>,
    /// The share of a head beside the dictionary.
    partial: Option<f64>,
    /// Whether the class has a dictionary for each type of layer. It then does not read `truncate` in them
    /// (transformers, `_compute_yarn_parameters`).
    by_type: bool,
}

impl RopeReader {
    /// One RoPE dictionary; `theta` is the base if the dictionary has none.
    fn read(&self, rope: Option<&ConfigObject<'_>>, theta: f32) -> Result<RopeConfig, Error> {
        let Some(rope) = rope else {
            return Ok(RopeConfig::plain(theta));
        };
        let theta = rope.f32("rope_theta")?.unwrap_or(theta);
        let name = match rope.str("rope_type")? {
            // Sections of a head rotate by time, row and column of an image; for text all three are the position.
            Some("mrope") => "default",
            Some(name) => name,
            None => match rope.str("type")? {
                None | Some("mrope") => "default",
                Some(name) => name,
            },
        };
        let scaling = match name {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear {
                factor: number(rope, "factor")?,
            },
            "llama3" => RopeScaling::Llama3 {
                factor: number(rope, "factor")?,
                low_freq_factor: number(rope, "low_freq_factor")?,
                high_freq_factor: number(rope, "high_freq_factor")?,
                original_context: self.original_context(rope)?,
            },
            // The second is a name in files of Sarvam.
            "yarn" | "deepseek_yarn" => self.yarn(rope)?,
            "longrope" => self.long(rope)?,
            "dynamic" => RopeScaling::Dynamic {
                factor: number(rope, "factor")?,
            },
            "proportional" => {
                let share = rope.f64(PARTIAL)?.or(self.partial).unwrap_or(1.0);
                RopeScaling::Proportional {
                    factor: rope.f32("factor")?.unwrap_or(1.0),
                    // As transformers: `int(share * head_dim // 2)`.
                    n_rotated: (share * self.head_dim as f64 / 2.0) as usize,
                }
            }
            _ => {
                let feature = format!("RoPE scaling `{name}`");
                let known = "default, linear, llama3, yarn, longrope, dynamic, proportional";
                return Err(rope.unsupported(feature, known));
            }
        };
        let scales_scores = self.family.yarn_scales_scores
            && rope.f32(MSCALE_ALL_DIM)?.is_some_and(|scale| scale != 0.0);
        if scales_scores && !matches!(scaling, RopeScaling::Yarn(_) | RopeScaling::None) {
            let feature = format!("`{MSCALE_ALL_DIM}` with RoPE scaling `{name}`");
            return Err(rope.unsupported(feature, "yarn"));
        }
        Ok(RopeConfig { theta, scaling })
    }

    fn original_context(&self, rope: &ConfigObject<'_>) -> Result<usize, Error> {
        let own = rope.usize("original_max_position_embeddings")?;
        Ok(self.original.or(own).unwrap_or(self.context_length))
    }

    /// The whole context divided by the original one; a key takes precedence over the sizes.
    fn stretch(&self, rope: &ConfigObject<'_>) -> Result<f64, Error> {
        let original = self.original_context(rope)?.max(1);
        let by_sizes = self.context_length as f64 / original as f64;
        Ok(rope.f64("factor")?.unwrap_or(by_sizes))
    }

    fn yarn(&self, rope: &ConfigObject<'_>) -> Result<RopeScaling, Error> {
        let factor = self.stretch(rope)? as f32;
        // 0 counts as absent there.
        let scale = |key: &str| Ok::<_, Error>(rope.f32(key)?.filter(|scale| *scale != 0.0));
        let recommended = |mscale| YarnScaling::recommended_attention_factor(factor, mscale);
        let all_dim = scale(MSCALE_ALL_DIM)?;
        let attention_factor = match (rope.f32("attention_factor")?, scale("mscale")?, all_dim) {
            (Some(given), _, _) => given,
            (None, Some(one), Some(all)) => recommended(one) / recommended(all),
            (None, ..) => recommended(1.0),
        };
        Ok(RopeScaling::Yarn(YarnScaling {
            factor,
            original_context: self.original_context(rope)?,
            beta_fast: scale("beta_fast")?.unwrap_or(32.0),
            beta_slow: scale("beta_slow")?.unwrap_or(1.0),
            attention_factor,
            score_mscale: all_dim.filter(|_| self.family.yarn_scales_scores),
            truncates: self.by_type || rope.bool("truncate")?.unwrap_or(true),
        }))
    }

    fn long(&self, rope: &ConfigObject<'_>) -> Result<RopeScaling, Error> {
        let original_context = self.original_context(rope)?;
        let recommended =
            LongScaling::recommended_attention_factor(self.stretch(rope)?, original_context);
        Ok(RopeScaling::Long(LongScaling {
            short: numbers(rope, "short_factor")?,
            long: numbers(rope, "long_factor")?,
            original_context,
            attention_factor: rope.f32("attention_factor")?.unwrap_or(recommended),
            uses_long: false,
        }))
    }
}

fn missing(rope: &ConfigObject<'_>, key: &str) -> Error {
    Error::MissingKey {
        file: rope.file.into(),
        key: key.into(),
    }
}

fn number(rope: &ConfigObject<'_>, key: &str) -> Result<f32, Error> {
    rope.f32(key)?.ok_or_else(|| missing(rope, key))
}

fn numbers(rope: &ConfigObject<'_>, key: &str) -> Result<Vec<f32>, Error> {
    let list = rope.array(key)?.ok_or_else(|| missing(rope, key))?;
    let number = |value: &Value| match value.as_f64() {
        Some(number) => Ok(number as f32),
        None => Err(rope.bad(key, value, "a list of numbers")),
    };
    list.iter().map(number).collect()
}
