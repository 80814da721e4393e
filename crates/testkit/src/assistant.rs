//! The fixtures of `testdata/assistants`: tiny assistants of models of `testdata/goldens`, and the drafts that transformers makes
//! with both.

use std::path::{Path, PathBuf};

use millrace_format::Checkpoint;

use crate::golden::{Golden, GoldenMatrix, to_rows, to_tokens};

/// Drafts behind each length.
pub const N_DRAFTS: usize = 4;

/// One fixture.
#[derive(Clone, Debug)]
pub struct AssistantGolden {
    name: &'static str,
    dir: PathBuf,
}

/// Results of transformers.
#[derive(Clone, Debug)]
pub struct AssistantValues {
    /// The text.
    pub tokens: Vec<u32>,
    /// Numbers of its tokens that the target reads.
    pub lengths: Vec<usize>,
    /// For each of them, the input of the target's head at the last token.
    pub states: GoldenMatrix,
    /// For each of them, [`N_DRAFTS`] drafts behind the next token.
    pub drafts: Vec<u32>,
    /// Their logits.
    pub logits: GoldenMatrix,
}

impl AssistantGolden {
    /// All fixtures.
    pub fn all() -> Vec<AssistantGolden> {
        ["gemma4", "gemma4-keys"].map(AssistantGolden::named).into()
    }

    /// The fixture of that name.
    pub fn named(name: &'static str) -> AssistantGolden {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/assistants");
        AssistantGolden {
            name,
            dir: root.join(name),
        }
    }

    /// The model that it drafts for.
    pub fn target(&self) -> Golden {
        Golden::named(self.name)
    }

    /// The Hugging Face folder, and llama.cpp's conversion of it.
    pub fn files(&self) -> [PathBuf; 2] {
        [self.dir.clone(), self.dir.join("model.f32.gguf")]
    }

    /// Text, states and drafts.
    pub fn expected(&self) -> AssistantValues {
        let path = self.dir.join("expected.safetensors");
        let file = Checkpoint::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let tensor = |name: &str| file.tensor(name).expect("every fixture has it");
        let lengths = to_tokens(&tensor("lengths"));
        AssistantValues {
            tokens: to_tokens(&tensor("tokens")),
            lengths: lengths.into_iter().map(|n| n as usize).collect(),
            states: to_rows(&tensor("states")),
            drafts: to_tokens(&tensor("drafts")),
            logits: to_rows(&tensor("logits")),
        }
    }
}
