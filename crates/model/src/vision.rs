//! Vision encoders: the part of a model that turns an image into rows, which a text model takes as embeddings.
//!
//! Each family of vision encoders is a file here and a row of a table: Gemma 3's SigLIP, Gemma 4, Pixtral with Mistral 3, Qwen 2 VL, Qwen
//! 2.5 VL, Qwen 3 VL with Qwen 3.5. [`VisionModel::of`] reads a vision encoder from a Hugging Face folder, in each of the spellings that
//! transformers has given its tensors, or from llama.cpp's `mmproj` GGUF file. It checks every weight's presence, shape and format.
//!
//! ```text
//!  pixel values [3, h, w] ─ patches ─ + positions ─┐
//!     ┌────────────────────────────────────────────┘
//!     └─ n_layers × ( x += out(attention(norm1 x)); x += ffn(norm2 x) ) ─ norm ─ encoder output
//!     encoder output [n_patches, d_model] ─ projector ─ [n_tokens, d_text]
//! ```

mod check;
mod config;
mod family;
mod finder;
mod gemma3;
mod gemma4;
mod mistral;
mod names;
mod qwen;
mod qwen2vl;
mod qwen3vl;
#[cfg(test)]
mod tests;

use millrace_format::{Checkpoint, Source};

use crate::Error;
use crate::catalog::Catalog;
pub use config::{
    AxialTurns, GridResize, LineBreak, PatchColumns, PatchGrid, VisionActivation, VisionConfig,
    WindowedAttention,
};
pub(crate) use family::HfSpelling;
pub(crate) use family::by_name;
pub use family::{ImageMarks, RowsAt, reads_for};
pub(crate) use finder::Finder;
pub(crate) use gemma3::HUB;
use millrace_graph::Weight;
pub(crate) use names::VisionName;
pub use names::VisionRole;

/// A matrix `[n, k]`, with its bias `[n]` and bounds, where it has some.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasedLinear {
    /// `[n, k]`.
    pub weight: Weight,
    /// `[n]`.
    pub bias: Option<Weight>,
    /// Minimum and maximum of its input, then of its output, one number each; values beyond a bound are clamped to it.
    pub bounds: Option<[Weight; 4]>,
}

/// A layer norm's weight and bias, `[d_model]` each; an RMS norm where there is no bias.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Factor.
    pub weight: Weight,
    /// Summand.
    pub bias: Option<Weight>,
}

/// One block of the vision encoder.
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
    /// `[d_ff, d_model]`: projection before the activation, where the network is gated.
    pub gate: Option<BiasedLinear>,
    /// `[d_ff, d_model]`.
    pub up: BiasedLinear,
    /// `[d_model, d_ff]`.
    pub down: BiasedLinear,
    /// Norms within both halves. Scores of attention have no factor then, and heads of values a norm without a weight.
    pub inner_norms: Option<InnerNorms>,
}

/// Norms within a block.
#[derive(Clone, Debug, PartialEq)]
pub struct InnerNorms {
    /// RMS norm of each head of queries, `[head_dim]`.
    pub q: Weight,
    /// RMS norm of each head of keys, `[head_dim]`.
    pub k: Weight,
    /// Of attention's output.
    pub attention: LayerNorm,
    /// Of the feed-forward's output.
    pub feed_forward: LayerNorm,
}

/// Projection from the blocks' output to rows of the text model's width.
#[derive(Clone, Debug, PartialEq)]
pub enum Projector {
    /// Squares of patches averaged, normalised and projected.
    Pooled(Box<PooledProjector>),
    /// Squares of patches averaged, normalised without a weight and projected.
    Averaged(Box<AverageProjector>),
    /// A network over squares of patches side by side.
    Merged(Box<Merger>),
    /// A network over patches, which a matrix may merge before.
    Adapted(Box<PatchAdapter>),
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

/// The projector of Gemma 4: averages times `sqrt(d_model)`, their norm, and a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct AverageProjector {
    /// The vector that is subtracted before the norm, and the factor on the difference, `[d_model]` each.
    pub standard: Option<[Weight; 2]>,
    /// `[d_text, d_model]`.
    pub projection: BiasedLinear,
}

/// The projector of Pixtral and Mistral 3: two matrices with a GELU between them.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchAdapter {
    /// RMS norm of patches, `[d_model]`, and the matrix that makes one of a square of them: `[d_model, d_model · merge²]`, columns in the
    /// order element, y, x.
    pub merger: Option<(LayerNorm, BiasedLinear)>,
    /// `[d_text, d_model]`.
    pub up: BiasedLinear,
    /// `[d_text, d_text]`.
    pub down: BiasedLinear,
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

/// A vision encoder and its projector: hyperparameters, and the weights as the checkpoint names them.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionModel {
    /// Hyperparameters.
    pub config: VisionConfig,
    /// The patch convolution as a matrix `[d_model, 3 · patch²]`, or `[d_model, 3 · 2 · patch²]` where both frames are in it; columns as
    /// [`VisionConfig::patches`] says.
    pub patches: BiasedLinear,
    /// That of the second frame, where it is a separate tensor.
    pub second_frame: Option<Weight>,
    /// Position table, `[n_positions, d_model]`, or two of them, `[2, axis_positions, d_model]`, by column and by row.
    pub positions: Option<Weight>,
    /// Before the blocks.
    pub pre_norm: Option<LayerNorm>,
    /// Blocks, in order.
    pub layers: Vec<VisionLayer>,
    /// After the blocks.
    pub norm: Option<LayerNorm>,
    /// Behind it.
    pub projector: Projector,
    /// For each block of [`VisionConfig::deepstack`], the merger that turns its output into summands of the text
    /// model's layers.
    pub deepstack: Vec<Merger>,
}

impl VisionModel {
    /// The vision encoder of a checkpoint; `None` if it has none.
    ///
    /// # Errors
    /// A vision encoder or feature that is not supported, by name; a hyperparameter that is missing or makes no
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
