//! Any bytes as `tokenizer.json`, and a text after a zero byte: an error, or a tokenizer whose tokens are in its
//! vocabulary.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_text::{EncodeOptions, Tokenizer};

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|byte| *byte == 0);
    let (json, text) = bytes.split_at(at.unwrap_or(bytes.len()));
    let Ok(tokenizer) = Tokenizer::from_hf(json, None) else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let ids = tokenizer.encode(&text, EncodeOptions::default());
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.n_vocab()));
    let _ = tokenizer.decode(&ids, false);
    let _ = tokenizer.decode(&ids, true);
});
