//! From a GGUF file's WordPiece to `tokenizer.json`, as published folders of BERT have it.

use millrace_format::gguf::Metadata;
use serde_json::{Map, Value, json};

use super::to_hf::{VocabEntries, token_id};
use super::{SPACE_MARK, kind, pieces::GOES_ON};
use crate::convert::Error;

/// `Err` names, in words, the part that the file lacks.
pub(super) fn build(
    metadata: &Metadata,
    vocab: &VocabEntries<'_>,
    unknown: Option<usize>,
) -> Result<Result<Value, String>, Error> {
    let n_tokens = vocab.tokens.len();
    let named = |text: &str| vocab.tokens.iter().position(|token| token == text);
    let first = token_id(metadata, "tokenizer.ggml.cls_token_id", n_tokens)?;
    let last = token_id(metadata, "tokenizer.ggml.seperator_token_id", n_tokens)?;
    let first = first.or(vocab.bos).or_else(|| named("[CLS]"));
    let last = last.or(vocab.eos).or_else(|| named("[SEP]"));
    let unknown = unknown.or_else(|| named("[UNK]"));
    let (Some(first), Some(last), Some(unknown)) = (first, last, unknown) else {
        let reason = "a WordPiece without tokens around texts and for unknown ones is not";
        return Ok(Err(reason.to_owned()));
    };
    let lowercase = metadata.get_bool("tokenizer.ggml.normalizer.lowercase")?;
    let strips = metadata.get_bool("tokenizer.ggml.normalizer.strip_accents")?;
    Ok(Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocab.added(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": strips, "lowercase": lowercase.unwrap_or(true),
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": around(&vocab.tokens[first], first, &vocab.tokens[last], last),
        "decoder": { "type": "WordPiece", "prefix": GOES_ON, "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": vocab.tokens[unknown], "continuing_subword_prefix": GOES_ON,
            "max_input_chars_per_word": 100, "vocab": entries(vocab),
        },
    })))
}

/// One token before a text, one behind each of two.
fn around(first: &str, first_id: usize, last: &str, last_id: usize) -> Value {
    let special =
        |text: &str, type_id: u32| json!({ "SpecialToken": { "id": text, "type_id": type_id } });
    let text = |name: &str, type_id: u32| json!({ "Sequence": { "id": name, "type_id": type_id } });
    let single = vec![special(first, 0), text("A", 0), special(last, 0)];
    let mut pair = single.clone();
    pair.extend([text("B", 1), special(last, 1)]);
    let mut tokens = Map::new();
    for (token, id) in [(first, first_id), (last, last_id)] {
        let entry = json!({ "id": token, "ids": [id], "tokens": [token] });
        tokens.insert(token.to_owned(), entry);
    }
    json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens })
}

/// Tokens as a WordPiece spells them: those that begin a word without the mark, those that go on behind `##`.
fn entries(vocab: &VocabEntries<'_>) -> Map<String, Value> {
    let mut entries = Map::new();
    for (id, (text, token_kind)) in vocab.tokens.iter().zip(&vocab.kinds).enumerate() {
        let spelled = match (text.strip_prefix(SPACE_MARK), *token_kind) {
            (Some(word), kind::NORMAL) => word.to_owned(),
            (None, kind::NORMAL) => format!("{GOES_ON}{text}"),
            _ => text.clone(),
        };
        entries.entry(spelled).or_insert_with(|| json!(id));
    }
    entries
}
