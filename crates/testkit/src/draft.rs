//! The fixtures of `testdata/drafts`: tiny models with a layer that predicts the token after the next, and the results of
//! transformers for it.

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;

use crate::golden::{GoldenMatrix, to_rows, to_tokens};

/// One fixture.
#[derive(Clone, Debug)]
pub struct DraftGolden {
    dir: PathBuf,
}

/// Results of transformers.
#[derive(Clone, Debug)]
pub struct DraftValues {
    /// The text.
    pub tokens: Vec<u32>,
    /// Input of the model's head at each token but the last: `[n - 1, d_model]`.
    pub states: GoldenMatrix,
    /// Input of the layer's head at each token but the first, from that token and the state before it.
    pub normed: GoldenMatrix,
    /// The layer's logits there.
    pub logits: GoldenMatrix,
}

impl DraftGolden {
    /// All fixtures.
    pub fn all() -> Vec<DraftGolden> {
        let names = ["qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek-v3"];
        names.map(DraftGolden::named).into()
    }

    /// The fixture of that name.
    pub fn named(name: &str) -> DraftGolden {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/drafts");
        DraftGolden {
            dir: root.join(name),
        }
    }

    /// The Hugging Face folder, and llama.cpp's conversion of it where there is one.
    pub fn files(&self) -> Vec<PathBuf> {
        let gguf = self.dir.join("model.f32.gguf");
        let gguf = Some(gguf).filter(|path| path.is_file());
        [self.dir.clone()].into_iter().chain(gguf).collect()
    }

    /// Text, states, and the layer's results for them.
    pub fn expected(&self) -> DraftValues {
        let path = self.dir.join("expected.safetensors");
        let file = Checkpoint::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let tensor = |name: &str| file.tensor(name).expect("every fixture has it");
        let rows = |name: &str| to_rows(&tensor(name));
        DraftValues {
            tokens: to_tokens(&tensor("tokens")),
            states: rows("states"),
            normed: rows("normed"),
            logits: rows("logits"),
        }
    }
}
