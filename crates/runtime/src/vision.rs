//! Vision: from a picture to the [`Image`] that a text model takes.
//!
//! ```text
//!  file ─ Picture::decode ─ Preprocess::apply ─► pixel values ─ VisionTower::encode ─► Image (rows and ids)
//!  prompt ─ VisionTower::expand ─ VisionTower::tokens ─► tokens with placeholders ─ image::place ─► tokens
//! ```
//!
//! [`VisionTower::open`] finds the tower in the model's own files or in an `mmproj` file. A tower runs
//! on the kernels of a [`millrace_kernels::Cpu`], whichever engine runs the text, or has its blocks on the text
//! model's device ([`TowerBlocks`]). [`ImageReader`] is a tower with a way of preparing pictures: what fronts use.

mod encode;
mod heads;
mod on_device;
mod open;
mod prompt;
mod reader;

use std::sync::Arc;

use millrace_format::Checkpoint;
use millrace_graph::Weight;
use millrace_model::{VisionConfig, VisionModel};
use millrace_picture::Preprocess;

use crate::{Image, LoadedModel};
pub use millrace_picture as picture;
pub use on_device::{TowerBlocks, TowerOn, TowerRun};
pub use prompt::{IMAGE_TOKEN, ImageStyle, ImageText};
pub use reader::{ImageReader, Pixels, ReadOptions};

/// A vision tower and its projector, ready to run. The matrices stay mapped in their file.
pub struct VisionTower {
    file: TowerFile,
    model: VisionModel,
    vectors: Vectors,
    /// The projection with rows for outputs, in its file's format.
    projection: Vec<u8>,
    preprocess: Preprocess,
    /// The token that stands for a row of a picture in lists of tokens.
    placeholder: u32,
}

/// Where the tower's weights are.
enum TowerFile {
    /// Among the text model's.
    Model(Arc<LoadedModel>),
    /// In a file of their own.
    Own(Box<Checkpoint>),
}

impl TowerFile {
    fn checkpoint(&self) -> &Checkpoint {
        match self {
            TowerFile::Model(model) => model.checkpoint(),
            TowerFile::Own(checkpoint) => checkpoint,
        }
    }
}

/// Norms and biases as f32.
struct Vectors {
    patches_bias: Vec<f32>,
    positions: Vec<f32>,
    layers: Vec<LayerVectors>,
    norm: [Vec<f32>; 2],
    pooled_norm: Vec<f32>,
}

/// Those of a block. A norm is its weight and its bias.
struct LayerVectors {
    norm1: [Vec<f32>; 2],
    qkv_bias: [Vec<f32>; 3],
    out_bias: Vec<f32>,
    norm2: [Vec<f32>; 2],
    up_bias: Vec<f32>,
    down_bias: Vec<f32>,
}

/// What a tower makes of one picture.
#[derive(Debug)]
pub struct PictureRows {
    /// What leaves the tower after its last norm, `[n_patches, d_model]` f32.
    pub encoder: Vec<f32>,
    /// The rows that the text model takes, `[n_tokens, d_text]`.
    pub image: Arc<Image>,
    /// What it took of a device, where the blocks ran on one.
    pub on_device: Option<TowerRun>,
}

impl VisionTower {
    /// Hyperparameters.
    pub fn config(&self) -> &VisionConfig {
        &self.model.config
    }

    /// Hyperparameters and weights' names.
    pub fn model(&self) -> &VisionModel {
        &self.model
    }

    /// What to call it in messages: the file it is in.
    pub fn name(&self) -> &str {
        self.file.checkpoint().name()
    }

    /// Bytes of the file that the tower is in, if that is not the text model's.
    pub fn own_bytes(&self) -> u64 {
        match &self.file {
            TowerFile::Model(_) => 0,
            TowerFile::Own(checkpoint) => checkpoint.size_bytes(),
        }
    }

    /// Bytes of the values that a pass over one picture takes, beside weights: pixels, patches, the residual stream, queries,
    /// keys, values, what attention and the last norm give, and chunks of rows.
    pub fn work_bytes(&self) -> u64 {
        heads::work_bytes(self.config())
    }

    /// How pictures become pixel values, as the files say.
    pub fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    /// The token that stands for a row of a picture in lists of tokens: Gemma's `<image_soft_token>`.
    pub fn placeholder(&self) -> u32 {
        self.placeholder
    }

    fn bytes(&self, weight: &Weight) -> &[u8] {
        let tensor = self.file.checkpoint().tensor(&weight.name);
        tensor
            .expect("the tower was built from this checkpoint's tensors")
            .bytes
    }
}
