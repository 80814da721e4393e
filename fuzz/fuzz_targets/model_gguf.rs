//! A GGUF model of each architecture with a few places changed: an error, or a model that computes.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{edits, models};

fn files() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let folders = models::goldens();
        let files = folders.iter().map(|folder| folder.join("model.f32.gguf"));
        files.filter_map(|file| std::fs::read(file).ok()).collect()
    })
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let mut bytes = input.choose(files())?.clone();
    // Metadata and tensor infos are within the first pages.
    edits::edit_bytes(&mut bytes, 4096, input)?;
    let folder = models::scratch();
    let path = folder.path().join("fuzz.gguf");
    std::fs::write(&path, bytes).expect("a file");
    models::exercise(&path);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    // Too few bytes describe nothing.
    let _ = run(&mut Unstructured::new(bytes));
});
