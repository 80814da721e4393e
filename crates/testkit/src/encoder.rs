//! The fixtures of `testdata/encoders`: tiny encoders, and the results of transformers for a text.

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;

use crate::golden::{GoldenMatrix, to_rows, to_tokens};

/// One encoder.
#[derive(Clone, Debug)]
pub struct EncoderGolden {
    /// The folder's name.
    pub name: &'static str,
    dir: PathBuf,
    files: EncoderFiles,
}

/// The kinds of files of a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EncoderFiles {
    /// A Hugging Face folder.
    Folder,
    /// A Hugging Face folder, and llama.cpp's conversion of it.
    Both,
    /// Only llama.cpp's conversion: no folder of the family is read.
    Gguf,
}

/// Every fixture: encoders with states first, then those that rank, then those with dense layers behind them.
const FIXTURES: [(&str, EncoderFiles); 19] = [
    ("bert", EncoderFiles::Both),
    ("bert-tanh", EncoderFiles::Folder),
    ("distilbert", EncoderFiles::Both),
    ("eurobert", EncoderFiles::Both),
    ("gemma-embedding", EncoderFiles::Both),
    ("jina-bert-v2", EncoderFiles::Both),
    ("jina-bert-v3", EncoderFiles::Both),
    ("llama-embed", EncoderFiles::Both),
    ("modern-bert", EncoderFiles::Both),
    ("neo-bert", EncoderFiles::Both),
    ("nomic-bert", EncoderFiles::Both),
    ("nomic-bert-moe", EncoderFiles::Gguf),
    ("xlm-roberta", EncoderFiles::Both),
    ("bert-rank", EncoderFiles::Both),
    ("modern-bert-rank", EncoderFiles::Both),
    ("qwen3-rank", EncoderFiles::Both),
    ("xlm-roberta-rank", EncoderFiles::Both),
    ("bert-dense", EncoderFiles::Folder),
    ("gemma-embedding-dense", EncoderFiles::Folder),
];

/// Number of [`FIXTURES`] with states, which come first.
const N_WITH_STATES: usize = 13;

impl EncoderGolden {
    /// All fixtures with the states of transformers.
    pub fn all() -> Vec<EncoderGolden> {
        let with_states = FIXTURES[..N_WITH_STATES].iter();
        with_states
            .map(|(name, _)| EncoderGolden::named(name))
            .collect()
    }

    /// The fixture of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> EncoderGolden {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/encoders");
        let fixture = FIXTURES.iter().find(|fixture| fixture.0 == name);
        let (name, files) = *fixture.unwrap_or_else(|| panic!("no encoder {name}"));
        EncoderGolden {
            name,
            dir: root.join(name),
            files,
        }
    }

    /// The Hugging Face folder.
    pub fn hf(&self) -> &Path {
        &self.dir
    }

    /// llama.cpp's conversion of it, for fixtures that have one.
    pub fn gguf(&self) -> Option<PathBuf> {
        (self.files != EncoderFiles::Folder).then(|| self.dir.join("model.f32.gguf"))
    }

    /// The model files: the folder, the GGUF file, or both.
    pub fn models(&self) -> Vec<PathBuf> {
        let folder = (self.files != EncoderFiles::Gguf).then(|| self.dir.clone());
        folder.into_iter().chain(self.gguf()).collect()
    }

    /// The first of [`models`](EncoderGolden::models).
    pub fn model(&self) -> PathBuf {
        self.models().remove(0)
    }

    /// The vector of the tokens by sentence-transformers, for fixtures with dense layers.
    pub fn embedding(&self) -> Vec<f32> {
        let file = self.expected_file();
        let vector = file.tensor("embedding").expect("the fixture has a vector");
        to_rows(&vector).data
    }

    fn expected_file(&self) -> Checkpoint {
        let path = self.dir.join("expected.safetensors");
        Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Input of pooling: rows `[n, d_model]` behind the last norm.
    pub fn last(&self) -> GoldenMatrix {
        let file = self.expected_file();
        to_rows(&file.tensor("last").expect("every encoder has last states"))
    }

    /// The tokens, the input of each block and the output of the last: `n_layers + 1` matrices `[n, d_model]`.
    pub fn expected(&self) -> (Vec<u32>, Vec<GoldenMatrix>) {
        let file = self.expected_file();
        let tokens = file.tensor("tokens").expect("every fixture has tokens");
        let hidden = (0..).map_while(|i| file.tensor(&format!("hidden.{i}")));
        (
            to_tokens(&tokens),
            hidden.map(|rows| to_rows(&rows)).collect(),
        )
    }
}
