//! Small `tokenizer.json` files, whole ones and broken ones.

use super::*;
use crate::EncodeOptions;
use proptest::prelude::*;
use serde_json::json;

const PLAIN: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
const SPECIAL: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

fn byte_level() -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            {"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true},
            {"id": 5, "content": "<x>", "single_word": false, "lstrip": true, "rstrip": true,
             "normalized": true, "special": false}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3}, "merges": [["a", "b"]]}
    })
}

fn build(json: &Value, config: Option<&Value>) -> Result<Tokenizer, Error> {
    Tokenizer::from_hf(json.to_string().as_bytes(), config)
}

#[test]
fn byte_level_bpe() {
    let t = build(&byte_level(), None).unwrap();
    assert_eq!(t.encode("ab a<s>b", SPECIAL), [4, 3, 2, 0, 4, 1]);
    assert_eq!(t.encode("ab <x> a", PLAIN), [3, 5, 0]);
    assert_eq!((t.bos(), t.eos(), t.add_bos()), (Some(4), None, true));
    assert_eq!(t.decode(&[4, 3, 2, 0, 5], true), "ab a<x>");
}

#[test]
fn merges_may_be_strings() {
    let mut json = byte_level();
    json["model"]["merges"] = json!(["a b"]);
    assert_eq!(build(&json, None).unwrap().encode("ab", PLAIN), [3]);
}

#[test]
fn of_two_equal_merges_the_last_counts() {
    let mut json = byte_level();
    json["model"]["vocab"] = json!({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "bĠ": 6});
    json["model"]["merges"] = json!([["a", "b"], ["b", "Ġ"]]);
    json["pre_tokenizer"]["use_regex"] = json!(false);
    assert_eq!(build(&json, None).unwrap().encode("ab ", PLAIN), [3, 2]);
    json["model"]["merges"] = json!([["a", "b"], ["b", "Ġ"], ["a", "b"]]);
    assert_eq!(build(&json, None).unwrap().encode("ab ", PLAIN), [0, 6]);
}

#[test]
fn the_configuration_names_tokens_and_the_post_processor_adds_them() {
    for (config, bos, eos) in [
        (
            json!({"bos_token": "<s>", "eos_token": {"content": "b"}}),
            Some(4),
            Some(1),
        ),
        (
            json!({"bos_token": "a", "add_bos_token": false, "add_eos_token": true}),
            Some(0),
            None,
        ),
        (
            json!({"bos_token": null, "eos_token": "new"}),
            Some(4),
            Some(6),
        ),
    ] {
        let t = build(&byte_level(), Some(&config)).unwrap();
        assert_eq!((t.bos(), t.eos()), (bos, eos), "{config}");
        assert_eq!(t.encode("a", SPECIAL), [4, 0], "{config}");
        assert_eq!(t.end_of_generation(), eos.as_slice(), "{config}");
    }
}

#[test]
fn a_token_of_the_model_keeps_its_id() {
    let mut json = byte_level();
    json["added_tokens"][1]["content"] = json!("b");
    let t = build(&json, None).unwrap();
    assert_eq!(t.encode("ab", PLAIN), [0, 1]);
}

/// Each edit of a good file, and a word that the refusal must contain.
type RefusalCase = (fn(&mut Value), &'static str);

fn assert_refused(cases: &[RefusalCase]) {
    for (edit, word) in cases {
        let mut json = byte_level();
        edit(&mut json);
        let error = build(&json, None).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn wrong_models_are_named() {
    assert_refused(&[
        (|j| j["model"]["type"] = json!("WordLevel"), "\"WordLevel\""),
        (
            |j| j["model"] = json!({"type": "WordPiece", "vocab": [["a", -1.0]]}),
            "\"WordPiece with a list of tokens\"",
        ),
        (
            |j| j["model"] = json!({"type": "Unigram", "vocab": {"a": 1}}),
            "\"Unigram with a map of tokens\"",
        ),
        (
            |j| j["model"] = json!({"type": "Unigram", "vocab": [["a"]]}),
            "a token with its score",
        ),
        (
            |j| j["model"]["type"] = json!("WordPiece"),
            "ByteLevel with a model of type WordPiece",
        ),
        (
            |j| j["model"] = json!({"vocab": [["a", -1.0]], "unk_id": 0}),
            "ByteLevel with a model of type Unigram",
        ),
        (
            |j| {
                j["pre_tokenizer"] = json!(null);
                j["model"] = json!({"type": "Unigram", "vocab": [["a".repeat(2000), -1.0]]});
            },
            "1024",
        ),
        (
            |j| j["model"]["merges"] = json!([["a", "z"]]),
            "merge 0 (\"a z\")",
        ),
        (|j| j["model"]["merges"] = json!(["ab"]), "merge 0 (\"ab\")"),
        (|j| j["model"]["merges"] = json!([["a"]]), "two tokens"),
        (
            |j| j["model"]["vocab"]["c"] = json!(3),
            "\"ab\" has the same id",
        ),
        (
            |j| j["model"]["vocab"]["c"] = json!(4_000_000_000u32),
            "4000000000",
        ),
        (|j| j["model"]["end_of_word_suffix"] = json!("</w>"), "</w>"),
        (|j| j["model"]["dropout"] = json!(0.5), "dropout"),
        (
            |j| j["added_tokens"][0]["id"] = json!(3),
            "\"ab\" has the same id",
        ),
    ]);
}

#[test]
fn wrong_parts_are_named() {
    assert_refused(&[
        (
            |j| j["normalizer"] = json!({"type": "BertNormalizer"}),
            "clean_text",
        ),
        (
            |j| j["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "!"}),
            "base 64",
        ),
        (
            |j| {
                j["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "CQAAAA=="})
            },
            "precompiled_charsmap: its array",
        ),
        (
            |j| j["pre_tokenizer"] = json!({"type": "UnicodeScripts"}),
            "UnicodeScripts",
        ),
        (|j| j["decoder"] = json!({"type": "CTC"}), "CTC"),
        (
            |j| {
                let parts = [j["pre_tokenizer"].clone(), json!({"type": "Digits"})];
                j["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": parts});
            },
            "Digits after ByteLevel",
        ),
        (
            |j| {
                let pattern = json!({"Regex": "("});
                j["pre_tokenizer"] =
                    json!({"type": "Split", "pattern": pattern, "behavior": "Isolated"});
            },
            "regular expression \"(\"",
        ),
    ]);
}

#[test]
fn broken_files_never_panic() {
    for whole in [byte_level(), unigram(), word_pieces()] {
        broken_file_never_panics(&whole.to_string());
    }
}

fn broken_file_never_panics(whole: &str) {
    for end in 0..whole.len() {
        if whole.is_char_boundary(end) {
            assert!(Tokenizer::from_hf(&whole.as_bytes()[..end], None).is_err());
        }
    }
    proptest!(ProptestConfig::with_cases(2000), |(at in 0..whole.len(), byte: u8, n in 0usize..20)| {
        let mut bytes = whole.as_bytes().to_vec();
        bytes[at] = byte;
        bytes.drain(at..(at + n).min(whole.len()));
        if let Ok(t) = Tokenizer::from_hf(&bytes, None) {
            let ids = t.encode("ab <x> é<s>", SPECIAL);
            t.decode(&ids, false);
        }
    });
}

/// A BPE over characters with byte tokens, as Llama 2's. `★` and `</s>` are special: one is added only,
/// the other is in the model too. `☆` is an added word.
fn over_characters() -> Value {
    let added = |id: u32, content: &str, special: bool| json!({"id": id, "content": content, "single_word": !special, "normalized": false, "special": special});
    let mut vocab = serde_json::Map::new();
    for byte in 0..=255u32 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(byte + 1));
    }
    let more = [
        "<unk>", "a", "b", "!", "</s>", "<", "/", "s", ">", "</", "</s", "▁",
    ];
    for (i, text) in more.iter().enumerate() {
        let id = if i == 0 { 0 } else { 256 + i };
        vocab.insert((*text).to_owned(), json!(id));
    }
    json!({
        "added_tokens": [added(268, "★", true), added(269, "☆", false), added(259, "!", true),
                         added(260, "</s>", true), added(66, "<0x41>", true)],
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "vocab": vocab,
                  "merges": ["< /", "</ s", "</s >"]}
    })
}

#[test]
fn control_tokens_do_not_come_out_of_plain_text() {
    for ignore_merges in [false, true] {
        let mut json = over_characters();
        json["model"]["ignore_merges"] = json!(ignore_merges);
        let t = build(&json, None).unwrap();
        for (text, plain, parsed) in [
            // Known only to the search for added tokens.
            ("a★", &[257, 227, 153, 134][..], &[257, 268][..]),
            ("★", &[227, 153, 134], &[268]),
            // A word within a word does not match, and the model does not know it.
            (
                "a☆b",
                &[257, 227, 153, 135, 258],
                &[257, 227, 153, 135, 258],
            ),
            // In the model as well: by its character, by its merges, by its byte.
            ("a!", &[257, 34], &[257, 259]),
            ("!", &[34], &[259]),
            ("</s>", &[266, 264], &[260]),
            ("A", &[0], &[0]),
            ("<0x41>", &[261, 49, 121, 53, 50, 264], &[66]),
        ] {
            assert_eq!(t.encode(text, PLAIN), plain, "{text} {ignore_merges}");
            let special = EncodeOptions {
                add_special: false,
                parse_special: true,
            };
            assert_eq!(t.encode(text, special), parsed, "{text} {ignore_merges}");
        }
    }
}

fn unigram() -> Value {
    json!({
        "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
        "normalizer": {"type": "StripAccents"},
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"},
        "decoder": {"type": "Metaspace", "prepend_scheme": "always"},
        // Old files do not name the model.
        "model": {"unk_id": 0, "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["b", -2.0]]}
    })
}

fn word_pieces() -> Value {
    json!({
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 4,
                  "vocab": {"[UNK]": 0, "a": 1, "##b": 2, ".": 3, "##": 4}}
    })
}

#[test]
fn unigram_and_word_pieces() {
    let t = build(&unigram(), None).unwrap();
    assert_eq!(t.encode("ab\u{301}x", EncodeOptions::default()), [1, 2, 0]);
    assert_eq!(t.decode(&[3, 1, 1], true), "a a");
    assert_eq!(t.unknown(), Some(0));
    let t = build(&word_pieces(), None).unwrap();
    let ids = t.encode("Áb. abbbb a", EncodeOptions::default());
    assert_eq!(ids, [1, 2, 3, 0, 1]);
    assert_eq!(t.decode(&ids, true), "ab. a");
    assert_eq!(t.decode(&[2, 1], true), "##b a");
    assert_eq!(t.decode(&[4, 1, 4], true), "## a");
}
