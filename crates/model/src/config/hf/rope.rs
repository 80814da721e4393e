//! RoPE parameters in the spellings of transformers 4 and 5.

use super::ConfigObject;
use crate::Error;
use crate::arch::Family;
use crate::config::{RopeConfig, RopeScaling};

/// RoPE of global layers and, where the family distinguishes them, of sliding layers.
pub(super) fn read(
    family: &Family,
    text: &ConfigObject<'_>,
    context_length: usize,
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
    let reader = RopeReader { context_length };
    let rope = reader.read(global.as_ref(), theta)?;
    let default = match family.unscaled_local_rope {
        true => Some(theta),
        false => family.local_rope_theta,
    };
    let Some(local_theta) = default else {
        // A family with one RoPE: what sliding layers are given must be the same.
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

/// Elements of a head that rotate.
pub(super) fn n_rot(text: &ConfigObject<'_>, head_dim: usize) -> Result<usize, Error> {
    let key = "partial_rotary_factor";
    let nested = match text.object("rope_parameters")? {
        Some(rope) => rope.f32(key)?,
        None => None,
    };
    let factor = nested.or(text.f32(key)?).unwrap_or(1.0);
    // As transformers: `int(head_dim * factor)`.
    Ok((head_dim as f64 * f64::from(factor)) as usize)
}

struct RopeReader {
    context_length: usize,
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
        let number = |key: &str| {
            let missing = || Error::MissingKey {
                file: rope.file.into(),
                key: key.into(),
            };
            rope.f32(key)?.ok_or_else(missing)
        };
        let scaling = match name {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear {
                factor: number("factor")?,
            },
            "llama3" => RopeScaling::Llama3 {
                factor: number("factor")?,
                low_freq_factor: number("low_freq_factor")?,
                high_freq_factor: number("high_freq_factor")?,
                original_context: rope
                    .usize("original_max_position_embeddings")?
                    .unwrap_or(self.context_length),
            },
            _ => {
                let feature = format!("RoPE scaling `{name}`");
                return Err(rope.unsupported(feature, "default, linear, llama3"));
            }
        };
        Ok(RopeConfig { theta, scaling })
    }
}
