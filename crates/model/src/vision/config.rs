//! Hyperparameters of a tower, from `config.json` or from the metadata of an `mmproj` file.

use millrace_format::{Checkpoint, Source, gguf};

use crate::Error;
use crate::config::hf::ConfigObject;

/// A tower's and projector's hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// Blocks.
    pub n_layers: usize,
    /// Width of the tower.
    pub d_model: usize,
    /// Width of its feed-forward.
    pub d_ff: usize,
    /// Heads, of queries as of keys and values.
    pub n_heads: usize,
    /// Pixels of a side of the input.
    pub image_size: usize,
    /// Pixels of a side of a patch.
    pub patch_size: usize,
    /// Epsilon of all norms.
    pub norm_eps: f32,
    /// Rows that a picture becomes: a square number.
    pub n_tokens: usize,
    /// Width of the text model.
    pub d_text: usize,
}

const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_SIDE: usize = 1 << 14;
/// As attention's kernels take them.
const MAX_HEAD_DIM: usize = 1024;

impl VisionConfig {
    /// Red, green, blue.
    pub const CHANNELS: usize = 3;

    /// Patches of a side.
    pub fn patches_per_side(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Patches of a picture: rows of the tower.
    pub fn n_patches(&self) -> usize {
        self.patches_per_side() * self.patches_per_side()
    }

    /// Elements of a patch.
    pub fn patch_elems(&self) -> usize {
        VisionConfig::CHANNELS * self.patch_size * self.patch_size
    }

    /// Elements a head.
    pub fn head_dim(&self) -> usize {
        self.d_model / self.n_heads
    }

    /// Rows of pooled patches of a side.
    pub fn tokens_per_side(&self) -> usize {
        self.n_tokens.isqrt()
    }

    /// Patches of a side that are pooled to one row.
    pub fn pool(&self) -> usize {
        self.patches_per_side() / self.tokens_per_side()
    }

    /// Refuses sizes that are zero, absurd or do not fit each other.
    pub(crate) fn validate(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: String| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected,
            })
        };
        let sizes = [
            ("number of the tower's layers", self.n_layers, MAX_LAYERS),
            ("width of the tower", self.d_model, MAX_WIDTH),
            ("width of its feed-forward", self.d_ff, MAX_WIDTH),
            ("number of its heads", self.n_heads, MAX_WIDTH),
            ("image size", self.image_size, MAX_SIDE),
            ("patch size", self.patch_size, MAX_SIDE),
            ("tokens of an image", self.n_tokens, MAX_SIDE),
            ("width of the text model", self.d_text, 1 << 22),
        ];
        for (key, found, max) in sizes {
            if found == 0 || found > max {
                return bad(key, found.to_string(), format!("between 1 and {max}"));
            }
        }
        if !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of the tower's width, {}", self.d_model);
            return bad(
                "number of the tower's heads",
                self.n_heads.to_string(),
                expected,
            );
        }
        if self.head_dim() > MAX_HEAD_DIM {
            let (found, width) = (self.head_dim(), self.d_model);
            return bad(
                "elements of a head in the tower",
                format!("{found} ({} heads in a width of {width})", self.n_heads),
                format!("{MAX_HEAD_DIM} at most"),
            );
        }
        if !self.image_size.is_multiple_of(self.patch_size) {
            let expected = format!("a multiple of the patch size {}", self.patch_size);
            return bad("image size", self.image_size.to_string(), expected);
        }
        let side = self.tokens_per_side();
        if side * side != self.n_tokens || !self.patches_per_side().is_multiple_of(side) {
            let n = self.patches_per_side();
            let expected = format!("the square of a divisor of {n} patches a side");
            return bad("tokens of an image", self.n_tokens.to_string(), expected);
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            let found = self.norm_eps.to_string();
            return bad(
                "epsilon of the tower's norms",
                found,
                "a positive number".into(),
            );
        }
        Ok(())
    }
}

/// The configuration of a checkpoint's tower; `None` if it has none.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<VisionConfig>, Error> {
    let file = checkpoint.name();
    let config = match checkpoint.source() {
        Source::Gguf => match checkpoint.gguf() {
            Some(metadata) => of_gguf(file, metadata)?,
            None => None,
        },
        Source::HuggingFace => {
            let config = checkpoint.hf().and_then(|files| files.config.as_ref());
            match config.and_then(serde_json::Value::as_object) {
                Some(map) => of_hf(&ConfigObject { file, map })?,
                None => None,
            }
        }
    };
    if let Some(config) = &config {
        config.validate(file)?;
    }
    Ok(config)
}

/// Absent keys take the defaults of transformers' classes, which files leave out.
fn of_hf(config: &ConfigObject<'_>) -> Result<Option<VisionConfig>, Error> {
    let Some(vision) = config.object("vision_config")? else {
        return Ok(None);
    };
    let model_type = vision.str("model_type")?.unwrap_or("siglip_vision_model");
    if model_type != "siglip_vision_model" || config.str("model_type")? != Some("gemma3") {
        let feature = format!("a vision tower `{model_type}`");
        return Err(config.unsupported(feature, "siglip_vision_model in gemma3"));
    }
    if let Some(act) = vision.str("hidden_act")?
        && act != "gelu_pytorch_tanh"
    {
        let feature = format!("activation `{act}` (`hidden_act`) in the vision tower");
        return Err(vision.unsupported(feature, "gelu_pytorch_tanh"));
    }
    if let Some(channels) = vision.usize("num_channels")?
        && channels != VisionConfig::CHANNELS
    {
        let feature = format!("a vision tower of {channels} channels");
        return Err(vision.unsupported(feature, "3 channels"));
    }
    let text = config.object("text_config")?.unwrap_or(*config);
    let or = |key: &str, default: usize| Ok::<_, Error>(vision.usize(key)?.unwrap_or(default));
    Ok(Some(VisionConfig {
        n_layers: or("num_hidden_layers", 12)?,
        d_model: or("hidden_size", 768)?,
        d_ff: or("intermediate_size", 3072)?,
        n_heads: or("num_attention_heads", 12)?,
        image_size: or("image_size", 224)?,
        patch_size: or("patch_size", 16)?,
        norm_eps: vision.f32("layer_norm_eps")?.unwrap_or(1e-6),
        n_tokens: config.usize("mm_tokens_per_image")?.unwrap_or(256),
        d_text: text.usize("hidden_size")?.unwrap_or(2304),
    }))
}

/// The keys of llama.cpp's `clip` architecture.
fn of_gguf(file: &str, metadata: &gguf::Metadata) -> Result<Option<VisionConfig>, Error> {
    if metadata.get_str("general.architecture")? != Some("clip") {
        return Ok(None);
    }
    let unsupported = |feature: String, supported: &str| Error::Unsupported {
        file: file.into(),
        feature,
        supported: supported.into(),
    };
    let kind = metadata.get_str("clip.projector_type")?.unwrap_or("none");
    if kind != "gemma3" {
        let feature = format!("a projector `{kind}` (`clip.projector_type`)");
        return Err(unsupported(feature, "gemma3"));
    }
    if metadata.get_bool("clip.use_gelu")? == Some(false) {
        return Err(unsupported("`clip.use_gelu` = false".into(), "true"));
    }
    let need = |key: &str| {
        let key = format!("clip.vision.{key}");
        let value = metadata.get_u32(&key)?;
        let missing = || Error::MissingKey {
            file: file.into(),
            key: key.clone(),
        };
        value.map(|value| value as usize).ok_or_else(missing)
    };
    let (image_size, patch_size) = (need("image_size")?, need("patch_size")?);
    let factor = metadata.get_u32("clip.vision.projector.scale_factor")?;
    let factor = factor.unwrap_or(4) as usize;
    // What does not divide is refused with the rest.
    let side = image_size.checked_div(patch_size).unwrap_or(0);
    let side = side.checked_div(factor).unwrap_or(0);
    let eps = metadata.get_f32("clip.vision.attention.layer_norm_epsilon")?;
    Ok(Some(VisionConfig {
        n_layers: need("block_count")?,
        d_model: need("embedding_length")?,
        d_ff: need("feed_forward_length")?,
        n_heads: need("attention.head_count")?,
        image_size,
        patch_size,
        norm_eps: eps.unwrap_or(1e-6),
        n_tokens: side.saturating_mul(side),
        d_text: need("projection_dim")?,
    }))
}
