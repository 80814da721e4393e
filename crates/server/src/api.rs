//! The APIs: requests of several dialects, translated to jobs, and results translated back.

pub(crate) mod anthropic;
pub(crate) mod base64;
pub(crate) mod calls;
pub(crate) mod earlier;
pub(crate) mod embeddings;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod forms;
pub(crate) mod generation;
pub(crate) mod infill;
pub(crate) mod llama_cpp;
pub(crate) mod lora;
pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod params;
pub(crate) mod placement;
pub(crate) mod prompt;
pub(crate) mod rank;
pub(crate) mod sampling;
pub(crate) mod shape;
pub(crate) mod signature;
mod submit;
pub(crate) mod thinking;
pub(crate) mod time;
pub(crate) mod tokens;
pub(crate) mod tools;
pub(crate) mod turns;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A unique name for requests, answers and calls. Not a secret.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{:016x}", random_from(NEXT.fetch_add(1, Relaxed)))
}

/// A random number.
pub(crate) fn random() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    random_from(NEXT.fetch_add(1, Relaxed))
}

/// A random number derived from `number`. The standard library's hash keys are random, and one key's hashes of
/// different numbers differ.
fn random_from(number: u64) -> u64 {
    static KEYS: std::sync::OnceLock<RandomState> = std::sync::OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(number)
}
