//! From `tokenizer.json` and `tokenizer_config.json` to `tokenizer.ggml.*`.

use std::collections::{HashMap, HashSet};

use millrace_format::hf;
use serde_json::Value;

use super::{BYTE_LEVEL, SENTENCE_PIECE, SPACE_MARK, is_byte_token, kind, pre};
use crate::convert::Error;
use crate::convert::metadata::Entries;

/// A tokenizer as a folder has it.
pub(in crate::convert) struct Source<'a> {
    /// The checkpoint's name, for messages.
    pub(in crate::convert) file: &'a str,
    /// `tokenizer.json`.
    pub(in crate::convert) json: &'a [u8],
    /// The files beside it.
    pub(in crate::convert) files: &'a hf::Files,
}

/// Tokens by number.
struct Tokens {
    texts: Vec<String>,
    kinds: Vec<i32>,
    /// The number of a text, by which special tokens are named.
    ids: HashMap<String, u32>,
}

impl Source<'_> {
    /// Keys and values of the tokenizer. The list of tokens is filled up to `n_vocab`, the rows of
    /// the embedding table, with unused ones.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a kind of tokenizer, a pre-tokenizer or a token that GGUF cannot
    /// hold.
    pub(in crate::convert) fn to_gguf(&self, n_vocab: usize) -> Result<Entries, Error> {
        let json: Value = serde_json::from_slice(self.json)
            .map_err(|error| self.error(format!("tokenizer.json is not valid JSON: {error}")))?;
        let model = &json["model"];
        match model.get("type").and_then(Value::as_str) {
            Some("BPE") => {}
            // Old files do not say.
            None if model.get("merges").is_some() => {}
            other => {
                let found = other.unwrap_or("unknown");
                let reason = format!("a tokenizer of kind {found}; GGUF conversion knows BPE");
                return Err(self.error(reason));
            }
        }
        let merges = self.merges(&model["merges"])?;
        let mut tokens = self.tokens(&json, n_vocab)?;
        let mut out: Entries = Vec::new();
        if is_byte_level(&json) {
            out.push(("tokenizer.ggml.model", BYTE_LEVEL.into()));
            let name = pre::name_of(&json).map_err(|reason| self.error(reason))?;
            out.push(("tokenizer.ggml.pre", name.into()));
            self.put_special(&json, &tokens, &mut out)?;
            out.push(("tokenizer.ggml.tokens", tokens.texts.into()));
            out.push(("tokenizer.ggml.token_type", tokens.kinds.into()));
            let joined: Vec<String> = merges
                .iter()
                .map(|(left, right)| format!("{left} {right}"))
                .collect();
            out.push(("tokenizer.ggml.merges", joined.into()));
        } else if model["byte_fallback"] == true {
            out.push(("tokenizer.ggml.model", SENTENCE_PIECE.into()));
            out.push(("tokenizer.ggml.pre", "default".into()));
            self.put_special(&json, &tokens, &mut out)?;
            tokens.spell_as_sentence_piece(model["unk_token"].as_str());
            out.push(("tokenizer.ggml.scores", tokens.scores(&merges).into()));
            out.push(("tokenizer.ggml.tokens", tokens.texts.into()));
            out.push(("tokenizer.ggml.token_type", tokens.kinds.into()));
            out.push((
                "tokenizer.ggml.add_space_prefix",
                adds_space_prefix(&json).into(),
            ));
        } else {
            let reason = "a BPE that is neither byte-level nor SentencePiece's: GGUF has no such \
                          kind";
            return Err(self.error(reason.to_owned()));
        }
        Ok(out)
    }

    fn error(&self, reason: String) -> Error {
        Error::Tokenizer {
            file: self.file.to_owned(),
            reason,
        }
    }

    fn merges<'j>(&self, merges: &'j Value) -> Result<Vec<(&'j str, &'j str)>, Error> {
        let parse = |merge: &'j Value| match merge {
            Value::String(joined) => joined.split_once(' '),
            Value::Array(parts) => match parts.as_slice() {
                [left, right] => left.as_str().zip(right.as_str()),
                _ => None,
            },
            _ => None,
        };
        let merges = merges.as_array().map(Vec::as_slice).unwrap_or_default();
        merges
            .iter()
            .map(|merge| {
                let reason = || self.error(format!("tokenizer.json: {merge} is not a merge"));
                parse(merge).ok_or_else(reason)
            })
            .collect()
    }

    fn tokens(&self, json: &Value, n_vocab: usize) -> Result<Tokens, Error> {
        let mut slots: Vec<Option<(&str, i32)>> = vec![None; n_vocab];
        let added = json["added_tokens"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for token in added {
            let special = token["special"].as_bool().unwrap_or(false);
            let token_kind = if special {
                kind::CONTROL
            } else {
                kind::USER_DEFINED
            };
            let id = token["id"].as_u64().and_then(|id| usize::try_from(id).ok());
            // Tokenizers shared by several models add tokens that some have no embedding for.
            if let Some(slot) = id.and_then(|id| slots.get_mut(id)) {
                *slot = Some((token["content"].as_str().unwrap_or_default(), token_kind));
            }
        }
        let added: HashSet<&str> = added
            .iter()
            .filter_map(|token| token["content"].as_str())
            .collect();
        let vocab = json["model"]["vocab"].as_object();
        let vocab = vocab.ok_or_else(|| self.error("tokenizer.json has no vocabulary".into()))?;
        for (text, id) in vocab {
            if added.contains(text.as_str()) {
                continue;
            }
            let slot = id
                .as_u64()
                .and_then(|id| slots.get_mut(usize::try_from(id).ok()?));
            let Some(slot) = slot else {
                let reason =
                    format!("token {text:?} has number {id}, but the model has {n_vocab} tokens");
                return Err(self.error(reason));
            };
            *slot = Some((text, kind::NORMAL));
        }
        let texts: Vec<String> = slots
            .iter()
            .enumerate()
            .map(|(id, slot)| slot.map_or_else(|| format!("[PAD{id}]"), |(text, _)| text.into()))
            .collect();
        let kinds = slots
            .iter()
            .map(|slot| slot.map_or(kind::UNUSED, |(_, kind)| kind))
            .collect();
        let ids = texts
            .iter()
            .enumerate()
            .map(|(id, text)| (text.clone(), id as u32))
            .collect();
        Ok(Tokens { texts, kinds, ids })
    }

    /// Numbers of special tokens, and which are put around every text.
    fn put_special(&self, json: &Value, tokens: &Tokens, out: &mut Entries) -> Result<(), Error> {
        let names = [
            ("bos_token", "tokenizer.ggml.bos_token_id"),
            ("eos_token", "tokenizer.ggml.eos_token_id"),
            ("unk_token", "tokenizer.ggml.unknown_token_id"),
            ("pad_token", "tokenizer.ggml.padding_token_id"),
        ];
        let mut ends = [None; 2];
        for (i, (name, key)) in names.into_iter().enumerate() {
            let id = self.special_id(name, tokens);
            if let Some(id) = id {
                out.push((key, id.into()));
            }
            if let Some(end) = ends.get_mut(i) {
                *end = id;
            }
        }
        let (begin, end) = added_around(json, tokens, ends);
        // Where the configuration says, transformers rebuilds the template accordingly.
        let config = |key: &str| self.files.tokenizer_config.as_ref()?.get(key)?.as_bool();
        let begin = config("add_bos_token").unwrap_or(begin);
        let end = config("add_eos_token").unwrap_or(end);
        out.push(("tokenizer.ggml.add_bos_token", begin.into()));
        out.push(("tokenizer.ggml.add_eos_token", end.into()));
        Ok(())
    }

    /// The number of `bos_token` and the like: by text in `tokenizer_config.json`, else by number
    /// in the configurations (the first one where several end a text).
    fn special_id(&self, name: &str, tokens: &Tokens) -> Option<u32> {
        let named = self
            .files
            .tokenizer_config
            .as_ref()
            .and_then(|config| config.get(name));
        let text = named.and_then(|token| token.as_str().or_else(|| token["content"].as_str()));
        if let Some(&id) = text.and_then(|text| tokens.ids.get(text)) {
            return Some(id);
        }
        let key = format!("{name}_id");
        [&self.files.config, &self.files.generation_config]
            .into_iter()
            .filter_map(|config| config.as_ref()?.get(&key))
            .find_map(|id| id.as_u64().or_else(|| id.get(0)?.as_u64()))
            .and_then(|id| u32::try_from(id).ok())
            .filter(|&id| (id as usize) < tokens.texts.len())
    }
}

fn is_byte_level(json: &Value) -> bool {
    let is = |value: &Value| value["type"] == "ByteLevel";
    let any = |value: &Value, list: &str| {
        is(value)
            || value
                .get(list)
                .and_then(Value::as_array)
                .is_some_and(|all| all.iter().any(is))
    };
    any(&json["pre_tokenizer"], "pretokenizers") || any(&json["decoder"], "decoders")
}

/// Whether the post-processor puts the begin token before a text and the end token after it.
fn added_around(json: &Value, tokens: &Tokens, [bos, eos]: [Option<u32>; 2]) -> (bool, bool) {
    let post = &json["post_processor"];
    let is_template = |value: &&Value| value["type"] == "TemplateProcessing";
    let nested = || post["processors"].as_array()?.iter().find(is_template);
    let template = Some(post).filter(is_template).or_else(nested);
    let parts = template.and_then(|template| template["single"].as_array());
    let parts = parts.map(Vec::as_slice).unwrap_or_default();
    let id_of = |part: Option<&Value>| {
        let text = part?["SpecialToken"]["id"].as_str()?;
        tokens.ids.get(text).copied()
    };
    let begins = bos.is_some() && id_of(parts.first()) == bos;
    let ends = eos.is_some() && parts.len() > 1 && id_of(parts.last()) == eos;
    (begins, ends)
}

/// Whether SentencePiece's dummy space is put before a text.
fn adds_space_prefix(json: &Value) -> bool {
    let mark = SPACE_MARK.to_string();
    let prepends = |step: &Value| match step["type"].as_str() {
        Some("Prepend") => step["prepend"] == mark,
        Some("Metaspace") => match step.get("prepend_scheme").and_then(Value::as_str) {
            Some(scheme) => scheme != "never",
            None => step["add_prefix_space"].as_bool().unwrap_or(true),
        },
        _ => false,
    };
    [
        ("normalizer", "normalizers"),
        ("pre_tokenizer", "pretokenizers"),
    ]
    .iter()
    .any(|(key, list)| {
        let step = &json[*key];
        prepends(step)
            || step[*list]
                .as_array()
                .is_some_and(|steps| steps.iter().any(prepends))
    })
}

impl Tokens {
    /// Kinds and spellings of SentencePiece: bytes and the unknown token are kinds of their own,
    /// and added words have plain spaces, because they are looked for before spaces are marked.
    fn spell_as_sentence_piece(&mut self, unknown: Option<&str>) {
        for (text, token_kind) in self.texts.iter_mut().zip(&mut self.kinds) {
            if Some(text.as_str()) == unknown {
                *token_kind = kind::UNKNOWN;
            } else if *token_kind == kind::NORMAL && is_byte_token(text) {
                *token_kind = kind::BYTE;
            } else if *token_kind == kind::USER_DEFINED {
                *text = text.replace(SPACE_MARK, " ");
            }
        }
    }

    /// The score of each token: minus the rank of the first merge that makes it, so that merging by
    /// score repeats the order of merging by rank. Tokens that no merge makes come last.
    fn scores(&self, merges: &[(&str, &str)]) -> Vec<f32> {
        let mut scores = vec![-(merges.len() as f32); self.texts.len()];
        for (rank, (left, right)) in merges.iter().enumerate().rev() {
            if let Some(&id) = self.ids.get(&format!("{left}{right}")) {
                scores[id as usize] = -(rank as f32);
            }
        }
        for (score, token_kind) in scores.iter_mut().zip(&self.kinds) {
            if !matches!(*token_kind, kind::NORMAL | kind::USER_DEFINED) {
                *score = 0.0;
            }
        }
        scores
    }
}
