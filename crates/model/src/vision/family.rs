//! Families of vision encoders: the names of their parts in files, and the place of their images in texts.

use std::fmt::Display;

use millrace_format::Checkpoint;
use millrace_format::gguf::Metadata;

use serde_json::Value;

use super::config::VisionActivation;
use super::names::{HfName, RoleName, VisionRole};
use super::{Finder, VisionConfig, VisionModel, gemma3, gemma4, mistral, qwen2vl, qwen3vl};
use crate::Error;
use crate::config::hf::ConfigObject;

/// All families. One more is a file with a `VisionFamily`, and a row here.
static FAMILIES: [&VisionFamily; 6] = [
    &gemma3::FAMILY,
    &gemma4::FAMILY,
    &mistral::FAMILY,
    &qwen2vl::FAMILY,
    &qwen2vl::FAMILY_25,
    &qwen3vl::FAMILY,
];

/// A family of vision encoders.
pub(crate) struct VisionFamily {
    /// Its name.
    pub(crate) name: &'static str,
    /// Families of the text models for which it reads images.
    pub(crate) text_families: &'static [&'static str],
    /// `clip.projector_type` of `mmproj` files.
    pub(crate) projector: &'static str,
    /// `model_type` of `config.json`.
    pub(crate) hf_model_types: &'static [&'static str],
    /// `model_type` of the `vision_config` in it.
    pub(crate) hf_vision_types: &'static [&'static str],
    /// Prefixes of names in Hugging Face files; the longer one of two that share their beginning first.
    pub(crate) hf_prefixes: &'static [HfSpelling],
    /// Names of all its weights, in lists of which families share some.
    pub(crate) names: &'static [&'static [RoleName]],
    /// Marks of an image in a text.
    pub(crate) marks: ImageMarks,
    /// Hyperparameters of a `config.json`.
    pub(crate) hf: fn(&HfVision<'_>) -> Result<VisionConfig, Error>,
    /// Hyperparameters of an `mmproj` file.
    pub(crate) gguf: fn(&ClipKeys<'_>) -> Result<VisionConfig, Error>,
    /// The weights.
    pub(crate) build: fn(&Finder<'_>) -> Result<VisionModel, Error>,
}

impl VisionFamily {
    /// The Hugging Face name of weights of that role; `None` if the family has none.
    pub(super) fn hf_name(&self, role: VisionRole) -> Option<HfName> {
        let mut names = self.names.iter().copied().flatten();
        names.find(|name| name.0 == role).map(|name| name.1)
    }
}

/// Prefixes under which Hugging Face files put vision encoder and projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HfSpelling {
    /// The vision encoder's.
    pub(crate) encoder: &'static str,
    /// The projector's.
    pub(crate) projector: &'static str,
}

impl HfSpelling {
    /// Those of all families.
    pub(crate) fn all() -> impl Iterator<Item = HfSpelling> {
        let families = FAMILIES.into_iter();
        families.flat_map(|family| family.hf_prefixes.iter().copied())
    }
}

/// Marks of an image in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageMarks {
    /// The token that templates write where an image belongs.
    pub place: &'static str,
    /// The text in place of an image, for a template that does not know of images.
    pub alone: &'static str,
    /// Place of the rows.
    pub rows: RowsAt,
    /// The text that transformers' processor writes before and behind an image besides.
    pub around: &'static str,
    /// The token for a row in lists of tokens.
    pub placeholder: &'static str,
    /// Its id in the published models, for vocabularies that lack it.
    pub placeholder_id: u32,
}

/// Place of an image's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsAt {
    /// After the place's token, before this one.
    Before(&'static str),
    /// In place of the place's token, between these texts.
    Place {
        /// Text before the rows.
        begin: &'static str,
        /// Text behind them.
        end: &'static str,
    },
}

/// The family of that name.
///
/// # Panics
/// Without one: names come from [`VisionConfig::family`].
pub(crate) fn by_name(name: &str) -> &'static VisionFamily {
    let mut all = FAMILIES.into_iter();
    let found = all.find(|family| family.name == name);
    found.expect("a configuration has a family of the table")
}

/// The table.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static VisionFamily> {
    FAMILIES.into_iter()
}

/// Whether there are vision encoders for text models of that family.
pub fn reads_for(text_family: &str) -> bool {
    let mut all = FAMILIES.into_iter();
    all.any(|family| family.text_families.contains(&text_family))
}

/// The configuration of a folder's vision encoder; `None` if it has none.
pub(super) fn of_hf(config: &ConfigObject<'_>) -> Result<Option<VisionConfig>, Error> {
    let Some(encoder) = config.object("vision_config")? else {
        return Ok(None);
    };
    let model_type = config.str("model_type")?.unwrap_or("none");
    let of_model = FAMILIES.map(|family| {
        let is_of = family.hf_model_types.contains(&model_type);
        is_of.then_some(family)
    });
    let of_model: Vec<&VisionFamily> = of_model.into_iter().flatten().collect();
    let Some(first) = of_model.first() else {
        let feature = format!("a vision encoder in a model `{model_type}`");
        let supported = listed(|family| family.hf_model_types);
        return Err(config.unsupported(feature, &or_text(&supported)));
    };
    let mut family = *first;
    if let Some(vision_type) = encoder.str("model_type")? {
        let is_of = |family: &&&VisionFamily| family.hf_vision_types.contains(&vision_type);
        family = of_model.iter().find(is_of).copied().ok_or_else(|| {
            let feature = format!("a vision encoder `{vision_type}` in `{model_type}`");
            let supported = of_model
                .iter()
                .map(|family| family.hf_vision_types.join(", "));
            config.unsupported(feature, &supported.collect::<Vec<_>>().join(", "))
        })?;
    }
    let keys = HfVision {
        config: *config,
        text: config.object("text_config")?.unwrap_or(*config),
        encoder,
    };
    (family.hf)(&keys).map(Some)
}

/// The configuration of an `mmproj` file; `None` for another file.
pub(super) fn of_gguf(checkpoint: &Checkpoint) -> Result<Option<VisionConfig>, Error> {
    let Some(metadata) = checkpoint.gguf() else {
        return Ok(None);
    };
    if metadata.get_str("general.architecture")? != Some("clip") {
        return Ok(None);
    }
    let keys = ClipKeys {
        checkpoint,
        metadata,
    };
    let kind = match metadata.get_str("clip.projector_type")? {
        Some(kind) => Some(kind),
        // Files with several vision encoders name the projector of each.
        None => metadata.get_str("clip.vision.projector_type")?,
    };
    let kind = kind.unwrap_or("none");
    let found = FAMILIES.into_iter().find(|family| family.projector == kind);
    let Some(family) = found else {
        let feature = format!("a projector `{kind}` (`clip.projector_type`)");
        let supported = FAMILIES.map(|family| family.projector).join(", ");
        return Err(keys.unsupported(feature, &or_text(&supported)));
    };
    (family.gguf)(&keys).map(Some)
}

/// The accepted alternatives: a model whose images are not read, as Gemma 3n, is one for text.
fn or_text(encoders: &str) -> String {
    format!("text without images, or encoders of {encoders}")
}

fn listed(names: impl Fn(&VisionFamily) -> &'static [&'static str]) -> String {
    FAMILIES.map(|family| names(family).join(", ")).join(", ")
}

/// The part of a `config.json` about a vision encoder.
pub(crate) struct HfVision<'a> {
    /// All of it.
    pub(crate) config: ConfigObject<'a>,
    /// The text model's part.
    pub(crate) text: ConfigObject<'a>,
    /// The vision encoder's part.
    pub(crate) encoder: ConfigObject<'a>,
}

impl HfVision<'_> {
    /// A size of the vision encoder, or the default of transformers' class, which files leave out.
    pub(crate) fn or(&self, key: &str, default: usize) -> Result<usize, Error> {
        Ok(self.encoder.usize(key)?.unwrap_or(default))
    }

    /// Refuses channels other than three, under any key.
    pub(crate) fn check_channels(&self, key: &str) -> Result<(), Error> {
        match self.encoder.usize(key)? {
            Some(channels) if channels != VisionConfig::CHANNELS => {
                let feature = format!("a vision encoder of {channels} channels");
                Err(self.encoder.unsupported(feature, "3 channels"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses patches that do not have two frames.
    pub(crate) fn check_frames(&self) -> Result<(), Error> {
        match self.or("temporal_patch_size", 2)? {
            2 => Ok(()),
            found => {
                let feature = format!("patches of {found} frames (`temporal_patch_size`)");
                Err(self.encoder.unsupported(feature, "2"))
            }
        }
    }

    /// The base of rotary positions of rows and columns.
    pub(crate) fn rope_theta(&self, default: f32) -> Result<f32, Error> {
        let theta = match self.encoder.object("rope_parameters")? {
            Some(rope) => rope.f32("rope_theta")?,
            None => self.encoder.f32("rope_theta")?,
        };
        Ok(theta.unwrap_or(default))
    }

    /// Refuses heads that are not `width / n_heads` wide, or are fewer for keys and values than for queries.
    pub(crate) fn check_heads(&self, width: usize, n_heads: usize) -> Result<(), Error> {
        let n_kv_heads = self.or("num_key_value_heads", n_heads)?;
        let head_dim = self.or("head_dim", width.checked_div(n_heads).unwrap_or(0))?;
        if n_kv_heads == n_heads && head_dim.checked_mul(n_heads) == Some(width) {
            return Ok(());
        }
        let feature = format!(
            "{n_heads} heads of {head_dim} elements, {n_kv_heads} for keys, in a vision encoder of width {width}"
        );
        let supported =
            "heads of queries, keys and values that are the vision encoder's width together";
        Err(self.encoder.unsupported(feature, supported))
    }

    /// A list of the vision encoder's blocks.
    pub(crate) fn indexes(&self, key: &str) -> Result<Vec<usize>, Error> {
        let list = self.encoder.array(key)?.map_or(&[][..], Vec::as_slice);
        let index = |value: &Value| {
            let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
            index.ok_or_else(|| self.encoder.bad(key, value, "whole numbers"))
        };
        list.iter().map(index).collect()
    }

    /// Which of these activations it has; without a key the first.
    pub(crate) fn activation(
        &self,
        key: &str,
        known: &[(&str, VisionActivation)],
    ) -> Result<VisionActivation, Error> {
        let Some(found) = self.encoder.str(key)? else {
            return Ok(known[0].1);
        };
        let same = known.iter().find(|(name, _)| *name == found);
        same.map(|(_, activation)| *activation).ok_or_else(|| {
            let feature = format!("activation `{found}` (`{key}`) in the vision encoder");
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            self.encoder.unsupported(feature, &names.join(", "))
        })
    }
}

/// The metadata of an `mmproj` file about a vision encoder.
pub(crate) struct ClipKeys<'a> {
    checkpoint: &'a Checkpoint,
    /// All of them.
    pub(crate) metadata: &'a Metadata,
}

impl ClipKeys<'_> {
    /// A whole number under `clip.vision.`.
    pub(crate) fn size(&self, key: &str) -> Result<Option<usize>, Error> {
        let value = self.metadata.get_u32(&format!("clip.vision.{key}"))?;
        Ok(value.map(|value| value as usize))
    }

    /// The same for a key that must be there.
    pub(crate) fn need(&self, key: &str) -> Result<usize, Error> {
        self.size(key)?.ok_or_else(|| Error::MissingKey {
            file: self.checkpoint.name().into(),
            key: format!("clip.vision.{key}"),
        })
    }

    /// The shape of a tensor of the file.
    pub(crate) fn shape(&self, tensor: &str) -> Option<&[usize]> {
        let tensor = self.checkpoint.tensor(tensor);
        tensor.map(|tensor| tensor.info.shape.as_slice())
    }

    /// The width within feed-forward networks of a vision encoder of width `d_model`, from its first tensor.
    pub(crate) fn inner_width(&self, d_model: usize) -> Result<usize, Error> {
        const NAME: &str = "v.blk.0.ffn_up.weight";
        match self.shape(NAME) {
            // Old files give the second matrix this name.
            Some([n, k]) => Ok(if *k == d_model { *n } else { *k }),
            _ => Err(Error::MissingTensor {
                file: self.checkpoint.name().into(),
                tensor: NAME.into(),
                expected: vec![4 * d_model, d_model],
            }),
        }
    }

    /// The epsilon of norms.
    pub(crate) fn norm_eps(&self) -> Result<f32, Error> {
        let eps = self
            .metadata
            .get_f32("clip.vision.attention.layer_norm_epsilon")?;
        Ok(eps.unwrap_or(1e-6))
    }

    /// A feature that is not supported.
    pub(crate) fn unsupported(&self, feature: impl Display, supported: &str) -> Error {
        Error::Unsupported {
            file: self.checkpoint.name().into(),
            feature: feature.to_string(),
            supported: supported.into(),
        }
    }
}
