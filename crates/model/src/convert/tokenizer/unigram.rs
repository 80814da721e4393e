//! From a GGUF file's Unigram to `tokenizer.json`, as published folders of XLM-R have it.

use millrace_format::gguf::Metadata;
use millrace_text::charsmap_text;
use serde_json::{Map, Value, json};

use super::to_hf::VocabEntries;
use super::{SPACE_MARK, kind};
use crate::convert::Error;

/// `Err` names, in words, the part of the file that readers of folders do not support.
pub(super) fn build(
    metadata: &Metadata,
    vocab: &VocabEntries<'_>,
    unknown: Option<usize>,
) -> Result<Result<Value, String>, Error> {
    let scores = vocab.scores(metadata)?;
    let flag = |key: &str| metadata.get_bool(&format!("tokenizer.ggml.{key}"));
    if flag("add_space_prefix")? != Some(true) {
        let reason = "a Unigram without a mark before the first word is not";
        return Ok(Err(reason.to_owned()));
    }
    let charsmap = metadata.get_byte_array("tokenizer.ggml.precompiled_charsmap")?;
    let normalizer = match charsmap.filter(|bytes| !bytes.is_empty()) {
        Some(bytes) => {
            json!({ "type": "Precompiled", "precompiled_charsmap": charsmap_text(&bytes) })
        }
        None => Value::Null,
    };
    let mark = json!({ "type": "Metaspace", "replacement": SPACE_MARK.to_string(), "prepend_scheme": "always",
        "split": true });
    let pre_tokenizer = match flag("remove_extra_whitespaces")?.unwrap_or(false) {
        true => {
            json!({ "type": "Sequence", "pretokenizers": [{ "type": "WhitespaceSplit" }, mark] })
        }
        false => mark.clone(),
    };
    Ok(Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocab.added(),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": around(vocab),
        "decoder": mark,
        "model": {
            "type": "Unigram", "unk_id": unknown, "vocab": entries(vocab, &scores),
            "byte_fallback": vocab.kinds.contains(&kind::BYTE),
        },
    })))
}

/// Tokens with their scores, by number. Unused ones get the least score of the used ones: unknown text scores less than
/// the least of all.
fn entries(vocab: &VocabEntries<'_>, scores: &[f32]) -> Vec<Value> {
    let all = || scores.iter().zip(&vocab.kinds);
    let used = all().filter(|(_, token_kind)| **token_kind == kind::NORMAL);
    let least = used.map(|(score, _)| *score).fold(f32::INFINITY, f32::min);
    let entry = |(text, (score, token_kind)): (&String, (&f32, &i32))| match *token_kind {
        kind::UNUSED if least.is_finite() => json!([text, least]),
        _ => json!([text, score]),
    };
    vocab.tokens.iter().zip(all()).map(entry).collect()
}

/// Tokens around a text, and around each of two.
fn around(vocab: &VocabEntries<'_>) -> Value {
    let bos = vocab.bos.filter(|_| vocab.add_bos);
    let eos = vocab.eos.filter(|_| vocab.add_eos);
    let special = |id: usize| json!({ "SpecialToken": { "id": vocab.tokens[id], "type_id": 0 } });
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    let sequence = |first: Option<usize>, name: &str| -> Vec<Value> {
        let first = first.map(special);
        [first, Some(text(name)), eos.map(special)]
            .into_iter()
            .flatten()
            .collect()
    };
    let mut tokens = Map::new();
    for id in [bos, eos].into_iter().flatten() {
        let text = &vocab.tokens[id];
        tokens.insert(
            text.clone(),
            json!({ "id": text, "ids": [id], "tokens": [text] }),
        );
    }
    if tokens.is_empty() {
        return Value::Null;
    }
    // RoBERTa's way: where one token begins a text, two end tokens separate texts.
    let between = eos.filter(|_| bos.is_some());
    let pair = [sequence(bos, "A"), sequence(between, "B")].concat();
    json!({ "type": "TemplateProcessing", "single": sequence(bos, "A"), "pair": pair, "special_tokens": tokens })
}
