//! A Hugging Face folder of each family with its configuration or its weights' header changed: an error, or a model
//! that computes.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{edits, models};
use serde_json::Value;

struct Folder {
    config: Value,
    weights: Vec<u8>,
}

fn folders() -> &'static [Folder] {
    static FOLDERS: OnceLock<Vec<Folder>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let read = |folder: &std::path::PathBuf| {
            let config = std::fs::read(folder.join("config.json")).ok()?;
            Some(Folder {
                config: serde_json::from_slice(&config).ok()?,
                weights: std::fs::read(folder.join("model.safetensors")).ok()?,
            })
        };
        models::goldens().iter().filter_map(read).collect()
    })
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let right = input.choose(folders())?;
    let mut config = right.config.clone();
    edits::edit_json(&mut config, input)?;
    let mut weights = right.weights.clone();
    edits::edit_bytes(&mut weights, 4096, input)?;
    let folder = models::scratch();
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
    std::fs::write(folder.path().join("model.safetensors"), weights).expect("a file");
    models::exercise(folder.path());
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
