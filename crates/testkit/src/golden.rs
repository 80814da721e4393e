//! The fixtures of `testdata/goldens`: tiny models with the results transformers computes for them.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_format::{Checkpoint, Tensor};
use tempfile::TempDir;

/// A matrix `[n, width]` f32, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenMatrix {
    /// Elements a row.
    pub width: usize,
    /// All rows.
    pub data: Vec<f32>,
}

impl GoldenMatrix {
    /// Number of rows.
    pub fn n(&self) -> usize {
        self.data.len() / self.width
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.width..][..self.width]
    }
}

/// Results of transformers.
#[derive(Clone, Debug)]
pub struct GoldenValues {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Logits after each token: `[n, vocab]`.
    pub logits: GoldenMatrix,
    /// Input of each block, then the output of the last one (before the final norm): `n_layers + 1`
    /// matrices `[n, d_model]`.
    pub hidden: Vec<GoldenMatrix>,
}

/// The context to run a fixture in, from the number of tokens that its RoPE frequencies allow unless a longer context is
/// asked for. Where this is below 64, the fixture's prompt is longer and its results are those of the frequencies for long
/// contexts.
pub fn context(position_limit: Option<usize>) -> Option<usize> {
    position_limit.filter(|limit| *limit < 64).map(|_| 512)
}

/// One fixture.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The folder's name.
    pub name: String,
    dir: PathBuf,
}

impl Golden {
    /// All fixtures, by name.
    pub fn all() -> Vec<Golden> {
        let root = root();
        let entries = fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        let mut all: Vec<Golden> = entries
            .map(|entry| entry.expect("the folder can be listed").path())
            .filter(|path| path.join("expected.safetensors").is_file())
            .map(Golden::at)
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(!all.is_empty(), "no fixtures in {}", root.display());
        all
    }

    /// The fixture of that name.
    pub fn named(name: &str) -> Golden {
        let dir = root().join(name);
        assert!(dir.is_dir(), "no fixture {}", dir.display());
        Golden::at(dir)
    }

    fn at(dir: PathBuf) -> Golden {
        let name = dir
            .file_name()
            .expect("a folder inside the root")
            .to_string_lossy();
        Golden {
            name: name.into_owned(),
            dir,
        }
    }

    /// The Hugging Face folder (`config.json` of transformers 5, F32 safetensors).
    pub fn hf(&self) -> &Path {
        &self.dir
    }

    /// llama.cpp's conversion of it, if the fixture has one.
    pub fn gguf(&self) -> Option<PathBuf> {
        Some(self.dir.join("model.f32.gguf")).filter(|path| path.is_file())
    }

    /// A copy of the folder whose `config.json` is spelled as transformers 4 does, if the fixture
    /// has one. The folder lives as long as the value.
    pub fn hf_v4(&self) -> Option<TempDir> {
        let config = Some(self.dir.join("config.v4.json")).filter(|path| path.is_file())?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let copies = [
            (config, "config.json"),
            (self.dir.join("model.safetensors"), "model.safetensors"),
        ];
        for (from, to) in copies {
            fs::copy(&from, folder.path().join(to))
                .unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
        Some(folder)
    }

    /// Tokens, logits and hidden states.
    pub fn expected(&self) -> GoldenValues {
        expected_of(&self.dir)
    }
}

/// Contents of a folder's `expected.safetensors`.
pub(crate) fn expected_of(dir: &Path) -> GoldenValues {
    let path = dir.join("expected.safetensors");
    let file = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let rows = |name: &str| file.tensor(name).map(|tensor| to_rows(&tensor));
    let tokens = file.tensor("tokens").expect("every fixture has tokens");
    GoldenValues {
        tokens: to_tokens(&tokens),
        logits: rows("logits").expect("every fixture has logits"),
        hidden: (0..).map_while(|i| rows(&format!("hidden.{i}"))).collect(),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens")
}

pub(crate) fn to_tokens(tensor: &Tensor<'_>) -> Vec<u32> {
    let (ids, _) = tensor.bytes.as_chunks::<8>();
    let id = |bytes: &[u8; 8]| u32::try_from(i64::from_le_bytes(*bytes)).expect("a token id");
    ids.iter().map(id).collect()
}

pub(crate) fn to_rows(tensor: &Tensor<'_>) -> GoldenMatrix {
    let (numbers, rest) = tensor.bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "{} is f32", tensor.info.name);
    let data = numbers
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    GoldenMatrix {
        width: tensor.k(),
        data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixture_is_complete() {
        for golden in Golden::all() {
            let expected = golden.expected();
            let n = expected.tokens.len();
            assert!(n > 1, "{}", golden.name);
            assert_eq!(expected.logits.n(), n, "{}", golden.name);
            assert!(expected.hidden.len() > 2, "{}", golden.name);
            assert!(
                expected.hidden.iter().all(|rows| rows.n() == n),
                "{}",
                golden.name
            );
            assert!(
                expected
                    .tokens
                    .iter()
                    .all(|&id| (id as usize) < expected.logits.width)
            );
        }
    }

    #[test]
    fn version_4_copy_has_the_other_configuration() {
        let golden = Golden::named("llama-llama3");
        let folder = golden.hf_v4().expect("this fixture has both spellings");
        let read = |dir: &Path| fs::read_to_string(dir.join("config.json")).unwrap();
        assert!(read(folder.path()).contains("rope_scaling"));
        assert!(read(golden.hf()).contains("rope_parameters"));
    }
}
