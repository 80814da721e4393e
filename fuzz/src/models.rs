//! Small models of every architecture, and the calls made with one that opens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_runtime::{BatchItem, CpuEngine, Engine, EngineOptions, LoadedModel};

/// Folders of the golden models, which represent every family.
pub fn goldens() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/goldens");
    let entries = std::fs::read_dir(&root).expect("the golden models are in the repository");
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("config.json").exists())
        .collect();
    folders.sort();
    folders
}

/// A memory file system where there is one: files are written at each run.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder for files")
}

/// Opens a model and computes two passes with it: every error is fine, nothing else is.
pub fn exercise(path: &Path) {
    let model = match LoadedModel::open(path) {
        Ok(model) => Arc::new(model),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let _ = model.tokenizer();
    let _ = model.chat_template();
    let _ = model.recommended_sampling();
    let options = EngineOptions {
        n_threads: Some(1),
        n_ctx: Some(32),
        max_sequences: 1,
        max_chunk: 8,
        ..EngineOptions::default()
    };
    let Ok(mut engine) = CpuEngine::new(model, options) else {
        return;
    };
    let Ok(seq) = engine.create() else { return };
    for tokens in [&[1, 2, 3][..], &[0]] {
        if engine.compute(&[BatchItem::last(seq, tokens)]).is_err() {
            return;
        }
    }
}
