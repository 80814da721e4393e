//! Small random-weight models, written once by `millrace synth` and shared by the tests.

use crate::run::{OK, finish, millrace};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// Writes a model into the shared folder.
fn synth(geometry: &str, name: &str, kind: &str) -> PathBuf {
    let path = FOLDER.path().join(name);
    let mut command = millrace(FOLDER.path());
    command.args([
        "-q", "synth", geometry, name, "--type", kind, "--layers", "2", "--seed", "1",
    ]);
    finish(&mut command).expect(OK);
    path
}

/// A GGUF file of the Llama family in Q8_0.
pub(crate) fn gguf() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| synth("llama-tiny", "llama.gguf", "Q8_0"));
    &PATH
}

/// A Hugging Face folder of the Llama family in F32.
pub(crate) fn folder() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| synth("llama-tiny", "llama-folder", "F32"));
    &PATH
}

/// A GGUF file of the Gemma family, with a sliding window, in F16.
pub(crate) fn gemma() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| synth("gemma-tiny", "gemma.gguf", "F16"));
    &PATH
}

/// A GGUF file of the Qwen 3 family with an untied head, in F32.
#[cfg(unix)]
pub(crate) fn plain_gguf() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| synth("qwen-tiny", "plain.gguf", "F32"));
    &PATH
}

/// The same model as a Hugging Face folder.
#[cfg(unix)]
pub(crate) fn plain_folder() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| synth("qwen-tiny", "plain-folder", "F32"));
    &PATH
}
