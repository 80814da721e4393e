//! The fixtures of `testdata/vision`: pictures, and tiny models with vision towers
//! (`tools/make_vision_goldens.py`).

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;

use crate::golden::{GoldenMatrix, GoldenValues, expected_of, to_rows};

/// What transformers makes of one picture.
#[derive(Clone, Debug)]
pub struct ExpectedImage {
    /// Rows and columns of the picture.
    pub height: usize,
    /// Pixels a row.
    pub width: usize,
    /// `[height, width, 3]`.
    pub rgb: Vec<u8>,
    /// `[3 · size, size]`.
    pub pixel_values: GoldenMatrix,
    /// What leaves the tower: `[n_patches, d_model]`.
    pub encoder: GoldenMatrix,
    /// What the text model takes: `[n_tokens, d_text]`.
    pub projected: GoldenMatrix,
}

/// One model.
#[derive(Clone, Debug)]
pub struct VisionGolden {
    /// The folder's name.
    pub name: &'static str,
    dir: PathBuf,
}

/// The token that holds a row's place in the fixtures' prompts.
pub const PLACEHOLDER: u32 = 262;

impl VisionGolden {
    /// All models.
    pub fn all() -> Vec<VisionGolden> {
        let names = ["gemma3-vision", "gemma3-vision-small"];
        let golden = |name| VisionGolden {
            name,
            dir: root().join(name),
        };
        names.map(golden).to_vec()
    }

    /// The Hugging Face folder.
    pub fn hf(&self) -> &Path {
        &self.dir
    }

    /// The tower as llama.cpp's converter writes it.
    pub fn mmproj(&self) -> PathBuf {
        self.dir.join("mmproj.gguf")
    }

    /// Tokens with placeholders, logits and hidden states.
    pub fn expected(&self) -> GoldenValues {
        expected_of(&self.dir)
    }

    /// The pictures of the prompt, in order.
    pub fn images(&self) -> Vec<ExpectedImage> {
        let path = self.dir.join("expected.safetensors");
        let file = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let image = |i: usize| {
            let tensor = |part: &str| file.tensor(&format!("image.{i}.{part}"));
            let rows = |part: &str| to_rows(&tensor(part).expect("a part of every image"));
            let picture = tensor("picture")?;
            Some(ExpectedImage {
                height: picture.info.shape[0],
                width: picture.info.shape[1],
                rgb: picture.bytes.to_vec(),
                pixel_values: rows("pixel_values"),
                encoder: rows("encoder"),
                projected: rows("projected"),
            })
        };
        (0..).map_while(image).collect()
    }
}

/// A picture file of the fixtures.
pub fn picture(name: &str) -> PathBuf {
    root().join("pictures").join(name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vision")
}
