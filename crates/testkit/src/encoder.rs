//! The fixtures of `testdata/encoders`: tiny encoders, and what transformers makes of a text.

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;

use crate::golden::{GoldenMatrix, to_rows, to_tokens};

/// One encoder.
#[derive(Clone, Debug)]
pub struct EncoderGolden {
    /// The folder's name.
    pub name: &'static str,
    dir: PathBuf,
}

impl EncoderGolden {
    /// All of them.
    pub fn all() -> Vec<EncoderGolden> {
        let names = [
            "bert",
            "bert-tanh",
            "eurobert",
            "gemma-embedding",
            "jina-bert-v2",
            "jina-bert-v3",
            "modern-bert",
            "nomic-bert",
            "xlm-roberta",
        ];
        names.map(EncoderGolden::named).to_vec()
    }

    /// The one of that name.
    pub fn named(name: &'static str) -> EncoderGolden {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/encoders");
        EncoderGolden {
            name,
            dir: root.join(name),
        }
    }

    /// The Hugging Face folder.
    pub fn hf(&self) -> &Path {
        &self.dir
    }

    /// llama.cpp's conversion of it, if there is one.
    pub fn gguf(&self) -> Option<PathBuf> {
        Some(self.dir.join("model.f32.gguf")).filter(|path| path.is_file())
    }

    /// What is pooled: rows `[n, d_model]` behind the last norm.
    pub fn last(&self) -> GoldenMatrix {
        let path = self.dir.join("expected.safetensors");
        let file = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        to_rows(&file.tensor("last").expect("every encoder has last states"))
    }

    /// The tokens, and what enters each block and leaves the last: `n_layers + 1` matrices `[n, d_model]`.
    pub fn expected(&self) -> (Vec<u32>, Vec<GoldenMatrix>) {
        let path = self.dir.join("expected.safetensors");
        let file = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let tokens = file.tensor("tokens").expect("every fixture has tokens");
        let hidden = (0..).map_while(|i| file.tensor(&format!("hidden.{i}")));
        (
            to_tokens(&tokens),
            hidden.map(|rows| to_rows(&rows)).collect(),
        )
    }
}
