//! Tiny tokenizers of every kind against Hugging Face `tokenizers` and SentencePiece.
//!
//! `tools/make_tokenizer_fixtures.py` trains them and writes what the references make of each text.

use millrace_text::{DecodeOptions, Detokenizer, EncodeOptions, GgufVocab, Tokenizer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

/// One text. What is absent equals `ids` or `text`.
#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    /// With the tokens around a text.
    special: Option<Vec<u32>>,
    /// Without recognising control tokens.
    plain: Option<Vec<u32>>,
    /// `special` as text.
    decoded: Option<String>,
    /// `special` as text, control tokens skipped.
    skipped: Option<String>,
}

/// The pieces of a SentencePiece model.
#[derive(Deserialize)]
struct Pieces {
    tokens: Vec<String>,
    scores: Vec<f32>,
    token_types: Vec<i32>,
    add_space_prefix: bool,
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&bytes(name)).expect("the fixture fits")
}

fn bytes(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
    std::fs::read(folder.join(name)).expect("the fixture is there")
}

/// Decodes token by token, and checks that what comes is what decoding at once gives.
fn streamed(tokenizer: &Arc<Tokenizer>, ids: &[u32], skip_special: bool) -> String {
    let options = DecodeOptions {
        skip_special,
        text_start: true,
    };
    let mut stream = Detokenizer::new(tokenizer.clone(), options);
    let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
    text.push_str(&stream.finish());
    assert_eq!(text, tokenizer.decode(ids, skip_special));
    text
}

const PLAIN: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
const PARSED: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: true,
};
const ADDED: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

fn check_hugging_face(name: &str) {
    let tokenizer = Arc::new(
        Tokenizer::from_hf(&bytes(&format!("{name}.json")), None).expect("it is supported"),
    );
    let cases: Vec<Case> = read(&format!("{name}.cases.json"));
    assert!(cases.len() > 150);
    for case in cases {
        let text = &case.text;
        let special = case.special.as_ref().unwrap_or(&case.ids);
        // Twice: the second time words are known.
        for _ in 0..2 {
            assert_eq!(tokenizer.encode(text, PARSED), case.ids, "{name}: {text:?}");
        }
        assert_eq!(&tokenizer.encode(text, ADDED), special, "{name}: {text:?}");
        let plain = case.plain.as_ref().unwrap_or(&case.ids);
        assert_eq!(&tokenizer.encode(text, PLAIN), plain, "{name}: {text:?}");
        for (skip_special, want) in [(false, &case.decoded), (true, &case.skipped)] {
            let want = want.as_ref().unwrap_or(text);
            assert_eq!(
                &streamed(&tokenizer, special, skip_special),
                want,
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn byte_level_bpe() {
    for name in [
        "llama3",
        "qwen2",
        "gpt2",
        "smollm",
        "tekken",
        "deepseek",
        "partial_alphabet",
    ] {
        check_hugging_face(name);
    }
}

#[test]
fn bpe_over_characters() {
    for name in ["llama2", "mistral", "gemma", "metaspace"] {
        check_hugging_face(name);
    }
}

#[test]
fn sentencepiece() {
    for name in ["spm_llama", "spm_gemma"] {
        let pieces: Pieces = read(&format!("{name}.json"));
        let vocab = GgufVocab {
            model: "llama",
            tokens: pieces.tokens.iter().map(String::as_str).collect(),
            scores: pieces.scores,
            token_types: pieces.token_types,
            add_space_prefix: Some(pieces.add_space_prefix),
            ..GgufVocab::default()
        };
        let tokenizer = Arc::new(Tokenizer::from_gguf(vocab).unwrap());
        let cases: Vec<Case> = read(&format!("{name}.cases.json"));
        assert!(cases.len() > 120);
        for case in cases {
            let text = &case.text;
            for _ in 0..2 {
                assert_eq!(tokenizer.encode(text, PLAIN), case.ids, "{name}: {text:?}");
            }
            let want = case.decoded.as_ref().unwrap_or(text);
            assert_eq!(
                &streamed(&tokenizer, &case.ids, true),
                want,
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn threads_share_a_tokenizer() {
    let tokenizer = Tokenizer::from_hf(&bytes("llama2.json"), None).expect("it is supported");
    let cases: Vec<Case> = read("llama2.cases.json");
    std::thread::scope(|scope| {
        for skip in 0..4 {
            let (tokenizer, cases) = (&tokenizer, &cases);
            scope.spawn(move || {
                for case in cases.iter().cycle().skip(skip * 40).take(cases.len()) {
                    assert_eq!(tokenizer.encode(&case.text, PARSED), case.ids);
                }
            });
        }
    });
}
