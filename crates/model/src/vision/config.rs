//! Hyperparameters of a tower, from `config.json` or from the metadata of an `mmproj` file.

use millrace_format::{Checkpoint, Source};

use super::family::{self, ClipKeys, ImageMarks};
use crate::Error;
use crate::config::hf::ConfigObject;

/// The function between the matrices of a tower's feed-forward networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TowerActivation {
    /// GELU, approximated with a hyperbolic tangent.
    GeluTanh,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `x · sigmoid(x)`.
    Silu,
}

/// How a tower takes pictures of any size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatchGrid {
    /// Patches of a side of the squares that become a row of the text model.
    pub merge: usize,
    /// Pixels of a picture, at least: smaller ones are enlarged.
    pub min_pixels: u64,
    /// Pixels of a picture, at most: larger ones are reduced.
    pub max_pixels: u64,
    /// Base of the rotary positions of rows and columns.
    pub rope_theta: f32,
}

impl PatchGrid {
    /// The limits of transformers' processor where no file says others (`image_processing_qwen2_vl.py`).
    pub(super) fn of_transformers(merge: usize, rope_theta: f32) -> PatchGrid {
        PatchGrid {
            merge,
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 1280,
            rope_theta,
        }
    }

    /// What an `mmproj` file says, and llama.cpp's limits of 8 to 4,096 tokens where it says none (`clip.cpp`).
    pub(super) fn of_llama_cpp(keys: &ClipKeys<'_>, patch_size: usize) -> Result<PatchGrid, Error> {
        let merge = keys.size("spatial_merge_size")?.unwrap_or(2);
        let cell = (merge as u64).saturating_mul(patch_size as u64);
        let cell = cell.saturating_mul(cell);
        let limit = |key: &str, n_tokens: u64| {
            let pixels = keys.size(key)?.map(|pixels| pixels as u64);
            Ok::<_, Error>(pixels.unwrap_or(cell.saturating_mul(n_tokens)))
        };
        Ok(PatchGrid {
            merge,
            min_pixels: limit("image_min_pixels", 8)?,
            max_pixels: limit("image_max_pixels", 4096)?,
            rope_theta: 10_000.0,
        })
    }

    /// Rows that a picture becomes at most, with patches of that size.
    pub fn max_tokens(&self, patch_size: usize) -> usize {
        let side = (self.merge as u64).saturating_mul(patch_size as u64);
        let tokens = self.max_pixels / side.saturating_mul(side).max(1);
        usize::try_from(tokens).unwrap_or(usize::MAX).max(1)
    }
}

/// Blocks in which patches see those of their window alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowedAttention {
    /// Pixels of a window's side.
    pub side: usize,
    /// The blocks in which all patches see each other.
    pub full_layers: Vec<usize>,
}

/// A tower's and projector's hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// The family of towers.
    pub family: &'static str,
    /// Blocks.
    pub n_layers: usize,
    /// Width of the tower.
    pub d_model: usize,
    /// Width of its feed-forward.
    pub d_ff: usize,
    /// Heads, of queries as of keys and values.
    pub n_heads: usize,
    /// Pixels of a side of the input. Of a tower that takes any size: those that its table of positions is for, 0 without one.
    pub image_size: usize,
    /// Pixels of a side of a patch.
    pub patch_size: usize,
    /// Epsilon of all norms.
    pub norm_eps: f32,
    /// Rows that a picture becomes, a square number; at most, where the tower takes any size.
    pub n_tokens: usize,
    /// Width of the text model.
    pub d_text: usize,
    /// Between the matrices of feed-forward networks.
    pub activation: TowerActivation,
    /// How pictures of any size are taken; without it each becomes the square.
    pub grid: Option<PatchGrid>,
    /// Windows of attention, where not all blocks see the whole picture.
    pub windows: Option<WindowedAttention>,
    /// Blocks whose output is added to the residual stream of the text model's first layers, one each, ascending.
    pub deepstack: Vec<usize>,
}

const MAX_WIDTH: usize = 1 << 20;
const MAX_SIDE: usize = 1 << 14;
const MAX_MERGE: usize = 16;
/// Of a picture as the tower takes it: as many as are decoded.
const MAX_PIXELS: u64 = 100_000_000;
/// As attention's kernels take them.
const MAX_HEAD_DIM: usize = 1024;

impl VisionConfig {
    /// Red, green, blue.
    pub const CHANNELS: usize = 3;

    pub(super) const MAX_LAYERS: usize = 1024;

    /// Patches of a side of the square, or of the table of positions.
    pub fn patches_per_side(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Patches of a picture, rows of the tower; at most, where it takes any size.
    pub fn n_patches(&self) -> usize {
        match &self.grid {
            Some(grid) => self.n_tokens.saturating_mul(grid.merge * grid.merge),
            None => self.patches_per_side() * self.patches_per_side(),
        }
    }

    /// How pictures stand in texts.
    pub fn marks(&self) -> &'static ImageMarks {
        &family::by_name(self.family).marks
    }

    /// Text models whose pictures the tower reads, as their families are called.
    pub fn text_families(&self) -> &'static [&'static str] {
        family::by_name(self.family).text_families
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
            (
                "number of the tower's layers",
                self.n_layers,
                VisionConfig::MAX_LAYERS,
            ),
            ("width of the tower", self.d_model, MAX_WIDTH),
            ("width of its feed-forward", self.d_ff, MAX_WIDTH),
            ("number of its heads", self.n_heads, MAX_WIDTH),
            ("patch size", self.patch_size, MAX_SIDE),
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
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            let found = self.norm_eps.to_string();
            return bad(
                "epsilon of the tower's norms",
                found,
                "a positive number".into(),
            );
        }
        match &self.grid {
            Some(grid) => self.validate_grid(file, grid),
            None => self.validate_square(file),
        }
    }

    /// Sizes of a tower that takes squares.
    fn validate_square(&self, file: &str) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: String| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected,
            })
        };
        for (key, found) in [
            ("image size", self.image_size),
            ("tokens of an image", self.n_tokens),
        ] {
            if found == 0 || found > MAX_SIDE {
                return bad(key, found.to_string(), format!("between 1 and {MAX_SIDE}"));
            }
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
        Ok(())
    }

    /// Sizes of a tower that takes any.
    fn validate_grid(&self, file: &str, grid: &PatchGrid) -> Result<(), Error> {
        let bad = |key: &str, found: String, expected: &str| {
            Err(Error::BadValue {
                file: file.into(),
                key: key.into(),
                found,
                expected: expected.into(),
            })
        };
        let merge = grid.merge;
        if merge == 0 || merge > MAX_MERGE {
            let expected = format!("between 1 and {MAX_MERGE}");
            return bad(
                "patches of a side that are merged",
                merge.to_string(),
                &expected,
            );
        }
        if !self.head_dim().is_multiple_of(4) {
            let found = self.head_dim().to_string();
            let expected = "a multiple of 4, for rows and columns rotate half of it each";
            return bad("elements of a head in the tower", found, expected);
        }
        if !(grid.rope_theta.is_finite() && grid.rope_theta > 0.0) {
            let found = grid.rope_theta.to_string();
            return bad(
                "base of the tower's rotary positions",
                found,
                "a positive number",
            );
        }
        if self.image_size > MAX_SIDE || !self.image_size.is_multiple_of(self.patch_size) {
            let expected = format!("a multiple of the patch size, {MAX_SIDE} at most");
            return bad("image size", self.image_size.to_string(), &expected);
        }
        self.check_limits(file, grid)?;
        let last = self.deepstack.last().copied().unwrap_or(0);
        if !self.deepstack.is_sorted_by(|a, b| a < b) || last >= self.n_layers {
            let found = format!("{:?}", self.deepstack);
            let expected = format!("ascending numbers below {}", self.n_layers);
            return bad("blocks for the text model's first layers", found, &expected);
        }
        let cell = merge * self.patch_size;
        match &self.windows {
            Some(windows) if windows.side < cell || windows.side > MAX_SIDE => bad(
                "pixels of a window's side",
                windows.side.to_string(),
                &format!("between {cell} and {MAX_SIDE}"),
            ),
            _ => Ok(()),
        }
    }

    /// Refuses limits of a picture's pixels that no picture meets, or that are absurd. They may be another file's than the rest.
    ///
    /// # Errors
    /// [`Error::BadValue`], which calls the file `file`.
    pub fn check_limits(&self, file: &str, grid: &PatchGrid) -> Result<(), Error> {
        let (min, max) = (grid.min_pixels, grid.max_pixels);
        let side = (grid.merge * self.patch_size) as u64;
        if max < side * side || min > max || max > MAX_PIXELS {
            return Err(Error::BadValue {
                file: file.into(),
                key: "pixels of an image".into(),
                found: format!("{min} to {max}"),
                expected: format!("a range that ends between {} and {MAX_PIXELS}", side * side),
            });
        }
        Ok(())
    }
}

/// The configuration of a checkpoint's tower; `None` if it has none.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<VisionConfig>, Error> {
    let file = checkpoint.name();
    let config = match checkpoint.source() {
        Source::Gguf => family::of_gguf(checkpoint)?,
        Source::HuggingFace => {
            let config = checkpoint.hf().and_then(|files| files.config.as_ref());
            match config.and_then(serde_json::Value::as_object) {
                Some(map) => family::of_hf(&ConfigObject { file, map })?,
                None => None,
            }
        }
    };
    if let Some(config) = &config {
        config.validate(file)?;
    }
    Ok(config)
}
