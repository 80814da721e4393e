//! Tokenizers of folders without `tokenizer.json` against transformers.
//!
//! `tools/make_tokenizer_fixtures.py` makes the folders and writes the results.

use crate::reference_tokenizers::{ADDED, PARSED, PLAIN, read};
use base64::Engine as _;
use millrace_text::{SeparateFiles, SeparateVocabulary, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

/// A vocabulary and its merges, and folders of them.
#[derive(Deserialize)]
struct Separate {
    vocab: Value,
    merges: String,
    folders: Vec<SeparateFolder>,
}

/// A SentencePiece model in base 64, and folders of it.
#[derive(Deserialize)]
struct SeparatePieces {
    model: String,
    folders: Vec<SeparateFolder>,
}

#[derive(Deserialize)]
struct SeparateFolder {
    config: Value,
    cases: Vec<Case>,
}

/// One text; `special` has the tokens around it, where they differ from `ids`.
#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    special: Option<Vec<u32>>,
}

/// transformers gives the same numbers for folders without `tokenizer.json`.
#[test]
fn byte_level_bpe_of_separate_files() {
    let fixture: Separate = read("separate.json");
    assert!(fixture.folders.len() > 5);
    let vocab = fixture.vocab.to_string();
    let vocabulary = SeparateVocabulary::Merges {
        vocab: vocab.as_bytes(),
        merges: fixture.merges.as_bytes(),
    };
    check_separate(vocabulary, &fixture.folders);
}

#[test]
fn pieces_of_a_sentencepiece_model_alone() {
    let fixture: SeparatePieces = read("separate_pieces.json");
    assert!(fixture.folders.len() > 3);
    let model = base64::engine::general_purpose::STANDARD.decode(fixture.model);
    let model = model.expect("it is base 64");
    check_separate(SeparateVocabulary::Pieces(&model), &fixture.folders);
    // Cut anywhere, it is refused or has fewer pieces; nothing panics.
    for n in 0..model.len() {
        let files = SeparateFiles {
            vocabulary: SeparateVocabulary::Pieces(&model[..n]),
            config: None,
        };
        if let Ok(Some(whole)) = files.whole("LlamaTokenizer") {
            assert!(!whole.tokenizer_json.is_empty());
        }
    }
    for bytes in ["", "\x0a", "\x0a\x05ab", "\x0f", "text, not a model"] {
        let files = SeparateFiles {
            vocabulary: SeparateVocabulary::Pieces(bytes.as_bytes()),
            config: None,
        };
        let error = files.whole("LlamaTokenizer").expect_err("it is no model");
        assert!(error.to_string().contains("tokenizer.model"), "{error}");
    }
}

fn check_separate(vocabulary: SeparateVocabulary<'_>, folders: &[SeparateFolder]) {
    for SeparateFolder { config, cases } in folders {
        let files = SeparateFiles {
            vocabulary,
            config: Some(config),
        };
        let class = config["tokenizer_class"].as_str().unwrap_or_default();
        let whole = files.whole(class).expect("it is JSON");
        let whole = whole.expect("the class is known");
        let tokenizer = Tokenizer::from_hf(&whole.tokenizer_json, Some(&whole.tokenizer_config));
        let tokenizer = tokenizer.expect("it is supported");
        assert!(cases.len() > 60);
        for Case { text, ids, special } in cases {
            assert_eq!(&tokenizer.encode(text, PARSED), ids, "{config}: {text:?}");
            let special = special.as_ref().unwrap_or(ids);
            let found = tokenizer.encode(text, ADDED);
            assert_eq!(&found, special, "{config}: {text:?}");
        }
    }
}

#[test]
fn separate_files_of_strangers_are_refused() {
    let vocab = br#"{"a": 0, "b": 1, "ab": 2}"#;
    let whole = |vocab: &[u8], merges: &[u8]| {
        let files = SeparateFiles {
            vocabulary: SeparateVocabulary::Merges { vocab, merges },
            config: None,
        };
        let whole = files.whole("GPT2Tokenizer")?.expect("the class is known");
        Tokenizer::from_hf(&whole.tokenizer_json, Some(&whole.tokenizer_config))
    };
    let merges = b"#version: 0.2\r\na b\r\n";
    let tokenizer = whole(vocab, merges).expect("it is whole");
    assert_eq!(tokenizer.encode("abb", PLAIN), [2, 1]);
    assert_eq!(tokenizer.eos(), Some(3), "a token of the class is new");
    let usual = r#"{"a": 0, "b": 1, "ab": 2}"#;
    for (vocab, merges) in [
        ("{", ""),
        (r#"{"a": -1}"#, ""),
        (r#"{"a": 4000000000}"#, ""),
        (r#"{"a": 0, "b": 0}"#, ""),
        (usual, "a c"),
        (usual, "ab"),
        (usual, "a b c"),
        (usual, "a \u{fffd}"),
        (usual, "a b\n\n"),
    ] {
        let refused = whole(vocab.as_bytes(), merges.as_bytes()).is_err();
        assert!(refused, "{vocab} {merges:?}");
    }
    assert!(whole(vocab, b"a \xff").is_err());
    let files = SeparateFiles {
        vocabulary: SeparateVocabulary::Merges { vocab, merges },
        config: None,
    };
    for class in ["BioGptTokenizer", "LlamaTokenizer"] {
        assert!(files.whole(class).expect("other files").is_none());
    }
}
