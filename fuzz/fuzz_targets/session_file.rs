//! A file of a conversation with a few places changed, its checksums recomputed: an error, or a sequence that can go on.
#![no_main]

use std::sync::{Mutex, OnceLock, PoisonError};

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use millrace_fuzz::session::SessionFiles;

fn files() -> &'static Mutex<Vec<SessionFiles>> {
    static FILES: OnceLock<Mutex<Vec<SessionFiles>>> = OnceLock::new();
    // Keys and values alone, windows, and states as well.
    let models = ["llama-mha", "gemma3-pattern", "qwen35"];
    FILES.get_or_init(|| Mutex::new(models.map(SessionFiles::of).into()))
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let mut files = files().lock().unwrap_or_else(PoisonError::into_inner);
    let which = input.choose_index(files.len())?;
    let bytes = files[which].edited(input)?;
    files[which].load(&bytes);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    // Too few bytes describe nothing.
    let _ = run(&mut Unstructured::new(bytes));
});
