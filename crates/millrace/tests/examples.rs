//! Every example runs and its own checks pass.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo builds examples beside the tests.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let folder = deps.parent().unwrap().join("examples");
    folder
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION)
}

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_example_ends_well() {
    let cache = tempfile::tempdir().unwrap();
    let examples = sources();
    assert_eq!(examples.len(), 6);
    for source in examples {
        let name = source.file_stem().unwrap().to_str().unwrap();
        let n_lines = std::fs::read_to_string(&source).unwrap().lines().count();
        assert!(n_lines <= 60, "{name} has {n_lines} lines");
        let mut command = Command::new(built(name));
        let output = command.env("MILLRACE_NPU_CACHE", cache.path()).output();
        let output = output.unwrap_or_else(|error| {
            panic!("{name} was not built; `cargo test -p millrace-llm` builds it: {error}")
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{name}: {}\n{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        assert!(!output.stdout.is_empty(), "{name} prints nothing");
    }
}
