//! Tiny tokenizers of every kind against Hugging Face `tokenizers` and SentencePiece.
//!
//! `tools/make_tokenizer_fixtures.py` trains them and writes the results of the references for each text.

use base64::Engine as _;
use millrace_text::{AddedToken, DecodeOptions, Detokenizer, EncodeOptions, GgufVocab, Tokenizer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// One text. Absent fields equal `ids` or `text`.
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
    #[serde(default)]
    remove_extra_whitespaces: bool,
    /// In base 64.
    #[serde(default)]
    precompiled_charsmap: String,
}

pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&bytes(name)).expect("the fixture fits")
}

fn bytes(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
    std::fs::read(folder.join(name)).expect("the fixture is there")
}

/// Decodes token by token, and checks that the parts put together equal the text decoded at once.
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

pub(crate) const PLAIN: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
pub(crate) const PARSED: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: true,
};
pub(crate) const ADDED: EncodeOptions = EncodeOptions {
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
fn word_piece() {
    for name in ["bert_uncased", "bert_cased"] {
        check_hugging_face(name);
    }
}

#[test]
fn unigram() {
    for name in ["t5", "xlm_roberta", "albert"] {
        check_hugging_face(name);
    }
}

/// Checks the pieces of a SentencePiece model for each text.
fn check_sentencepiece(model: &'static str, name: &str) {
    let pieces: Pieces = read(&format!("{name}.json"));
    let charsmap = base64::engine::general_purpose::STANDARD.decode(pieces.precompiled_charsmap);
    let vocab = GgufVocab {
        model,
        tokens: pieces.tokens.iter().map(String::as_str).collect(),
        scores: pieces.scores,
        token_types: pieces.token_types,
        unk: Some(0),
        add_space_prefix: Some(pieces.add_space_prefix),
        remove_extra_whitespaces: Some(pieces.remove_extra_whitespaces),
        precompiled_charsmap: charsmap.expect("the fixture is base 64"),
        ..GgufVocab::default()
    };
    let tokenizer = Arc::new(Tokenizer::from_gguf(vocab).expect("it is supported"));
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

#[test]
fn sentencepiece() {
    for name in ["spm_llama", "spm_gemma"] {
        check_sentencepiece("llama", name);
    }
    for name in ["spm_t5", "spm_unigram"] {
        check_sentencepiece("t5", name);
    }
}

/// The parts of a `tokenizer.json` that GGUF files keep.
#[derive(Deserialize)]
struct TokenizerFile {
    model: ModelFields,
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct ModelFields {
    vocab: HashMap<String, usize>,
    #[serde(default)]
    merges: Vec<(String, String)>,
}

impl TokenizerFile {
    /// The texts by id, with their kinds in GGUF.
    fn gguf_tokens(&self) -> (Vec<String>, Vec<i32>) {
        let entries = self.model.vocab.iter();
        let entries = entries.map(|(text, id)| (text, *id, 1));
        let added = self.added_tokens.iter().map(|token| {
            let kind = if token.special { 3 } else { 4 };
            (&token.content, token.id as usize, kind)
        });
        let n = self.model.vocab.len() + self.added_tokens.len();
        let mut out = vec![(String::new(), 5); n];
        for (text, id, kind) in entries.chain(added) {
            out[id] = (text.clone(), kind);
        }
        while out.pop_if(|(text, _)| text.is_empty()).is_some() {}
        out.into_iter().unzip()
    }
}

/// The same vocabularies in the form of GGUF files give the same tokens and texts.
#[test]
fn word_piece_from_gguf() {
    for (name, lowercase) in [("bert_uncased", true), ("bert_cased", false)] {
        let file: TokenizerFile = read(&format!("{name}.json"));
        let (mut texts, kinds) = file.gguf_tokens();
        for (text, kind) in texts.iter_mut().zip(&kinds) {
            *text = match (kind, text.strip_prefix("##")) {
                (1, Some(rest)) => rest.to_owned(),
                (1, None) => format!("▁{text}"),
                _ => text.clone(),
            };
        }
        let tokenizer = Tokenizer::from_gguf(GgufVocab {
            model: "bert",
            tokens: texts.iter().map(String::as_str).collect(),
            token_types: kinds,
            unk: Some(1),
            cls: Some(2),
            sep: Some(3),
            lowercase: Some(lowercase),
            ..GgufVocab::default()
        });
        let tokenizer = tokenizer.unwrap();
        let (mut n_same, mut n_decoded) = (0, 0);
        for case in read::<Vec<Case>>(&format!("{name}.cases.json")) {
            // GGUF files cannot express that Chinese characters are left alone.
            let is_chinese = |c: char| ('\u{4E00}'..='\u{9FFF}').contains(&c);
            if name == "bert_cased" && case.text.contains(is_chinese) {
                continue;
            }
            let want = case.special.as_ref().unwrap_or(&case.ids);
            assert_eq!(
                &tokenizer.encode(&case.text, ADDED),
                want,
                "{name}: {:?}",
                case.text
            );
            n_same += 1;
            // GGUF files cannot express whether the decoder cleans up; they always do.
            if name == "bert_uncased" {
                let want = case.skipped.as_ref().unwrap_or(&case.text);
                assert_eq!(
                    &tokenizer.decode(want_ids(&case), true),
                    want,
                    "{:?}",
                    case.text
                );
                n_decoded += 1;
            }
        }
        assert!(n_same > 100 && (name == "bert_cased" || n_decoded > 100));
    }
}

fn want_ids(case: &Case) -> &[u32] {
    case.special.as_ref().unwrap_or(&case.ids)
}

/// Gemma's rules, in the form of `gemma4`.
#[test]
fn merges_over_characters_from_gguf() {
    let file: TokenizerFile = read("gemma.json");
    let (texts, mut kinds) = file.gguf_tokens();
    kinds[3..259].fill(6);
    let merges = file.model.merges.iter();
    let merges: Vec<String> = merges.map(|(a, b)| format!("{a} {b}")).collect();
    let tokenizer = Tokenizer::from_gguf(GgufVocab {
        model: "gemma4",
        tokens: texts.iter().map(String::as_str).collect(),
        token_types: kinds,
        merges: Some(merges.iter().map(String::as_str).collect()),
        bos: Some(1),
        // The first files had this value, wrongly.
        add_bos: Some(false),
        ..GgufVocab::default()
    });
    let tokenizer = tokenizer.unwrap();
    let crosses_lines = |id: &u32| {
        let text = &texts[*id as usize];
        text.contains('\n') && text.contains(|c| c != '\n')
    };
    for case in read::<Vec<Case>>("gemma.cases.json") {
        let text = &case.text;
        // `gemma4` cuts at line ends; the vocabulary here was trained without.
        if case.ids.iter().any(crosses_lines) {
            continue;
        }
        assert_eq!(tokenizer.encode(text, ADDED), want_ids(&case), "{text:?}");
        // User-defined tokens print the text in the file.
        if !text.contains('▁') {
            let want = case.skipped.as_ref().unwrap_or(text);
            assert_eq!(&tokenizer.decode(want_ids(&case), true), want, "{text:?}");
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
