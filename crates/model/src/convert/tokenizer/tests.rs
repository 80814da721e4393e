use std::path::Path;

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use millrace_format::hf;
use serde_json::{Value, json};

use super::*;
use crate::convert::Error;

fn to_gguf(json: &Value, files: &hf::Files, n_vocab: usize) -> Result<Metadata, Error> {
    let bytes = serde_json::to_vec(json).unwrap();
    let source = from_hf::TokenizerFolder {
        file: "test",
        json: &bytes,
        files,
    };
    let mut metadata = Metadata::new();
    for (key, value) in source.to_gguf(n_vocab)?.0 {
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn strings(metadata: &Metadata, key: &str) -> Vec<String> {
    metadata.get_str_array(key).unwrap().unwrap().to_vec()
}

fn special(id: usize, content: &str, special: bool) -> Value {
    json!({ "id": id, "content": content, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": special })
}

/// A byte-level tokenizer of five tokens and one added one, as Qwen's is built.
fn byte_level() -> Value {
    let (normalizer, pre_tokenizer, ignore_merges) = pre::spelled_out("qwen2").unwrap();
    json!({
        "added_tokens": [special(5, "<|end|>", true)],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "ignore_merges": ignore_merges,
            "vocab": { "a": 0, "b": 1, "\u{120}": 2, "ab": 3, "\u{120}ab": 4 },
            "merges": ["a b", ["\u{120}", "ab"]] },
    })
}

/// A SentencePiece tokenizer with a begin token, as Llama 2's is built.
fn sentence_piece() -> Value {
    let vocab = json!({ "<unk>": 0, "<s>": 1, "<0x0A>": 2, "\u{2581}": 3, "a": 4, "b": 5,
        "ab": 6, "\u{2581}a": 7, "\u{2581}ab": 8, "\u{2581}\u{2581}": 9 });
    let mark = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" });
    let prepend = json!({ "type": "Prepend", "prepend": "\u{2581}" });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let begin = json!({ "SpecialToken": { "id": "<s>", "type_id": 0 } });
    json!({
        "added_tokens": [special(0, "<unk>", true), special(1, "<s>", true),
            special(9, "\u{2581}\u{2581}", false)],
        "normalizer": { "type": "Sequence", "normalizers": [prepend, mark] },
        "pre_tokenizer": null,
        "post_processor": { "type": "TemplateProcessing", "single": [begin, text] },
        "model": { "type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": vocab,
            "merges": ["\u{2581} a", "a b", "\u{2581} ab", "\u{2581}a b"] },
    })
}

#[test]
fn byte_level_tokenizers_keep_tokens_merges_and_kinds() {
    let config = json!({ "eos_token": { "content": "<|end|>" }, "add_bos_token": false });
    let files = hf::Files {
        tokenizer_config: Some(config),
        ..hf::Files::default()
    };
    let metadata = to_gguf(&byte_level(), &files, 8).unwrap();
    assert_eq!(
        metadata.get_str("tokenizer.ggml.model").unwrap(),
        Some("gpt2")
    );
    assert_eq!(
        metadata.get_str("tokenizer.ggml.pre").unwrap(),
        Some("qwen2")
    );
    let tokens = strings(&metadata, "tokenizer.ggml.tokens");
    assert_eq!(
        tokens,
        ["a", "b", "Ġ", "ab", "Ġab", "<|end|>", "[PAD6]", "[PAD7]"]
    );
    let kinds = metadata
        .get_i32_array("tokenizer.ggml.token_type")
        .unwrap()
        .unwrap();
    assert_eq!(kinds, [1, 1, 1, 1, 1, 3, 5, 5]);
    assert_eq!(strings(&metadata, "tokenizer.ggml.merges"), ["a b", "Ġ ab"]);
    assert_eq!(
        metadata.get_u32("tokenizer.ggml.eos_token_id").unwrap(),
        Some(5)
    );
    assert_eq!(metadata.get("tokenizer.ggml.bos_token_id"), None);
    assert_eq!(
        metadata.get_bool("tokenizer.ggml.add_bos_token").unwrap(),
        Some(false)
    );
}

#[test]
fn sentence_piece_scores_repeat_the_order_of_merges() {
    let config = json!({ "bos_token": "<s>", "unk_token": "<unk>" });
    let files = hf::Files {
        tokenizer_config: Some(config),
        ..hf::Files::default()
    };
    let metadata = to_gguf(&sentence_piece(), &files, 10).unwrap();
    assert_eq!(
        metadata.get_str("tokenizer.ggml.model").unwrap(),
        Some("llama")
    );
    let kinds = metadata
        .get_i32_array("tokenizer.ggml.token_type")
        .unwrap()
        .unwrap();
    assert_eq!(kinds, [2, 3, 6, 1, 1, 1, 1, 1, 1, 4]);
    // Words that are looked for before spaces are marked have plain spaces.
    assert_eq!(strings(&metadata, "tokenizer.ggml.tokens")[9], "  ");
    let scores = metadata
        .get_f32_array("tokenizer.ggml.scores")
        .unwrap()
        .unwrap();
    assert!(scores[7] > scores[6] && scores[6] > scores[8], "{scores:?}");
    assert_eq!(
        metadata
            .get_bool("tokenizer.ggml.add_space_prefix")
            .unwrap(),
        Some(true)
    );
    assert_eq!(
        metadata.get_bool("tokenizer.ggml.add_bos_token").unwrap(),
        Some(true)
    );
    let parts = to_hf::build(&metadata, "test").unwrap();
    let json = parts.tokenizer.unwrap();
    let merges = |pairs: &[[&str; 2]]| json!(pairs);
    let expected = [
        ["\u{2581}", "a"],
        ["a", "b"],
        ["\u{2581}", "ab"],
        ["\u{2581}a", "b"],
    ];
    assert_eq!(json["model"]["merges"], merges(&expected));
    assert_eq!(
        json["post_processor"]["single"][0]["SpecialToken"]["id"],
        "<s>"
    );
}

#[test]
fn special_tokens_are_found_by_number_too() {
    let files = hf::Files {
        config: Some(json!({ "eos_token_id": [5, 4], "bos_token_id": 99 })),
        ..hf::Files::default()
    };
    let metadata = to_gguf(&byte_level(), &files, 6).unwrap();
    assert_eq!(
        metadata.get_u32("tokenizer.ggml.eos_token_id").unwrap(),
        Some(5)
    );
    assert_eq!(
        metadata.get("tokenizer.ggml.bos_token_id"),
        None,
        "the model has six tokens"
    );
}

#[test]
fn added_tokens_without_an_embedding_are_left_out() {
    let metadata = to_gguf(&byte_level(), &hf::Files::default(), 5).unwrap();
    assert_eq!(strings(&metadata, "tokenizer.ggml.tokens").len(), 5);
}

#[test]
fn what_gguf_cannot_hold_is_an_error() {
    let with = |pointer: &str, value: Value| {
        let mut json = byte_level();
        *json.pointer_mut(pointer).unwrap() = value;
        json
    };
    let cases = [
        (with("/model/type", json!("Unigram")), "Unigram"),
        (with("/model/type", json!("WordPiece")), "WordPiece"),
        (with("/model/type", json!("WordLevel")), "WordLevel"),
        (with("/model/vocab", json!([["a", 0.0]])), "no vocabulary"),
        (with("/model/vocab", json!(["a"])), "a token with its score"),
        (with("/model/vocab", json!({ "a": 77 })), "77"),
        (with("/model/vocab", json!({ "a": -1 })), "-1"),
        (with("/model/merges", json!(["ab"])), "not a merge"),
        (with("/model/merges", json!([["a"]])), "not a merge"),
        (
            with("/pre_tokenizer", json!({ "type": "Whitespace" })),
            "Whitespace",
        ),
        (json!([]), "kind unknown"),
    ];
    for (json, part) in cases {
        let error = to_gguf(&json, &hf::Files::default(), 6)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part) && error.contains("test"), "{error}");
    }
    let source = from_hf::TokenizerFolder {
        file: "test",
        json: b"{",
        files: &hf::Files::default(),
    };
    assert!(
        source
            .to_gguf(1)
            .unwrap_err()
            .to_string()
            .contains("not valid JSON")
    );
}

#[test]
fn metadata_that_contradict_each_other_are_refused_or_noted() {
    let mut metadata = Metadata::new();
    assert!(to_hf::build(&metadata, "test").unwrap().notes[0].contains("no tokenizer"));
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert(
        "tokenizer.ggml.tokens",
        vec!["a".to_owned(), "b".to_owned()],
    );
    metadata.insert("tokenizer.ggml.pre", "gpt-99");
    let parts = to_hf::build(&metadata, "test").unwrap();
    assert!(
        parts.tokenizer.is_none() && parts.notes[0].contains("gpt-99"),
        "{:?}",
        parts.notes
    );
    metadata.insert(
        "tokenizer.ggml.token_type",
        GgufValue::Array(GgufArray::I32(vec![1])),
    );
    assert!(to_hf::build(&metadata, "test").is_err());
    metadata.insert(
        "tokenizer.ggml.token_type",
        GgufValue::Array(GgufArray::I32(vec![1, 1])),
    );
    metadata.insert("tokenizer.ggml.model", "llama");
    assert!(to_hf::build(&metadata, "test").is_err(), "no scores");
}

/// XLM-R's: cut words, spaces that count once, two tokens between texts; and one that keeps spaces.
#[test]
fn a_unigram_comes_back() {
    let vocab = json!([
        ["<s>", 0.0],
        ["<pad>", 0.0],
        ["</s>", 0.0],
        ["<unk>", 0.0],
        ["\u{2581}a", -1.5],
        ["b", -2.25]
    ]);
    let mark = json!({ "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true });
    let names = ["<s>", "<pad>", "</s>", "<unk>"].into_iter().enumerate();
    let of = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    let ids = |name: &str, id: usize| json!({ "id": name, "ids": [id], "tokens": [name] });
    let folder = |normalizer: &Value, pre_tokenizer: &Value| {
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": names.clone().map(|(id, name)| special(id, name, true)).collect::<Vec<_>>(),
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": {
                "type": "TemplateProcessing", "single": [of("<s>"), text("A"), of("</s>")],
                "pair": [of("<s>"), text("A"), of("</s>"), of("</s>"), text("B"), of("</s>")],
                "special_tokens": { "<s>": ids("<s>", 0), "</s>": ids("</s>", 2) },
            },
            "decoder": mark,
            "model": { "type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": false },
        })
    };
    let words =
        json!({ "type": "Sequence", "pretokenizers": [{ "type": "WhitespaceSplit" }, mark] });
    for (normalizer, pre_tokenizer) in [(json!(null), mark.clone()), (json!(null), words)] {
        let json = folder(&normalizer, &pre_tokenizer);
        let config = json!({ "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>" });
        let files = hf::Files {
            tokenizer_config: Some(config),
            ..hf::Files::default()
        };
        // Two numbers more than tokens, as padded tables have.
        let metadata = to_gguf(&json, &files, 8).unwrap();
        let parts = to_hf::build(&metadata, "test").unwrap();
        assert_eq!(parts.notes, Vec::<String>::new());
        let mut back = parts.tokenizer.unwrap();
        let list = back["model"]["vocab"].as_array_mut().unwrap();
        let padding = list.split_off(6);
        assert!(padding.iter().all(|token| token[1] == -2.25), "{padding:?}");
        assert_eq!(back, json);
    }
}

#[test]
fn a_unigram_without_a_mark_is_left_out() {
    let mut metadata = Metadata::new();
    metadata.insert("tokenizer.ggml.model", "t5");
    let tokens = GgufArray::Str(vec!["a".into(), "b".into()]);
    metadata.insert("tokenizer.ggml.tokens", GgufValue::Array(tokens));
    let scores = GgufArray::F32(vec![0.0, -1.0]);
    metadata.insert("tokenizer.ggml.scores", GgufValue::Array(scores));
    let parts = to_hf::build(&metadata, "test").unwrap();
    assert!(
        parts.tokenizer.is_none() && parts.notes[0].contains("without a mark"),
        "{:?}",
        parts.notes
    );
}

/// Published vocabularies: the contents of `tokenizer.json` must come back as they were.
#[test]
fn published_vocabularies_survive_the_way_there_and_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vocab");
    for name in ["llama-bpe", "qwen2", "gpt-2", "llama-spm"] {
        let path = folder.join(format!("ggml-vocab-{name}.gguf"));
        if !path.exists() {
            eprintln!("skipped: {} is absent", path.display());
            return;
        }
        let checkpoint = millrace_format::Checkpoint::open(&path).unwrap();
        let before = checkpoint.gguf().unwrap();
        let parts = to_hf::build(before, name).unwrap();
        assert_eq!(parts.notes, Vec::<String>::new());
        let json = parts.tokenizer.unwrap();
        let config = Some(Value::Object(parts.tokenizer_config));
        let files = hf::Files {
            tokenizer_config: config,
            ..hf::Files::default()
        };
        let n_vocab = strings(before, "tokenizer.ggml.tokens").len();
        let after = to_gguf(&json, &files, n_vocab).unwrap();
        for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"] {
            let list =
                |metadata: &Metadata| metadata.get_str_array(key).unwrap().map(<[_]>::to_vec);
            assert!(list(before) == list(&after), "{name} {key}");
        }
        let kinds = |metadata: &Metadata| {
            metadata
                .get_i32_array("tokenizer.ggml.token_type")
                .unwrap()
                .unwrap()
        };
        assert!(kinds(before) == kinds(&after), "{name}: kinds");
        let id = |metadata: &Metadata| metadata.get_u32("tokenizer.ggml.bos_token_id").unwrap();
        assert_eq!(id(before), id(&after), "{name}");
    }
}
