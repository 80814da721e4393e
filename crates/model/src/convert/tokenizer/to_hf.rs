//! From `tokenizer.ggml.*` to `tokenizer.json` and `tokenizer_config.json`.

use std::collections::{HashMap, HashSet};

use millrace_format::gguf::Metadata;
use millrace_text::GgufVocab;
use serde_json::{Map, Value, json};

use super::pieces::{UNIGRAM, WORD_PIECE};
use super::{BYTE_LEVEL, SENTENCE_PIECE, SPACE_MARK, kind, pre, unigram, word_piece};
use crate::convert::Error;

/// A folder's files about its tokenizer.
#[derive(Debug, Default)]
pub(in crate::convert) struct TokenizerParts {
    /// `tokenizer.json`; `None` if it cannot be rebuilt, which a note then explains.
    pub(in crate::convert) tokenizer: Option<Value>,
    /// `tokenizer_config.json`.
    pub(in crate::convert) tokenizer_config: Map<String, Value>,
    /// `bos_token_id` and the like, for the configurations.
    pub(in crate::convert) token_ids: Map<String, Value>,
    /// The chat template's text.
    pub(in crate::convert) chat_template: Option<String>,
    /// Missing parts, for the user.
    pub(in crate::convert) notes: Vec<String>,
}

/// A vocabulary from GGUF metadata.
pub(super) struct VocabEntries<'a> {
    /// For messages.
    file: &'a str,
    pub(super) tokens: &'a [String],
    pub(super) kinds: Vec<i32>,
    pub(super) bos: Option<usize>,
    pub(super) eos: Option<usize>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
}

/// Rebuilds the files from GGUF metadata. `file` is for messages.
///
/// # Errors
/// [`Error::Format`] for keys of a wrong type, [`Error::Tokenizer`] for lists of different lengths.
pub(in crate::convert) fn build(metadata: &Metadata, file: &str) -> Result<TokenizerParts, Error> {
    let mut parts = TokenizerParts {
        chat_template: metadata
            .get_str("tokenizer.chat_template")?
            .map(str::to_owned),
        ..TokenizerParts::default()
    };
    let model = metadata.get_str("tokenizer.ggml.model")?;
    let tokens = metadata
        .get_str_array("tokenizer.ggml.tokens")?
        .unwrap_or_default();
    if tokens.is_empty() {
        parts
            .notes
            .push("the source has no tokenizer, and neither has the result".to_owned());
        return Ok(parts);
    }
    let kinds = kinds(metadata, tokens.len(), file)?;
    let flag = |key: &str| metadata.get_bool(key);
    let id = |key: &str| token_id(metadata, key, tokens.len());
    let pre = metadata.get_str("tokenizer.ggml.pre")?;
    // Numbers of SentencePiece models where a file names none: of BPE, of Unigram.
    let usual = |bpe: Option<usize>, unigram: Option<usize>| {
        let usual = match model {
            Some(SENTENCE_PIECE) => bpe,
            Some(UNIGRAM) => unigram,
            _ => None,
        };
        usual.filter(|&id| id < tokens.len())
    };
    let vocab = VocabEntries {
        file,
        tokens,
        kinds,
        bos: id("tokenizer.ggml.bos_token_id")?.or(usual(Some(1), None)),
        eos: id("tokenizer.ggml.eos_token_id")?.or(usual(Some(2), Some(1))),
        add_bos: flag("tokenizer.ggml.add_bos_token")?
            .unwrap_or_else(|| GgufVocab::begins_by_default(model.unwrap_or_default(), pre)),
        add_eos: flag("tokenizer.ggml.add_eos_token")?.unwrap_or(model == Some(UNIGRAM)),
    };
    let ends = vocab.ends(metadata)?;
    let unknown = id("tokenizer.ggml.unknown_token_id")?.or(usual(Some(0), Some(2)));
    let padding = id("tokenizer.ggml.padding_token_id")?;
    parts.describe(&vocab, unknown, padding);
    parts.name_encoders_tokens(metadata, &vocab)?;
    if ends.len() > 1 {
        parts.token_ids.insert("eos_token_id".into(), json!(ends));
    }
    match of_kind(model, metadata, &vocab, unknown)? {
        Ok(tokenizer) => parts.tokenizer = Some(tokenizer),
        Err(reason) => parts.notes.push(format!(
            "tokenizer.json was not written: {reason} convertible; copy the file from the \
             model's original folder"
        )),
    }
    Ok(parts)
}

/// `tokenizer.json` of a kind of vocabulary, or the reason why there is none.
fn of_kind(
    model: Option<&str>,
    metadata: &Metadata,
    vocab: &VocabEntries<'_>,
    unknown: Option<usize>,
) -> Result<Result<Value, String>, Error> {
    match model {
        Some(BYTE_LEVEL) => byte_level(metadata, vocab),
        Some(WORD_PIECE) => word_piece::build(metadata, vocab, unknown),
        Some(UNIGRAM) => unigram::build(metadata, vocab, unknown),
        Some(SENTENCE_PIECE) => Ok(Ok(sentence_piece(metadata, vocab, unknown)?)),
        other => Ok(Err(format!(
            "tokenizers of kind `{}` are not",
            other.unwrap_or("none")
        ))),
    }
}

/// The kind of each token.
fn kinds(metadata: &Metadata, n_tokens: usize, file: &str) -> Result<Vec<i32>, Error> {
    let kinds = metadata.get_i32_array("tokenizer.ggml.token_type")?;
    let kinds = kinds.unwrap_or_else(|| vec![kind::NORMAL; n_tokens]);
    if kinds.len() == n_tokens {
        return Ok(kinds);
    }
    Err(Error::Tokenizer {
        file: file.to_owned(),
        reason: format!("{n_tokens} tokens have {} types", kinds.len()),
    })
}

/// The token that a key names, if its number exists.
pub(super) fn token_id(
    metadata: &Metadata,
    key: &str,
    n_tokens: usize,
) -> Result<Option<usize>, Error> {
    Ok(metadata.get_usize(key)?.filter(|&id| id < n_tokens))
}

impl VocabEntries<'_> {
    /// The tokens that end a text, each once.
    fn ends(&self, metadata: &Metadata) -> Result<Vec<usize>, Error> {
        let n_tokens = self.tokens.len();
        let mut ends: Vec<usize> = self.eos.into_iter().collect();
        ends.extend(token_id(metadata, "tokenizer.ggml.eot_token_id", n_tokens)?);
        ends.extend(token_id(metadata, "tokenizer.ggml.eom_token_id", n_tokens)?);
        let listed = metadata.get_u32_array("tokenizer.ggml.eog_token_ids")?;
        let listed = listed.unwrap_or_default().into_iter();
        ends.extend(listed.map(|id| id as usize).filter(|id| *id < n_tokens));
        let mut seen = HashSet::new();
        ends.retain(|id| seen.insert(*id));
        Ok(ends)
    }
}

impl TokenizerParts {
    /// Special tokens of encoders. The separator is put between the texts of a pair.
    fn name_encoders_tokens(
        &mut self,
        metadata: &Metadata,
        vocab: &VocabEntries<'_>,
    ) -> Result<(), Error> {
        for (name, key) in [
            ("cls_token", "tokenizer.ggml.cls_token_id"),
            ("sep_token", "tokenizer.ggml.seperator_token_id"),
            ("mask_token", "tokenizer.ggml.mask_token_id"),
        ] {
            if let Some(id) = token_id(metadata, key, vocab.tokens.len())? {
                let text = json!(vocab.tokens[id]);
                self.tokenizer_config.insert(name.into(), text);
            }
        }
        Ok(())
    }

    fn describe(
        &mut self,
        vocab: &VocabEntries<'_>,
        unknown: Option<usize>,
        padding: Option<usize>,
    ) {
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
        let named = [
            ("bos", vocab.bos),
            ("eos", vocab.eos),
            ("unk", unknown),
            ("pad", padding),
        ];
        for (name, id) in named {
            let Some(id) = id else { continue };
            config.insert(format!("{name}_token"), json!(vocab.tokens[id]));
            if name != "unk" {
                self.token_ids.insert(format!("{name}_token_id"), json!(id));
            }
        }
        config.insert("add_bos_token".into(), json!(vocab.add_bos));
        config.insert("add_eos_token".into(), json!(vocab.add_eos));
        config.insert("clean_up_tokenization_spaces".into(), json!(false));
        self.tokenizer_config = config;
    }
}

impl VocabEntries<'_> {
    /// A score for each token.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for another number of them.
    pub(super) fn scores(&self, metadata: &Metadata) -> Result<Vec<f32>, Error> {
        let scores = metadata.get_f32_array("tokenizer.ggml.scores")?;
        let scores = scores.unwrap_or_default();
        if scores.len() == self.tokens.len() {
            return Ok(scores);
        }
        Err(Error::Tokenizer {
            file: self.file.to_owned(),
            reason: format!("{} tokens have {} scores", self.tokens.len(), scores.len()),
        })
    }

    fn entries(&self) -> Map<String, Value> {
        let mut vocab = Map::new();
        for id in 0..self.tokens.len() {
            // Of two tokens with one text, the text identifies only the first.
            vocab
                .entry(self.tokens[id].as_str())
                .or_insert_with(|| json!(id));
        }
        vocab
    }

    pub(super) fn added(&self) -> Vec<Value> {
        let kinds = self.kinds.iter().enumerate();
        kinds
            .filter(|(_, kind)| {
                matches!(**kind, kind::CONTROL | kind::USER_DEFINED | kind::UNKNOWN)
            })
            .map(|(id, kind)| {
                json!({ "id": id, "content": self.tokens[id], "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false,
                    "special": *kind != kind::USER_DEFINED })
            })
            .collect()
    }

    /// A template that puts the begin and end tokens around a text.
    fn post_processor(&self) -> Value {
        let bos = self.bos.filter(|_| self.add_bos);
        let eos = self.eos.filter(|_| self.add_eos);
        let special = |id: Option<usize>, type_id: u32| {
            let text = &self.tokens[id?];
            Some(json!({ "SpecialToken": { "id": text, "type_id": type_id } }))
        };
        let around = |sequence: &str, type_id: u32| -> Vec<Value> {
            let text = json!({ "Sequence": { "id": sequence, "type_id": type_id } });
            let around = [special(bos, type_id), Some(text), special(eos, type_id)];
            around.into_iter().flatten().collect()
        };
        let mut tokens = Map::new();
        for id in [bos, eos].into_iter().flatten() {
            let text = &self.tokens[id];
            let token = json!({ "id": text, "ids": [id], "tokens": [text] });
            tokens.insert(text.clone(), token);
        }
        if tokens.is_empty() {
            return Value::Null;
        }
        let pair = [around("A", 0), around("B", 1)].concat();
        json!({ "type": "TemplateProcessing", "single": around("A", 0), "pair": pair,
            "special_tokens": tokens })
    }
}

/// `Err` gives, in words, the reason why the pre-tokenizer cannot be spelled out.
fn byte_level(
    metadata: &Metadata,
    vocab: &VocabEntries<'_>,
) -> Result<Result<Value, String>, Error> {
    let name = metadata.get_str("tokenizer.ggml.pre")?.unwrap_or("default");
    let Some((normalizer, pre_tokenizer, ignore_merges)) = pre::spelled_out(name) else {
        return Ok(Err(format!("the pre-tokenizer `{name}` is not")));
    };
    let merges = metadata
        .get_str_array("tokenizer.ggml.merges")?
        .unwrap_or_default();
    let merges: Vec<Value> = merges
        .iter()
        .filter_map(|merge| merge.split_once(' '))
        .map(|(left, right)| json!([left, right]))
        .collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": false });
    let template = vocab.post_processor();
    let post_processor = if template.is_null() {
        byte_level.clone()
    } else {
        json!({ "type": "Sequence", "processors": [byte_level.clone(), template] })
    };
    Ok(Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocab.added(),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges,
            "vocab": vocab.entries(), "merges": merges,
        },
    })))
}

fn sentence_piece(
    metadata: &Metadata,
    vocab: &VocabEntries<'_>,
    unknown: Option<usize>,
) -> Result<Value, Error> {
    let scores = vocab.scores(metadata)?;
    let prefix = metadata
        .get_bool("tokenizer.ggml.add_space_prefix")?
        .unwrap_or(true);
    let mark = SPACE_MARK.to_string();
    let mut normalizers = vec![];
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": mark }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    let scheme = metadata.get_str("tokenizer.ggml.metaspace_prepend_scheme")?;
    let scheme = scheme.filter(|scheme| prefix && matches!(*scheme, "always" | "first"));
    let pre_tokenizer = scheme.map(|scheme| {
        json!({ "type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": false })
    });
    if prefix && scheme.is_none() {
        normalizers.push(json!({ "type": "Prepend", "prepend": mark }));
    }
    if prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    normalizers.push(json!({ "type": "Replace", "pattern": { "String": " " }, "content": mark }));
    let unknown = unknown.map(|id| &vocab.tokens[id]);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocab.added(),
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "pre_tokenizer": pre_tokenizer,
        "post_processor": vocab.post_processor(),
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab.entries(), "merges": merges_of(vocab, &scores),
        },
    }))
}

/// The merges that merging by score performs: every way to cut a token into two tokens, tokens of
/// higher score first.
fn merges_of(vocab: &VocabEntries<'_>, scores: &[f32]) -> Vec<Value> {
    let mut ids: HashMap<&str, usize> = HashMap::new();
    for (id, text) in vocab.tokens.iter().enumerate() {
        ids.entry(text).or_insert(id);
    }
    let mut order: Vec<usize> = (0..vocab.tokens.len())
        .filter(|&id| vocab.kinds[id] == kind::NORMAL)
        .collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let mut merges = Vec::new();
    for id in order {
        let text = vocab.tokens[id].as_str();
        let mut cuts: Vec<(usize, usize, usize)> = text
            .char_indices()
            .skip(1)
            .filter_map(|(at, _)| Some((*ids.get(&text[..at])?, *ids.get(&text[at..])?, at)))
            .collect();
        cuts.sort_unstable();
        merges.extend(
            cuts.into_iter()
                .map(|(_, _, at)| json!([&text[..at], &text[at..]])),
        );
    }
    merges
}
