//! Any bytes as `tokenizer.model`, and as `vocab.json` and `merges.txt` with a zero byte between: an error, or a tokenizer
//! whose tokens are in its vocabulary.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_text::{EncodeOptions, SeparateFiles, SeparateVocabulary, Tokenizer};

const TEXT: &str = "Hello wörld\n  12 水";

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|byte| *byte == 0);
    let (vocab, merges) = bytes.split_at(at.unwrap_or(bytes.len()));
    let merges = merges.get(1..).unwrap_or_default();
    let merges = SeparateVocabulary::Merges { vocab, merges };
    for (vocabulary, class) in [
        (SeparateVocabulary::Pieces(bytes), "LlamaTokenizer"),
        (merges, "GPT2Tokenizer"),
        (merges, "Qwen2Tokenizer"),
    ] {
        let files = SeparateFiles {
            vocabulary,
            config: None,
        };
        let Ok(Some(whole)) = files.whole(class) else {
            continue;
        };
        let config = Some(&whole.tokenizer_config);
        let Ok(tokenizer) = Tokenizer::from_hf(&whole.tokenizer_json, config) else {
            continue;
        };
        let ids = tokenizer.encode(TEXT, EncodeOptions::default());
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.n_vocab()));
        let _ = tokenizer.decode(&ids, false);
    }
});
