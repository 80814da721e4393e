//! Vision: from an image to the [`Image`] that a text model takes.
//!
//! ```text
//!  file ─ Image::decode ─ Preprocess::apply ─► pixel values ─ VisionEncoder::encode ─► Image (rows and ids)
//!  prompt ─ VisionEncoder::expand ─ VisionEncoder::tokens ─► tokens with placeholders ─ image::place ─► tokens
//! ```
//!
//! [`VisionEncoder::open`] finds the vision encoder in the model's own files or in an `mmproj` file. A vision encoder runs
//! on the kernels of a [`millrace_kernels::Cpu`], whichever engine runs the text, or has its blocks on the text model's
//! device ([`VisionBlocks`]). [`ImageReader`] is a vision encoder with a way of preparing images, for front ends.

mod adapt;
mod average;
mod block;
mod encode;
mod heads;
mod linear;
mod merge;
mod on_device;
mod open;
mod order;
mod pool;
mod prepare;
mod prompt;
mod reader;
mod turn;

use std::sync::Arc;

use millrace_format::Checkpoint;
use millrace_graph::{Weight, WeightSource};
use millrace_image::Preprocess;
use millrace_model::{ImageSight, VisionConfig, VisionModel};

use crate::{Error, Image, LoadedModel};
use linear::LinearVectors;
pub use millrace_image as image;
pub use on_device::{VisionBlocks, VisionDevice, VisionRun};
pub use prompt::{ImageStyle, ImageText};
pub use reader::{ImageReader, Pixels, ReadOptions};
use turn::AxialTurn;

/// A vision encoder and its projector, ready to run. The matrices stay mapped in their file.
pub struct VisionEncoder {
    file: VisionFile,
    model: VisionModel,
    vectors: Vectors,
    /// Matrices that are not as in the file.
    own: OwnMatrices,
    /// Rotations by rows and by columns, if heads rotate.
    turns: Vec<AxialTurn>,
    preprocess: Preprocess,
    /// The part of their image that rows see in the text model.
    sight: ImageSight,
    /// The row between two lines of an image's rows; empty without one.
    line_break: Vec<f32>,
    /// The token that represents a row of an image in lists of tokens.
    placeholder: u32,
}

/// Where the vision encoder's weights are.
enum VisionFile {
    /// Among the text model's.
    Model(Arc<LoadedModel>),
    /// In a separate file.
    Own(Box<Checkpoint>),
}

impl VisionFile {
    fn checkpoint(&self) -> &Checkpoint {
        match self {
            VisionFile::Model(model) => model.checkpoint(),
            VisionFile::Own(checkpoint) => checkpoint,
        }
    }
}

/// Matrices computed when the vision encoder was opened.
struct OwnMatrices {
    /// The projection of pooled rows with rows for outputs, in its file's format; empty without one.
    projection: Vec<u8>,
    /// The patch matrix, `[d_model, 3 · patch²]` f32, columns in the order channel, y, x; for two equal frames the sum of both. Empty if
    /// the file's matrix has this form already.
    patches: Vec<u8>,
}

/// Norms and biases as f32. Those that a vision encoder does not have are empty.
struct Vectors {
    patches_bias: Vec<f32>,
    positions: Vec<f32>,
    pre_norm: [Vec<f32>; 2],
    layers: Vec<LayerVectors>,
    norm: [Vec<f32>; 2],
    projector: ProjectorVectors,
    /// As the model's.
    deepstack: Vec<MergerVectors>,
}

/// Vectors of a block. A norm is its weight and its bias.
struct LayerVectors {
    norm1: [Vec<f32>; 2],
    qkv: [LinearVectors; 3],
    out: LinearVectors,
    norm2: [Vec<f32>; 2],
    gate: LinearVectors,
    up: LinearVectors,
    down: LinearVectors,
    inner: Option<InnerVectors>,
}

/// Vectors of norms within a block.
struct InnerVectors {
    /// Norms of heads of queries, keys and values, `[head_dim]` each.
    heads: [Vec<f32>; 3],
    attention: [Vec<f32>; 2],
    feed_forward: [Vec<f32>; 2],
}

/// Vectors of the projector.
enum ProjectorVectors {
    /// The norm's weight.
    Pooled(Vec<f32>),
    /// The offset to subtract, and the factor, if averages are shifted and scaled.
    Averaged(Option<[Vec<f32>; 2]>),
    Merged(MergerVectors),
    Adapted {
        /// Before patches are merged; empty where they are not.
        norm: [Vec<f32>; 2],
        up_bias: Vec<f32>,
        down_bias: Vec<f32>,
    },
}

/// Vectors of a network over merged patches.
struct MergerVectors {
    norm: [Vec<f32>; 2],
    up_bias: Vec<f32>,
    down_bias: Vec<f32>,
}

/// Results of a vision encoder for one image.
#[derive(Debug)]
pub struct EncodedImage {
    /// The output of the vision encoder's blocks, after the last norm if there is one, `[n_patches, d_model]` f32. If a vision encoder
    /// merges squares of patches, the patches are ordered by squares, and by windows if it has any.
    pub encoder: Vec<f32>,
    /// The rows for the text model, `[n_tokens, d_text]`.
    pub image: Arc<Image>,
    /// Use of the device, if the blocks ran on one.
    pub on_device: Option<VisionRun>,
}

impl VisionEncoder {
    /// Hyperparameters.
    pub fn config(&self) -> &VisionConfig {
        &self.model.config
    }

    /// Hyperparameters and weights' names.
    pub fn model(&self) -> &VisionModel {
        &self.model
    }

    /// Its name for messages: the file it is in.
    pub fn name(&self) -> &str {
        self.file.checkpoint().name()
    }

    /// Bytes of the file that the vision encoder is in, if that is not the text model's.
    pub fn own_bytes(&self) -> u64 {
        match &self.file {
            VisionFile::Model(_) => 0,
            VisionFile::Own(checkpoint) => checkpoint.size_bytes(),
        }
    }

    /// Bytes of the values in a pass over one image of up to `n_tokens` rows, without weights. They are pixels, patches, the
    /// residual stream, queries, keys, values, results of attention and of the last norm, and chunks of rows.
    pub fn work_bytes(&self, n_tokens: usize) -> u64 {
        heads::work_bytes(self.config(), n_tokens)
    }

    /// How images become pixel values, as the files say.
    pub fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    /// The token that represents a row of an image in lists of tokens: Gemma's `<image_soft_token>`.
    pub fn placeholder(&self) -> u32 {
        self.placeholder
    }

    /// Number of rows for that many columns and rows of pixels.
    pub fn n_rows(&self, width: usize, height: usize) -> usize {
        let config = self.config();
        match &config.grid {
            Some(grid) => {
                let cell = grid.merge * config.patch_size;
                grid.n_rows((height / cell, width / cell))
            }
            None => config.n_tokens,
        }
    }

    /// Number of rows that an image of this many columns and rows becomes.
    ///
    /// # Errors
    /// [`Error::BadImage`] for an image that the vision encoder does not support.
    pub fn rows_of_image(&self, width: usize, height: usize) -> Result<usize, Error> {
        let (width, height) = self.preprocess.target(width, height).map_err(not_taken)?;
        Ok(self.n_rows(width, height))
    }

    fn bytes(&self, weight: &Weight) -> &[u8] {
        bytes(self.file.checkpoint(), weight)
    }
}

/// The error of an image that a vision encoder does not support.
fn not_taken(error: image::Error) -> Error {
    Error::BadImage {
        reason: error.to_string(),
    }
}

/// The stored bytes of a weight in a checkpoint.
fn bytes<'a>(checkpoint: &'a Checkpoint, weight: &Weight) -> &'a [u8] {
    let tensor = checkpoint.tensor(&weight.name);
    let bytes = tensor
        .expect("the vision encoder was built from this checkpoint's tensors")
        .bytes;
    let WeightSource::Rows { first, n_rows } = weight.source else {
        return bytes;
    };
    // The rows of a vector are its elements.
    let n = if weight.n == 1 { weight.k } else { weight.n };
    let row_bytes = bytes.len() / n_rows.max(1);
    &bytes[first * row_bytes..(first + n) * row_bytes]
}
