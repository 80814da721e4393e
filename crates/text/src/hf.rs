//! Tokenizers from Hugging Face's `tokenizer.json`, with the additions of `tokenizer_config.json`.

mod added;
mod decoder;
mod json;
mod model;
mod parts;
mod post;
mod separate;

use crate::end_of_generation;
use crate::model::byte_of_text;
use crate::normalize::Normalizer;
use crate::special::{SpecialToken, Splitter};
use crate::tokenizer::SpecialIds;
use crate::vocab::{Reach, TokenKind, Vocab};
use crate::{Error, Tokenizer};
use decoder::PieceDecoder;
use json::TokenizerJson;
use parts::FILE;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

pub use added::added_tokens;
pub use json::AddedToken;
pub use parts::{charsmap_bytes, charsmap_text};
pub use separate::{SeparateFiles, SeparateVocabulary, WholeFiles, tokenizer_class_of};

impl Tokenizer {
    /// Builds a tokenizer from `tokenizer.json`, and from `tokenizer_config.json` if there is one.
    ///
    /// The configuration names the begin- and end-of-sequence tokens, and may declare tokens that
    /// `tokenizer.json` lacks ([`added_tokens`]). The post-processor alone decides which tokens are
    /// put around a text. The configuration's `add_bos_token` and `add_eos_token` do not count
    /// beside a `tokenizer.json`, as in transformers 5.
    ///
    /// # Errors
    /// JSON of another shape; a model, normalizer, pre-tokenizer, post-processor or decoder of an
    /// unsupported kind, by name; ids that collide or have no justification in the file's size;
    /// merges of tokens that are not there.
    pub fn from_hf(
        tokenizer_json: &[u8],
        tokenizer_config: Option<&Value>,
    ) -> Result<Tokenizer, Error> {
        let mut json: TokenizerJson<'_> = serde_json::from_slice(tokenizer_json)
            .map_err(|source| Error::Json { file: FILE, source })?;
        let n_declared = added::complete(&mut json, tokenizer_config)?;
        let kind = model::check(&json.model)?;
        let pre = parts::pre_tokenizer(&json.pre_tokenizer)?;
        let decoder = PieceDecoder::new(&json.decoder, pre.byte_level)?;
        let entries = TokenTexts::new(&json, tokenizer_json.len().saturating_add(n_declared))?;
        let normalizer = parts::normalizer(&json.normalizer)?;
        let printing = Printing {
            decoder,
            normalizer: &normalizer,
            byte_level: pre.byte_level,
        };
        let vocab = entries.vocab(&json, &printing)?;
        let unknown = json.model.unknown_text().and_then(|text| vocab.find(text));
        let model = model::build(&json.model, kind, &vocab, unknown, pre.byte_level)?;
        let leading_space = printing.decoder.leading_space;
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for token in special_tokens(&json, &vocab) {
            if token.normalized {
                let content = normalizer.apply(&token.content).into_owned();
                normalized.push(SpecialToken { content, ..token });
            } else {
                raw.push(token);
            }
        }
        Ok(Tokenizer {
            special: Splitter::new(raw)?,
            special_normalized: Splitter::new(normalized)?,
            normalizer,
            pre_tokenizer: pre.pre_tokenizer,
            model,
            ids: special_ids(&json, tokenizer_config, &vocab, unknown)?,
            leading_space,
            warnings: Vec::new(),
            vocab,
        })
    }
}

/// The texts of all ids.
struct TokenTexts<'j> {
    texts: Vec<Option<Cow<'j, str>>>,
    /// Ids below this one may be the model's own; the rest were only added.
    in_model: Vec<bool>,
}

impl<'j> TokenTexts<'j> {
    fn new(json: &'j TokenizerJson<'_>, file_bytes: usize) -> Result<TokenTexts<'j>, Error> {
        if matches!(json.model.vocab, json::JsonVocab::Absent) {
            return Err(Error::Missing("tokenizer.json: model.vocab"));
        }
        let of_model = || json.model.vocab.entries();
        let added = json
            .added_tokens
            .iter()
            .map(|token| (token.content.as_str(), token.id));
        let highest = of_model().chain(added.clone()).max_by_key(|(_, id)| *id);
        let Some((text, highest)) = highest else {
            return Err(Error::Missing("tokenizer.json: every token"));
        };
        // Each token takes several bytes of the file, so a higher id does not justify an allocation.
        if highest as usize >= file_bytes {
            return Err(Error::TokenId {
                id: u64::from(highest),
                text: text.to_owned(),
                reason: format!("a file of {file_bytes} bytes cannot hold that many tokens"),
            });
        }
        let n = highest as usize + 1;
        let mut entries = TokenTexts {
            texts: vec![None; n],
            in_model: vec![false; n],
        };
        for (text, id) in of_model() {
            entries.set(text, id)?;
            entries.in_model[id as usize] = true;
        }
        let known: HashSet<&str> = of_model().map(|(text, _)| text).collect();
        for (text, id) in added {
            // A token of the model keeps its id, even if the list of added tokens gives another.
            if !known.contains(text) {
                entries.set(text, id)?;
            }
        }
        Ok(entries)
    }

    fn set(&mut self, text: &'j str, id: u32) -> Result<(), Error> {
        let place = &mut self.texts[id as usize];
        if let Some(other) = place
            && other != text
        {
            return Err(Error::TokenId {
                id: u64::from(id),
                text: text.to_owned(),
                reason: format!("\"{other}\" has the same id"),
            });
        }
        *place = Some(Cow::Borrowed(text));
        Ok(())
    }

    fn vocab(&self, json: &TokenizerJson<'_>, printing: &Printing<'_>) -> Result<Vocab, Error> {
        let added: HashMap<&str, &json::AddedToken> = json
            .added_tokens
            .iter()
            .map(|token| (token.content.as_str(), token))
            .collect();
        let unknown = json.model.unknown_text();
        let mut vocab = Vocab::with_capacity(self.texts.len());
        let mut piece = Vec::new();
        for (text, in_model) in self.texts.iter().zip(&self.in_model) {
            let Some(text) = text.as_deref() else {
                vocab.push("", TokenKind::Unused, b"", Reach::Nowhere)?;
                continue;
            };
            let added = added.get(text).copied();
            let kind = match added {
                _ if unknown == Some(text) => TokenKind::Unknown,
                Some(token) if token.special => TokenKind::Control,
                Some(_) => TokenKind::UserDefined,
                None if json.model.byte_fallback && byte_of_text(text).is_some() => TokenKind::Byte,
                None => TokenKind::Normal,
            };
            piece.clear();
            printing.piece(
                text,
                kind,
                added.is_some_and(json::AddedToken::is_normalized),
                &mut piece,
            );
            let is_text = matches!(kind, TokenKind::Normal | TokenKind::UserDefined);
            let reach = match in_model {
                true if printing.byte_level && is_text => Reach::ByBytes,
                true => Reach::of_kind(kind),
                // The model does not know it.
                false => Reach::Nowhere,
            };
            vocab.push(text, kind, &piece, reach)?;
        }
        Ok(vocab)
    }
}

/// Rules for the bytes that a token prints.
struct Printing<'n> {
    decoder: PieceDecoder,
    normalizer: &'n Normalizer,
    byte_level: bool,
}

impl Printing<'_> {
    fn piece(&self, text: &str, kind: TokenKind, normalized: bool, out: &mut Vec<u8>) {
        // A token looked for in normalized text prints the text that was found.
        let text = if normalized {
            self.normalizer.apply(text)
        } else {
            Cow::Borrowed(text)
        };
        match kind {
            TokenKind::Control | TokenKind::Unknown if !self.decoder.spaces_words() => {
                out.extend_from_slice(text.as_bytes());
            }
            // Matched in the text as written, so printed as written.
            TokenKind::UserDefined if self.byte_level => out.extend_from_slice(text.as_bytes()),
            _ => self.decoder.decode_into(&text, out),
        }
    }
}

fn special_tokens(json: &TokenizerJson<'_>, vocab: &Vocab) -> impl Iterator<Item = SpecialToken> {
    json.added_tokens.iter().filter_map(|token| {
        let id = vocab.find(&token.content)?;
        Some(SpecialToken {
            id,
            content: token.content.clone(),
            control: token.special,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
            normalized: token.is_normalized(),
        })
    })
}

/// A token that the configuration names.
fn configured(config: Option<&Value>, key: &str, vocab: &Vocab) -> Option<u32> {
    vocab.find(added::text(config?.get(key)?)?)
}

fn special_ids(
    json: &TokenizerJson<'_>,
    config: Option<&Value>,
    vocab: &Vocab,
    unknown: Option<u32>,
) -> Result<SpecialIds, Error> {
    let around = post::around(&json.post_processor, vocab)?;
    let bos = configured(config, "bos_token", vocab).or(around.prefix.first().copied());
    let eos = configured(config, "eos_token", vocab).or(around.suffix.last().copied());
    Ok(SpecialIds {
        bos,
        eos,
        unknown: unknown.or(configured(config, "unk_token", vocab)),
        prefix: around.prefix,
        chat_prefix: Vec::new(),
        suffix: around.suffix,
        end_of_generation: end_of_generation::find(vocab, eos, [None; 3]),
    })
}

#[cfg(test)]
mod tests;
