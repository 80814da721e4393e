//! Vocabularies for random models: the 256 bytes, or another file's.

use millrace_format::gguf::{GgufArray, GgufValue, Metadata};
use serde_json::{Map, json};

use crate::Error;

/// Token types of `tokenizer.ggml.token_type` (llama.cpp, `llama_token_type`).
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

const END: usize = 256;
/// Where control tokens besides the end begin: behind the merge.
pub(super) const FIRST_CONTROL: usize = END + 2;
/// One merge, since readers want a list of them: a space and a t.
const MERGE: [&str; 2] = ["\u{120}", "t"];

/// Number of tokens of a file's vocabulary.
pub(super) fn size(vocab: &Metadata) -> Result<usize, Error> {
    let key = "tokenizer.ggml.tokens";
    let tokens = vocab.get_str_array(key)?;
    Ok(vocab.required(key, tokens)?.len())
}

/// Copies a file's vocabulary.
pub(super) fn copy(vocab: &Metadata, out: &mut Metadata) {
    for (key, value) in vocab
        .iter()
        .filter(|(key, _)| key.starts_with("tokenizer."))
    {
        out.insert(key, value.clone());
    }
}

/// A byte-level vocabulary of `n` tokens, these control tokens among them.
pub(super) fn bytes(n: usize, control: &[&str], out: &mut Metadata) {
    let tokens = tokens(n, control);
    let end_control = FIRST_CONTROL + control.len();
    let kind = |id: usize| match id {
        END => CONTROL,
        _ if (FIRST_CONTROL..end_control).contains(&id) => CONTROL,
        _ if id < END || tokens[id] == MERGE.concat() => NORMAL,
        _ => UNUSED,
    };
    let types = (0..n).map(kind).collect();
    out.insert("tokenizer.ggml.model", GgufValue::Str("gpt2".into()));
    out.insert("tokenizer.ggml.pre", GgufValue::Str("gpt-2".into()));
    out.insert(
        "tokenizer.ggml.token_type",
        GgufValue::Array(GgufArray::I32(types)),
    );
    out.insert(
        "tokenizer.ggml.merges",
        GgufValue::Array(GgufArray::Str(vec![MERGE.join(" ")])),
    );
    let end = u32::try_from(END.min(n - 1)).unwrap_or(0);
    out.insert("tokenizer.ggml.bos_token_id", GgufValue::U32(end));
    out.insert("tokenizer.ggml.eos_token_id", GgufValue::U32(end));
    out.insert("tokenizer.ggml.add_bos_token", GgufValue::Bool(false));
    out.insert(
        "tokenizer.ggml.tokens",
        GgufValue::Array(GgufArray::Str(tokens)),
    );
}

/// The same as a `tokenizer.json`.
pub(super) fn tokenizer_json(n: usize, control: &[&str]) -> serde_json::Value {
    let tokens = tokens(n, control);
    let ids = std::iter::once(END).chain(FIRST_CONTROL..FIRST_CONTROL + control.len());
    let added = ids.filter_map(|id| {
        let text = tokens.get(id)?;
        Some(json!({
            "id": id, "content": text, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        }))
    });
    let added: Vec<serde_json::Value> = added.collect();
    let vocab: Map<String, serde_json::Value> = tokens
        .into_iter()
        .enumerate()
        .map(|(id, text)| (text, json!(id)))
        .collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": [MERGE],
        },
    })
}

/// The bytes' characters, an end token, the merge, control tokens, padding.
fn tokens(n: usize, control: &[&str]) -> Vec<String> {
    let named = [String::from("<|end|>"), MERGE.concat()];
    let padding = (0..).map(|i| format!("<|unused{i}|>"));
    byte_symbols()
        .map(String::from)
        .chain(named)
        .chain(control.iter().map(|text| String::from(*text)))
        .chain(padding)
        .take(n)
        .collect()
}

/// GPT-2's printable characters for the 256 bytes, in the order of the bytes. A printable byte of
/// Latin-1 has its own character, the others have the characters from U+0100 on.
fn byte_symbols() -> impl Iterator<Item = char> {
    let mut spare = 0x100..;
    (0..=255u8).map(move |byte| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => spare.next().and_then(char::from_u32).unwrap_or('?'),
    })
}
