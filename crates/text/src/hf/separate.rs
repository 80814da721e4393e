//! Folders without `tokenizer.json`: byte-level BPE of `vocab.json` and `merges.txt`, and the pieces of `tokenizer.model`, in
//! the form of that file.
//!
//! The tokenizer's class gives what the files leave out. Sources: transformers 5.24, `GPT2Tokenizer`, `CodeGenTokenizer`,
//! `RobertaTokenizer`, `Qwen2Tokenizer` and `LlamaTokenizer`; `TokenizersBackend.update_post_processor` for the tokens around a text;
//! `TOKENIZER_MAPPING_NAMES` for the classes of models.

use super::added::{added_tokens, text};
use crate::Error;
use pieces::{SentencePiece, pieces};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

mod pieces;

/// The files of a tokenizer that is not in one file.
#[derive(Clone, Copy, Debug)]
pub struct SeparateFiles<'a> {
    /// Texts and numbers of the tokens.
    pub vocabulary: SeparateVocabulary<'a>,
    /// `tokenizer_config.json`.
    pub config: Option<&'a Value>,
}

/// Files of texts and numbers of tokens.
#[derive(Clone, Copy, Debug)]
pub enum SeparateVocabulary<'a> {
    /// Byte-level BPE.
    Merges {
        /// `vocab.json`: numbers by text.
        vocab: &'a [u8],
        /// `merges.txt`: two texts a line, the first merge first.
        merges: &'a [u8],
    },
    /// `tokenizer.model` of SentencePiece.
    Pieces(&'a [u8]),
}

/// The same tokenizer, as other folders have it.
#[derive(Clone, Debug)]
pub struct WholeFiles {
    /// `tokenizer.json`.
    pub tokenizer_json: Vec<u8>,
    /// `tokenizer_config.json`, with the special tokens that the class has by default.
    pub tokenizer_config: Value,
}

/// A class of transformers.
struct TokenizerClass {
    name: &'static str,
    /// Models whose files need not name the class.
    model_types: &'static [&'static str],
    /// Special tokens that it has unless the configuration gives others, or `null`.
    tokens: &'static [(&'static str, &'static str)],
    kind: ClassKind,
    around: AroundText,
}

/// How a class splits and merges a text.
enum ClassKind {
    ByteLevel {
        /// Whether texts are brought into normal form C.
        normalizes: bool,
        /// The expression for pieces; GPT-2's without one.
        expression: Option<&'static str>,
    },
    /// By the pieces of SentencePiece, a mark for a space.
    Pieces,
}

/// Tokens around a text.
enum AroundText {
    /// `bos_token` and `eos_token`, where `add_bos_token` and `add_eos_token` ask for them.
    ByKeys,
    /// `cls_token` before it and `sep_token` behind it.
    Roberta,
}

const END_OF_TEXT: &str = "<|endoftext|>";

const GPT2_TOKENS: &[(&str, &str)] = &[
    ("bos_token", END_OF_TEXT),
    ("eos_token", END_OF_TEXT),
    ("unk_token", END_OF_TEXT),
];

const GPT2_KIND: ClassKind = ClassKind::ByteLevel {
    normalizes: false,
    expression: None,
};

const CLASSES: [TokenizerClass; 5] = [
    TokenizerClass {
        name: "LlamaTokenizer",
        model_types: &[],
        tokens: &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
        ],
        kind: ClassKind::Pieces,
        around: AroundText::ByKeys,
    },
    TokenizerClass {
        name: "GPT2Tokenizer",
        model_types: &[
            "codegen",
            "dbrx",
            "gpt2",
            "gpt_neo",
            "gptj",
            "jais2",
            "opt",
            "phi",
            "starcoder2",
        ],
        tokens: GPT2_TOKENS,
        kind: GPT2_KIND,
        around: AroundText::ByKeys,
    },
    TokenizerClass {
        name: "CodeGenTokenizer",
        model_types: &[],
        tokens: GPT2_TOKENS,
        kind: GPT2_KIND,
        around: AroundText::ByKeys,
    },
    TokenizerClass {
        name: "RobertaTokenizer",
        model_types: &["roberta"],
        tokens: &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("sep_token", "</s>"),
            ("pad_token", "<pad>"),
            ("cls_token", "<s>"),
            ("mask_token", "<mask>"),
        ],
        kind: GPT2_KIND,
        around: AroundText::Roberta,
    },
    TokenizerClass {
        name: "Qwen2Tokenizer",
        model_types: &[],
        tokens: &[
            ("eos_token", END_OF_TEXT),
            ("unk_token", END_OF_TEXT),
            ("pad_token", END_OF_TEXT),
        ],
        kind: ClassKind::ByteLevel {
            normalizes: true,
            expression: Some(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
        },
        around: AroundText::ByKeys,
    },
];

/// The class of a model whose files name none.
pub fn tokenizer_class_of(model_type: &str) -> Option<&'static str> {
    let has_it = |class: &&TokenizerClass| class.model_types.contains(&model_type);
    CLASSES.iter().find(has_it).map(|class| class.name)
}

impl SeparateFiles<'_> {
    /// The tokenizer of this class of transformers in one file; `None` for a class that is not known, or has other files.
    ///
    /// Whether texts, numbers and merges fit each other, [`Tokenizer::from_hf`](crate::Tokenizer::from_hf) asks.
    ///
    /// # Errors
    /// [`Error::Json`] for a `vocab.json` that is not JSON, and declared tokens of another shape; [`Error::Pieces`].
    pub fn whole(&self, class: &str) -> Result<Option<WholeFiles>, Error> {
        let name = class.strip_suffix("Fast").unwrap_or(class);
        let Some(class) = CLASSES.iter().find(|class| class.name == name) else {
            return Ok(None);
        };
        let mut config = match self.config {
            Some(Value::Object(config)) => config.clone(),
            _ => Map::new(),
        };
        for (name, token) in class.tokens {
            config.entry(*name).or_insert_with(|| json!(token));
        }
        let mut json = match (self.vocabulary, &class.kind) {
            (
                SeparateVocabulary::Merges { vocab, merges },
                ClassKind::ByteLevel {
                    normalizes,
                    expression,
                },
            ) => byte_level((*normalizes, *expression), (vocab, merges), &config)?,
            (SeparateVocabulary::Pieces(model), ClassKind::Pieces) => {
                let json = sentence_piece(&pieces(model)?, &config);
                // Those of the model take their place.
                config.remove("additional_special_tokens");
                json
            }
            _ => return Ok(None),
        };
        let config = Value::Object(config);
        json["post_processor"] = class.post_processor(&json, &config)?;
        Ok(Some(WholeFiles {
            tokenizer_json: json.to_string().into_bytes(),
            tokenizer_config: config,
        }))
    }
}

/// Whether a text gets a space in front, as the configuration says.
fn prefixes(config: &Map<String, Value>, default: bool) -> bool {
    let found = config.get("add_prefix_space").and_then(Value::as_bool);
    found.unwrap_or(default)
}

fn byte_level(
    (normalizes, expression): (bool, Option<&str>),
    (vocab, merges): (&[u8], &[u8]),
    config: &Map<String, Value>,
) -> Result<Value, Error> {
    let vocab: Value = serde_json::from_slice(vocab).map_err(|source| Error::Json {
        file: "vocab.json",
        source,
    })?;
    // A line that is no merge is refused with the tokenizer.
    let text = String::from_utf8_lossy(merges);
    let merges = text.lines().filter(|line| !line.starts_with("#version"));
    let merges: Vec<&str> = merges.collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": prefixes(config, false),
        "trim_offsets": true, "use_regex": expression.is_none()});
    let pre_tokenizer = match expression {
        None => bytes,
        Some(expression) => json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false},
            bytes,
        ]}),
    };
    Ok(json!({
        "added_tokens": [],
        "normalizer": normalizes.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false,
            "byte_fallback": false, "vocab": vocab, "merges": merges},
    }))
}

/// BPE over characters. Its merges are all pairs of pieces that make a piece, in the order of what they make
/// (transformers, `generate_merges`).
fn sentence_piece(pieces: &[SentencePiece], config: &Map<String, Value>) -> Value {
    let numbered = || pieces.iter().zip(0u32..);
    let ids: HashMap<&str, u32> = numbered().map(|(piece, id)| (&*piece.text, id)).collect();
    let mut merges = Vec::new();
    for (piece, _) in numbered().filter(|(piece, id)| ids[&*piece.text] == *id) {
        let cuts = piece.text.char_indices().skip(1);
        let halves = cuts.map(|(at, _)| piece.text.split_at(at));
        merges.extend(halves.filter(|(a, b)| ids.contains_key(a) && ids.contains_key(b)));
    }
    let special = numbered().filter(|(piece, _)| piece.is_special);
    let added = special.map(|(piece, id)| {
        json!({"id": id, "content": piece.text, "special": true, "normalized": false, "single_word": false,
            "lstrip": false, "rstrip": false})
    });
    let begins = prefixes(config, true);
    let is_legacy = config.get("legacy").and_then(Value::as_bool) == Some(true);
    let scheme = match (begins, is_legacy) {
        (false, _) => "never",
        (true, true) => "always",
        (true, false) => "first",
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if begins {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "fuse_unk": true, "byte_fallback": true, "vocab": ids, "merges": merges},
    })
}

impl TokenizerClass {
    /// The tokens around a text. A token that the configuration does not have is not put there.
    fn post_processor(&self, json: &Value, config: &Value) -> Result<Value, Error> {
        let id = |token: &str| {
            let known = json["model"]["vocab"].get(token).and_then(Value::as_u64);
            match known {
                Some(id) => Ok(Some(id)),
                None => {
                    let added = added_tokens(json.to_string().as_bytes(), Some(config))?;
                    let found = added.iter().find(|added| added.content == token);
                    Ok::<_, Error>(found.map(|added| u64::from(added.id)))
                }
            }
        };
        let named = |name: &str| match config.get(name).and_then(text) {
            Some(token) => Ok(id(token)?.map(|id| (token.to_owned(), id))),
            None => Ok::<_, Error>(None),
        };
        let asked = |key: &str, name: &str| match config.get(key).and_then(Value::as_bool) {
            Some(true) => named(name),
            _ => Ok(None),
        };
        let around = match self.around {
            AroundText::Roberta => [named("cls_token")?, named("sep_token")?],
            AroundText::ByKeys => [
                asked("add_bos_token", "bos_token")?,
                asked("add_eos_token", "eos_token")?,
            ],
        };
        Ok(template(&around))
    }
}

/// A template that puts these tokens before a text and behind it.
fn template([before, behind]: &[Option<(String, u64)>; 2]) -> Value {
    let mut tokens = Map::new();
    for (token, id) in before.iter().chain(behind) {
        tokens.insert(
            token.clone(),
            json!({"id": token, "ids": [id], "tokens": [token]}),
        );
    }
    let part = |sequence: &str, type_id: u32| -> Vec<Value> {
        let special = |token: &Option<(String, u64)>| {
            let (text, _) = token.as_ref()?;
            Some(json!({"SpecialToken": {"id": text, "type_id": type_id}}))
        };
        let sequence = json!({"Sequence": {"id": sequence, "type_id": type_id}});
        let parts = [special(before), Some(sequence), special(behind)];
        parts.into_iter().flatten().collect()
    };
    let pair = [part("A", 0), part("B", 1)].concat();
    json!({"type": "TemplateProcessing", "single": part("A", 0), "pair": pair, "special_tokens": tokens})
}
