//! Hyperparameters of a vision encoder, from `config.json` or from the metadata of an `mmproj` file.

use millrace_format::{Checkpoint, Source};

use super::family::{self, ClipKeys, ImageMarks};
use crate::Error;
use crate::config::hf::ConfigObject;

/// The function between the matrices of a vision encoder's feed-forward networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisionActivation {
    /// GELU, approximated with a hyperbolic tangent.
    GeluTanh,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by the error function.
    Gelu,
}

/// Layout of the patch convolution in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchColumns {
    /// Columns in the order channel, y, x.
    Plain,
    /// Patches have two frames: in a folder in the order channel, frame, y, x, in GGUF files as two tensors.
    TwoFrames,
    /// In a folder in the order y, x, channel; plain in GGUF files.
    ChannelsLast,
}

/// How images are resized that keep their aspect ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridResize {
    /// As they are, within the limits of pixels.
    Limits,
    /// As many pixels as the upper limit allows.
    Fill,
    /// As they are, with at most this number of pixels in the longer side.
    LongerSide(usize),
}

/// Which pairs of a head rotate by rows and which by columns, all with the frequencies of one base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxialTurns {
    /// Pairs of elements half a head apart: the first half of them by rows, the others by columns, with the same frequencies.
    RowsThenColumns,
    /// The first half of a head by columns, the second by rows, with the same frequencies; pairs are a quarter of a head apart.
    HalvesByColumnsAndRows,
    /// Frequencies of rows and of columns alternate. Pairs are half a head apart, or neighbours: the first half by rows.
    Alternating {
        /// Whether they are neighbours.
        neighbours: bool,
    },
}

/// How a vision encoder takes images of any size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatchGrid {
    /// Patches of a side of the squares that become a row of the text model.
    pub merge: usize,
    /// Pixels of an image, at least: smaller ones are enlarged.
    pub min_pixels: u64,
    /// Pixels of an image, at most: larger ones are reduced.
    pub max_pixels: u64,
    /// How large an image becomes within these.
    pub resize: GridResize,
    /// Base of the rotary positions of rows and columns.
    pub rope_theta: f32,
    /// Which of a head's pairs they rotate by rows and which by columns.
    pub turns: AxialTurns,
    /// The token between two lines of an image's rows.
    pub line_break: Option<LineBreak>,
}

/// A token of the text model whose embedding is placed among rows of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineBreak {
    /// Its text in vocabularies.
    pub token: &'static str,
    /// Its id in the published models, for folders without a vocabulary.
    pub id: u32,
}

/// The longer side of an image over the shorter, at most, where limits of pixels apply (transformers,
/// `smart_resize` of `image_processing_qwen2_vl.py`).
const MAX_RATIO: usize = 200;

impl PatchGrid {
    /// The limits of transformers' processor, for files without limits (`image_processing_qwen2_vl.py`).
    pub(super) fn of_transformers(merge: usize, rope_theta: f32) -> PatchGrid {
        PatchGrid {
            merge,
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 1280,
            resize: GridResize::Limits,
            rope_theta,
            turns: AxialTurns::RowsThenColumns,
            line_break: None,
        }
    }

    /// Values of an `mmproj` file, and llama.cpp's limits of 8 to 4,096 tokens where it has none (`clip.cpp`).
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
            ..PatchGrid::of_transformers(merge, 10_000.0)
        })
    }

    /// The same for images of `n_tokens` rows, or the fewer that keep the aspect ratio, with patches of that size.
    #[must_use]
    pub fn filled(self, n_tokens: usize, patch_size: usize) -> PatchGrid {
        let side = (self.merge as u64).saturating_mul(patch_size as u64);
        let max_pixels = side.saturating_mul(side).saturating_mul(n_tokens as u64);
        PatchGrid {
            min_pixels: 0,
            max_pixels,
            resize: GridResize::Fill,
            ..self
        }
    }

    /// The same for images of at most `side` pixels in the longer side, with patches of that size.
    #[must_use]
    pub fn with_longer_side(self, side: usize, patch_size: usize) -> PatchGrid {
        let unit = self.merge.saturating_mul(patch_size);
        let whole = (side as u64).checked_next_multiple_of(unit.max(1) as u64);
        let whole = whole.unwrap_or(u64::MAX);
        PatchGrid {
            min_pixels: 0,
            max_pixels: whole.saturating_mul(whole),
            resize: GridResize::LongerSide(side),
            ..self
        }
    }

    /// Rows that an image becomes at most, with patches of that size.
    pub fn max_tokens(&self, patch_size: usize) -> usize {
        let side = (self.merge as u64).saturating_mul(patch_size as u64);
        let tokens = self.max_pixels / side.saturating_mul(side).max(1);
        let tokens = usize::try_from(tokens).unwrap_or(usize::MAX).max(1);
        // No side is less than a square, so a line of squares may be longer than the limit allows.
        let line = MAX_RATIO.saturating_mul(tokens).isqrt().saturating_add(1);
        let tokens = match self.resize {
            GridResize::Limits => tokens.max(line),
            GridResize::Fill | GridResize::LongerSide(_) => tokens,
        };
        // Squares have the longest sides that the limit allows.
        let breaks = self.line_break.map_or(0, |_| tokens.isqrt() - 1);
        tokens.saturating_add(breaks)
    }

    /// Rows that an image of so many squares of patches becomes.
    pub fn n_rows(&self, (height, width): (usize, usize)) -> usize {
        let breaks = self.line_break.map_or(0, |_| height.saturating_sub(1));
        height * width + breaks
    }
}

/// Blocks in which patches see only those of their window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowedAttention {
    /// Pixels of a window's side.
    pub side: usize,
    /// The blocks in which all patches see each other.
    pub full_layers: Vec<usize>,
}

/// A vision encoder's and projector's hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// The family of vision encoders.
    pub family: &'static str,
    /// Blocks.
    pub n_layers: usize,
    /// Width of the vision encoder.
    pub d_model: usize,
    /// Width of its feed-forward.
    pub d_ff: usize,
    /// Heads, of queries as of keys and values.
    pub n_heads: usize,
    /// Pixels of a side of the input. For an encoder of any size: the side that its table of positions covers, 0 without a table.
    pub image_size: usize,
    /// Pixels of a side of a patch.
    pub patch_size: usize,
    /// Epsilon of all norms.
    pub norm_eps: f32,
    /// Epsilon of the norm before patches are merged, where it differs (Mistral: the text model's).
    pub merger_eps: Option<f32>,
    /// Rows of an image, a square number; where the vision encoder takes any size, their maximum.
    pub n_tokens: usize,
    /// Width of the text model.
    pub d_text: usize,
    /// Between the matrices of feed-forward networks.
    pub activation: VisionActivation,
    /// Layout of its patch convolution in files.
    pub patches: PatchColumns,
    /// Rows of each of two tables of positions, by column and by row; 0 without such tables.
    pub axis_positions: usize,
    /// Whether matrices have bounds of input and output; in GGUF files only those that have the tensors.
    pub bounded: bool,
    /// Treatment of images of any size; without it each becomes the square.
    pub grid: Option<PatchGrid>,
    /// Windows of attention, where not all blocks see the whole image.
    pub windows: Option<WindowedAttention>,
    /// Blocks whose output is added to the residual stream of the text model's first layers, one each, ascending.
    pub deepstack: Vec<usize>,
}

impl VisionConfig {
    /// Red, green, blue.
    pub const CHANNELS: usize = 3;

    pub(super) const MAX_LAYERS: usize = 1024;

    /// A vision encoder of that family for squares, without sizes.
    pub(crate) fn without_sizes(family: &'static str) -> VisionConfig {
        VisionConfig {
            family,
            n_layers: 0,
            d_model: 0,
            d_ff: 0,
            n_heads: 0,
            image_size: 0,
            patch_size: 0,
            norm_eps: 1e-6,
            merger_eps: None,
            n_tokens: 0,
            d_text: 0,
            activation: VisionActivation::GeluTanh,
            patches: PatchColumns::Plain,
            axis_positions: 0,
            bounded: false,
            grid: None,
            windows: None,
            deepstack: Vec::new(),
        }
    }

    /// The same for images of any size.
    pub(super) fn on_grid(
        family: &'static str,
        grid: PatchGrid,
        patch_size: usize,
    ) -> VisionConfig {
        VisionConfig {
            patch_size,
            n_tokens: grid.max_tokens(patch_size),
            grid: Some(grid),
            ..VisionConfig::without_sizes(family)
        }
    }

    /// Patches of a side of the square, or of the table of positions.
    pub fn patches_per_side(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Patches of an image, rows of the vision encoder; where it takes any size, their maximum.
    pub fn n_patches(&self) -> usize {
        match &self.grid {
            Some(grid) => self.n_tokens.saturating_mul(grid.merge * grid.merge),
            None => self.patches_per_side() * self.patches_per_side(),
        }
    }

    /// Marks of images in texts.
    pub fn marks(&self) -> &'static ImageMarks {
        &family::by_name(self.family).marks
    }

    /// Families of the text models for which the vision encoder reads images.
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
}

/// The configuration of a checkpoint's vision encoder; `None` if it has none.
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
