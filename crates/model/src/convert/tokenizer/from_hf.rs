//! From `tokenizer.json` and `tokenizer_config.json` to `tokenizer.ggml.*`.

use std::collections::{HashMap, HashSet};

use millrace_format::hf;
use millrace_text::{AddedToken, added_tokens};
use serde_json::Value;

use super::pre::SpacePrefix;
use super::special::{flags_lost, marks_lost};
use super::{BYTE_LEVEL, SENTENCE_PIECE, SPACE_MARK, is_byte_token, kind, pre};
use crate::convert::Error;
use crate::convert::metadata::MetadataEntries;

/// A tokenizer from a folder.
pub(in crate::convert) struct TokenizerFolder<'a> {
    /// The checkpoint's name, for messages.
    pub(in crate::convert) file: &'a str,
    /// `tokenizer.json`.
    pub(in crate::convert) json: &'a [u8],
    /// The files beside it.
    pub(in crate::convert) files: &'a hf::Files,
}

/// Tokens by number.
pub(super) struct Tokens {
    pub(super) texts: Vec<String>,
    pub(super) kinds: Vec<i32>,
    /// The number of a text, by which special tokens are named.
    pub(super) ids: HashMap<String, u32>,
}

impl TokenizerFolder<'_> {
    /// Keys and values of the tokenizer, and the parts of it that GGUF cannot hold. The list of tokens
    /// is filled up to `n_vocab`, the rows of the embedding table, with unused ones.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a kind of tokenizer, a normalizer, a pre-tokenizer or a token that GGUF cannot hold.
    pub(in crate::convert) fn to_gguf(
        &self,
        n_vocab: usize,
    ) -> Result<(MetadataEntries, Vec<String>), Error> {
        let json: Value = serde_json::from_slice(self.json)
            .map_err(|error| self.error(format!("tokenizer.json is not valid JSON: {error}")))?;
        let model = &json["model"];
        match model.get("type").and_then(Value::as_str) {
            Some("BPE") => {}
            // Old files do not name the type.
            None if model.get("merges").is_some() => {}
            Some("WordPiece") => return self.word_piece(&json, n_vocab),
            Some("Unigram") => return self.unigram(&json, n_vocab),
            other => {
                let found = other.unwrap_or("unknown");
                let reason = format!(
                    "a tokenizer of kind {found}; GGUF conversion knows BPE, WordPiece and Unigram"
                );
                return Err(self.error(reason));
            }
        }
        let merges = self.merges(&model["merges"])?;
        let config = self.files.tokenizer_config.as_ref();
        let added =
            added_tokens(self.json, config).map_err(|error| self.error(error.to_string()))?;
        let vocab = self.vocab_by_text(&json)?;
        let tokens = self.tokens(&vocab, &added, n_vocab)?;
        let mut notes = Vec::new();
        let out = if is_byte_level(&json) {
            self.byte_level(&json, &merges, tokens, &mut notes)?
        } else if model["byte_fallback"] == true {
            let out = self.sentence_piece(&json, &merges, tokens, &mut notes)?;
            notes.extend(marks_lost(&added, &json, n_vocab));
            out
        } else {
            let reason = "a BPE that is neither byte-level nor SentencePiece's: GGUF has no such \
                          kind";
            return Err(self.error(reason.to_owned()));
        };
        notes.extend(flags_lost(&added, n_vocab));
        Ok((out, notes))
    }

    fn byte_level(
        &self,
        json: &Value,
        merges: &[(&str, &str)],
        tokens: Tokens,
        notes: &mut Vec<String>,
    ) -> Result<MetadataEntries, Error> {
        let name = pre::name_of(json).map_err(|reason| self.error(reason))?;
        let mut out: MetadataEntries = vec![
            ("tokenizer.ggml.model", BYTE_LEVEL.into()),
            ("tokenizer.ggml.pre", name.into()),
        ];
        self.put_special(&tokens, &mut out, notes)?;
        out.push(("tokenizer.ggml.tokens", tokens.texts.into()));
        out.push(("tokenizer.ggml.token_type", tokens.kinds.into()));
        let joined = merges.iter();
        let joined: Vec<String> = joined
            .map(|(left, right)| format!("{left} {right}"))
            .collect();
        out.push(("tokenizer.ggml.merges", joined.into()));
        Ok(out)
    }

    fn sentence_piece(
        &self,
        json: &Value,
        merges: &[(&str, &str)],
        mut tokens: Tokens,
        notes: &mut Vec<String>,
    ) -> Result<MetadataEntries, Error> {
        let prefix = pre::space_prefix(json).map_err(|reason| self.error(reason))?;
        let mut out: MetadataEntries = vec![
            ("tokenizer.ggml.model", SENTENCE_PIECE.into()),
            ("tokenizer.ggml.pre", "default".into()),
        ];
        self.put_special(&tokens, &mut out, notes)?;
        tokens.spell_as_sentence_piece(json["model"]["unk_token"].as_str());
        out.push(("tokenizer.ggml.scores", tokens.scores(merges).into()));
        out.push(("tokenizer.ggml.tokens", tokens.texts.into()));
        out.push(("tokenizer.ggml.token_type", tokens.kinds.into()));
        let adds = prefix != SpacePrefix::None;
        out.push(("tokenizer.ggml.add_space_prefix", adds.into()));
        if let Some(scheme) = prefix.scheme() {
            out.push(("tokenizer.ggml.metaspace_prepend_scheme", scheme.into()));
        }
        Ok(out)
    }

    pub(super) fn error(&self, reason: String) -> Error {
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

    /// All tokens by number: those of a vocabulary, each with its number, and added ones.
    pub(super) fn tokens(
        &self,
        vocab: &[(&str, u64)],
        added: &[AddedToken],
        n_vocab: usize,
    ) -> Result<Tokens, Error> {
        let mut slots: Vec<Option<(&str, i32)>> = vec![None; n_vocab];
        for token in added {
            let token_kind = match token.special {
                true => kind::CONTROL,
                false => kind::USER_DEFINED,
            };
            // Tokenizers shared by several models add tokens that some have no embedding for.
            if let Some(slot) = slots.get_mut(token.id as usize) {
                *slot = Some((&token.content, token_kind));
            }
        }
        let added: HashSet<&str> = added.iter().map(|token| &*token.content).collect();
        for &(text, id) in vocab {
            if added.contains(text) {
                continue;
            }
            let slot = usize::try_from(id).ok().and_then(|id| slots.get_mut(id));
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

impl Tokens {
    /// Kinds and spellings of SentencePiece. Bytes and the unknown token are separate kinds. Added
    /// words have plain spaces, because they are looked for before spaces are marked.
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
