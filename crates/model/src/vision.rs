//! Vision towers: what a picture goes through before a text model takes its rows for embeddings.
//!
//! One kind so far: the SigLIP tower and the projector of Gemma 3. [`VisionModel::of`] reads it from a
//! Hugging Face folder, in each of the three spellings that transformers has given its tensors, or from
//! llama.cpp's `mmproj` GGUF file, and checks every weight's presence, shape and format.
//!
//! ```text
//!  pixel values [3, s, s] ─ patches ─ + positions ─┐
//!     ┌────────────────────────────────────────────┘
//!     └─ n_layers × ( x += out(attention(norm1 x)); x += down(gelu(up(norm2 x))) ) ─ norm ─ encoder output
//!     encoder output [n_patches, d_model] ─ average pool ─ RMSNorm ─ projection ─ [n_tokens, d_text]
//! ```

mod config;
mod names;

use millrace_format::{Checkpoint, Source};

use crate::Error;
use crate::catalog::Catalog;
pub use config::VisionConfig;
use millrace_graph::Weight;
pub(crate) use names::VisionName;
pub use names::{HfSpelling, VisionRole};

/// A matrix `[n, k]` and its bias `[n]`.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasedLinear {
    /// `[n, k]`.
    pub weight: Weight,
    /// `[n]`.
    pub bias: Weight,
}

/// A layer norm's weight and bias, `[d_model]` each.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Factor.
    pub weight: Weight,
    /// Summand.
    pub bias: Weight,
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
    /// `[d_ff, d_model]`.
    pub up: BiasedLinear,
    /// `[d_model, d_ff]`.
    pub down: BiasedLinear,
}

/// A tower and its projector: hyperparameters, and the weights as the checkpoint names them.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionModel {
    /// Hyperparameters.
    pub config: VisionConfig,
    /// The patch convolution as a matrix `[d_model, 3 · patch²]`; columns in the order channel, y, x.
    pub patches: BiasedLinear,
    /// Position table, `[n_patches, d_model]`.
    pub positions: Weight,
    /// Blocks, in order.
    pub layers: Vec<VisionLayer>,
    /// After the blocks.
    pub norm: LayerNorm,
    /// RMSNorm of the pooled rows, `[d_model]`.
    pub pooled_norm: Weight,
    /// Added to that weight: 1 in Hugging Face files, 0 in GGUF ones, where it is in the file.
    pub pooled_norm_offset: f32,
    /// `[d_model, d_text]`: inputs by outputs, as the files have it.
    pub projection: Weight,
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
        let layers = (0..config.n_layers).map(|layer| finder.layer(layer));
        Ok(VisionModel {
            patches: finder.linear(None, VisionRole::Patches)?,
            positions: finder.weight(VisionName::weight(None, VisionRole::Positions))?,
            layers: layers.collect::<Result<_, _>>()?,
            norm: finder.norm(None, VisionRole::PostNorm)?,
            pooled_norm: finder.weight(VisionName::weight(None, VisionRole::PooledNorm))?,
            pooled_norm_offset: match source {
                Source::Gguf => 0.0,
                Source::HuggingFace => 1.0,
            },
            projection: finder.projection()?,
            config,
        })
    }
}

/// Finds and checks weights.
struct Finder<'a> {
    config: &'a VisionConfig,
    catalog: &'a Catalog<'a>,
    /// The spelling of a Hugging Face file; `None` for GGUF.
    spelling: Option<HfSpelling>,
    /// Old files of llama.cpp call the up projection down and the other way round.
    swapped: bool,
}

impl<'a> Finder<'a> {
    fn new(config: &'a VisionConfig, source: Source, catalog: &'a Catalog<'a>) -> Finder<'a> {
        let spelling = (source == Source::HuggingFace).then(|| HfSpelling::of(catalog));
        let down = catalog.shape("v.blk.0.ffn_down.weight");
        Finder {
            swapped: spelling.is_none()
                && config.d_ff != config.d_model
                && down == Some(&[config.d_ff, config.d_model]),
            config,
            catalog,
            spelling,
        }
    }

    fn layer(&self, layer: usize) -> Result<VisionLayer, Error> {
        let linear = |role| self.linear(Some(layer), role);
        Ok(VisionLayer {
            norm1: self.norm(Some(layer), VisionRole::Norm1)?,
            qkv: [
                linear(VisionRole::AttnQ)?,
                linear(VisionRole::AttnK)?,
                linear(VisionRole::AttnV)?,
            ],
            out: linear(VisionRole::AttnOutput)?,
            norm2: self.norm(Some(layer), VisionRole::Norm2)?,
            up: linear(VisionRole::FfnUp)?,
            down: linear(VisionRole::FfnDown)?,
        })
    }

    fn norm(&self, layer: Option<usize>, role: VisionRole) -> Result<LayerNorm, Error> {
        let name = VisionName::weight(layer, role);
        Ok(LayerNorm {
            weight: self.weight(name)?,
            bias: self.weight(name.bias())?,
        })
    }

    fn linear(&self, layer: Option<usize>, role: VisionRole) -> Result<BiasedLinear, Error> {
        let name = VisionName::weight(layer, role);
        Ok(BiasedLinear {
            weight: self.weight(name)?,
            bias: self.weight(name.bias())?,
        })
    }

    /// The projection is read by column, which only plain numbers allow.
    fn projection(&self) -> Result<Weight, Error> {
        let weight = self.weight(VisionName::weight(None, VisionRole::Projection))?;
        if !weight.dtype.is_float() {
            return Err(Error::TensorType {
                file: self.catalog.file().into(),
                tensor: weight.name,
                found: weight.dtype.name().into(),
                expected: "f32, f16 or bf16".into(),
            });
        }
        Ok(weight)
    }

    fn weight(&self, name: VisionName) -> Result<Weight, Error> {
        let spelled = match self.spelling {
            Some(spelling) => name.hf(spelling),
            None if self.swapped => name.swapped().gguf(),
            None => name.gguf(),
        };
        let shape = self.config.shape_of(name);
        let dtype = self.catalog.check(&spelled, &shape)?;
        let (n, k) = match shape.split_first() {
            Some((n, rest)) if !rest.is_empty() => (*n, rest.iter().product()),
            _ => (1, shape[0]),
        };
        Ok(Weight {
            n_experts: 1,
            source: millrace_graph::WeightSource::Whole,
            name: spelled,
            n,
            k,
            dtype,
        })
    }
}
