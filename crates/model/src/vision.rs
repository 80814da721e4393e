//! Vision towers: what a picture goes through before a text model takes its rows for embeddings.
//!
//! Each family of towers is a file here and a row of a table: Gemma 3's SigLIP, Qwen 2 VL, Qwen 2.5 VL, Qwen 3 VL with Qwen 3.5.
//! [`VisionModel::of`] reads a tower from a Hugging Face folder, in each of the spellings that transformers has given its tensors, or from
//! llama.cpp's `mmproj` GGUF file, and checks every weight's presence, shape and format.
//!
//! ```text
//!  pixel values [3, h, w] ─ patches ─ + positions ─┐
//!     ┌────────────────────────────────────────────┘
//!     └─ n_layers × ( x += out(attention(norm1 x)); x += ffn(norm2 x) ) ─ norm ─ encoder output
//!     encoder output [n_patches, d_model] ─ projector ─ [n_tokens, d_text]
//! ```

mod config;
mod family;
mod finder;
mod gemma3;
mod names;
mod qwen2vl;
mod qwen3vl;
#[cfg(test)]
mod tests;

use millrace_format::{Checkpoint, Source};

use crate::Error;
use crate::catalog::Catalog;
pub use config::{PatchGrid, TowerActivation, VisionConfig, WindowedAttention};
pub(crate) use family::HfSpelling;
pub(crate) use family::by_name;
pub use family::{ImageMarks, RowsAt, has_places, reads_for};
pub(crate) use finder::Finder;
pub(crate) use gemma3::HUB;
use millrace_graph::Weight;
pub(crate) use names::VisionName;
pub use names::VisionRole;

/// A matrix `[n, k]` and its bias `[n]`, where it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasedLinear {
    /// `[n, k]`.
    pub weight: Weight,
    /// `[n]`.
    pub bias: Option<Weight>,
}

/// A layer norm's weight and bias, `[d_model]` each; an RMS norm where there is no bias.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Factor.
    pub weight: Weight,
    /// Summand.
    pub bias: Option<Weight>,
}

/// One block of the tower.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionLayer {
    /// Before attention.
    pub norm1: LayerNorm,
    /// Query, key, value projections, `[d_model, d_model]`.
    pub qkv: [BiasedLinear; 3],
    /// Projection of the attention's output, `[d_model, d_model]`.
    pub out: BiasedLinear,
    /// Before the feed-forward.
    pub norm2: LayerNorm,
    /// `[d_ff, d_model]`: what goes through the activation, where the network is gated.
    pub gate: Option<BiasedLinear>,
    /// `[d_ff, d_model]`.
    pub up: BiasedLinear,
    /// `[d_model, d_ff]`.
    pub down: BiasedLinear,
}

/// From what leaves the blocks to rows of the text model's width.
#[derive(Clone, Debug, PartialEq)]
pub enum Projector {
    /// Squares of patches averaged, normalised and projected.
    Pooled(Box<PooledProjector>),
    /// A network over squares of patches side by side.
    Merged(Box<Merger>),
}

/// The projector of Gemma 3.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledProjector {
    /// RMSNorm of the pooled rows, `[d_model]`.
    pub norm: Weight,
    /// Added to that weight: 1 in Hugging Face files, 0 in GGUF ones, where it is in the file.
    pub norm_offset: f32,
    /// `[d_model, d_text]`: inputs by outputs, as the files have it.
    pub projection: Weight,
}

/// A network of two matrices with a GELU between them, over squares of `merge²` patches side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Merger {
    /// Before them: of `d_model` elements over each patch, of `merge² · d_model` over the square.
    pub norm: LayerNorm,
    /// `[merge² · d_model, merge² · d_model]`.
    pub up: BiasedLinear,
    /// `[d_text, merge² · d_model]`.
    pub down: BiasedLinear,
}

/// A tower and its projector: hyperparameters, and the weights as the checkpoint names them.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionModel {
    /// Hyperparameters.
    pub config: VisionConfig,
    /// The patch convolution as a matrix `[d_model, 3 · patch²]`; columns in the order channel, y, x. Of a folder whose patches have two
    /// frames `[d_model, 3 · 2 · patch²]`, in the order channel, frame, y, x.
    pub patches: BiasedLinear,
    /// That of the second frame, where it is a tensor of its own.
    pub second_frame: Option<Weight>,
    /// Position table, `[n_positions, d_model]`.
    pub positions: Option<Weight>,
    /// Blocks, in order.
    pub layers: Vec<VisionLayer>,
    /// After the blocks.
    pub norm: Option<LayerNorm>,
    /// Behind it.
    pub projector: Projector,
    /// Of each block of [`VisionConfig::deepstack`], what makes of its output summands of the text model's layers.
    pub deepstack: Vec<Merger>,
}

impl VisionModel {
    /// The tower of a checkpoint; `None` if it has none.
    ///
    /// # Errors
    /// A tower or feature that is not supported, by name; a hyperparameter that is missing or makes no
    /// sense; a weight that is missing, of another shape, or in an unusable format.
    pub fn of(checkpoint: &Checkpoint) -> Result<Option<VisionModel>, Error> {
        let Some(config) = config::read(checkpoint)? else {
            return Ok(None);
        };
        let catalog = Catalog::of(checkpoint);
        VisionModel::build(config, checkpoint.source(), &catalog).map(Some)
    }

    pub(crate) fn build(
        config: VisionConfig,
        source: Source,
        catalog: &Catalog<'_>,
    ) -> Result<VisionModel, Error> {
        let finder = Finder::new(&config, source, catalog);
        (family::by_name(config.family).build)(&finder)
    }
}
