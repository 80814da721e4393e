//! llama.cpp's test vocabularies: every text must become exactly the expected ids.
//!
//! The files are not part of this repository; without them the tests say so and pass.

use crate::support;

use millrace_text::{EncodeOptions, Tokenizer};
use std::path::Path;

const NAMES: [&str; 4] = ["gpt-2", "llama-bpe", "llama-spm", "qwen2"];

fn each(check: impl Fn(&str, &Tokenizer, &Path)) {
    let Some(folder) = support::vocab_folder() else {
        return;
    };
    for name in NAMES {
        let path = folder.join(format!("ggml-vocab-{name}.gguf"));
        check(name, &support::tokenizer(&path), &path);
    }
}

fn texts(path: &Path) -> Vec<String> {
    let inputs = std::fs::read_to_string(path.with_extension("gguf.inp")).expect("texts are there");
    inputs
        .split("\n__ggml_vocab_test__\n")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_case_is_exact() {
    each(|name, tokenizer, path| {
        let outputs = std::fs::read_to_string(path.with_extension("gguf.out")).unwrap();
        let texts = texts(path);
        let outputs: Vec<&str> = outputs.lines().collect();
        assert!(outputs.len() > 40 && texts.len() >= outputs.len());
        for (text, line) in texts.iter().zip(outputs) {
            let want: Vec<u32> = line
                .split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect();
            assert_eq!(
                tokenizer.encode(text, EncodeOptions::default()),
                want,
                "{name}: {text:?}"
            );
        }
    });
}

#[test]
fn decoding_gives_the_text_back() {
    each(|name, tokenizer, path| {
        for text in texts(path) {
            let ids = tokenizer.encode(&text, EncodeOptions::default());
            assert_eq!(tokenizer.decode(&ids, true), text, "{name}");
            // The second time words are known.
            assert_eq!(
                tokenizer.encode(&text, EncodeOptions::default()),
                ids,
                "{name}"
            );
        }
    });
}

#[test]
fn special_tokens_of_real_files() {
    each(|name, tokenizer, _| {
        let special = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        let (text, want) = match name {
            "gpt-2" => ("a<|endoftext|>", vec![64, 50256]),
            "llama-bpe" => ("a<|eot_id|>", vec![128000, 64, 128009]),
            "llama-spm" => ("a</s>", vec![1, 263, 2]),
            _ => ("a<|im_end|>", vec![64, 151645]),
        };
        assert_eq!(tokenizer.encode(text, special), want, "{name}");
        let plain = tokenizer.encode(text, EncodeOptions::default());
        assert!(plain.iter().all(|id| !tokenizer.is_special(*id)), "{name}");
        assert_eq!(tokenizer.decode(&plain, true), text, "{name}");
        assert!(
            tokenizer.is_end_of_generation(*want.last().unwrap()),
            "{name}"
        );
        assert!(
            tokenizer
                .end_of_generation()
                .iter()
                .all(|id| tokenizer.is_special(*id)),
            "{name}"
        );
    });
}
