//! Tokenizers of encoders: BERT's WordPiece and XLM-R's Unigram, as GGUF's kinds `bert` and `t5`.
//!
//! GGUF spells a WordPiece the other way around: tokens that begin a word have SentencePiece's mark, and those that go on
//! have nothing. It does not spell out how text is normalised: the kind implies one way, with a few switches.

use millrace_text::{Tokenizer, added_tokens, charsmap_bytes};
use serde_json::Value;

use super::from_hf::{TokenizerFolder, Tokens};
use super::{SPACE_MARK, kind};
use crate::convert::Error;
use crate::convert::metadata::MetadataEntries;

/// `tokenizer.ggml.model` of WordPiece.
pub(super) const WORD_PIECE: &str = "bert";
/// `tokenizer.ggml.model` of Unigram.
pub(super) const UNIGRAM: &str = "t5";

/// WordPiece's prefix of tokens that continue a word.
pub(super) const GOES_ON: &str = "##";

impl TokenizerFolder<'_> {
    /// A WordPiece, normalised and cut as BERT's.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for other ways.
    pub(super) fn word_piece(
        &self,
        json: &Value,
        n_vocab: usize,
    ) -> Result<(MetadataEntries, Vec<String>), Error> {
        let (model, normalizer) = (&json["model"], &json["normalizer"]);
        let rules = [
            (model, "continuing_subword_prefix", Value::from(GOES_ON)),
            (normalizer, "type", Value::from("BertNormalizer")),
            (normalizer, "clean_text", Value::from(true)),
            (normalizer, "handle_chinese_chars", Value::from(true)),
            (
                &json["pre_tokenizer"],
                "type",
                Value::from("BertPreTokenizer"),
            ),
        ];
        for (part, key, expected) in rules {
            if part[key] != expected {
                let reason = format!(
                    "a WordPiece with {key} = {}; GGUF knows BERT's, with {expected}",
                    part[key]
                );
                return Err(self.error(reason));
            }
        }
        let config = self.files.tokenizer_config.as_ref();
        let added =
            added_tokens(self.json, config).map_err(|error| self.error(error.to_string()))?;
        let vocab = self.vocab_by_text(json)?;
        let mut tokens = self.tokens(&vocab, &added, n_vocab)?;
        let mut out: MetadataEntries = vec![("tokenizer.ggml.model", WORD_PIECE.into())];
        // The kind determines how text is cut; llama.cpp asks for a name all the same.
        out.push(("tokenizer.ggml.pre", "jina-v2-en".into()));
        let lowercase = normalizer["lowercase"].as_bool().unwrap_or(true);
        out.push(("tokenizer.ggml.normalizer.lowercase", lowercase.into()));
        if let Some(strips) = normalizer["strip_accents"].as_bool() {
            out.push(("tokenizer.ggml.normalizer.strip_accents", strips.into()));
        }
        self.put_around(&tokens, &mut out)?;
        tokens.spell_as_word_piece();
        out.push(("tokenizer.ggml.tokens", tokens.texts.into()));
        out.push(("tokenizer.ggml.token_type", tokens.kinds.into()));
        Ok((out, Vec::new()))
    }

    /// A Unigram over words that begin with SentencePiece's mark.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for one that is normalised or cut in another way.
    pub(super) fn unigram(
        &self,
        json: &Value,
        n_vocab: usize,
    ) -> Result<(MetadataEntries, Vec<String>), Error> {
        let rules = UnigramRules::of(json).map_err(|reason| self.error(reason))?;
        let config = self.files.tokenizer_config.as_ref();
        let added =
            added_tokens(self.json, config).map_err(|error| self.error(error.to_string()))?;
        let pieces = json["model"]["vocab"].as_array();
        let pieces = pieces.map(Vec::as_slice).unwrap_or_default();
        let mut vocab = Vec::with_capacity(pieces.len());
        let mut scores = vec![0.0f32; n_vocab];
        for (id, piece) in pieces.iter().enumerate() {
            let (Some(text), Some(score)) = (piece[0].as_str(), piece[1].as_f64()) else {
                let reason = format!("tokenizer.json: {piece} is not a token with its score");
                return Err(self.error(reason));
            };
            vocab.push((text, id as u64));
            if let Some(place) = scores.get_mut(id) {
                *place = score as f32;
            }
        }
        let mut tokens = self.tokens(&vocab, &added, n_vocab)?;
        let unknown = json["model"]["unk_id"].as_u64();
        if let Some(kind) = unknown.and_then(|id| tokens.kinds.get_mut(id as usize)) {
            *kind = kind::UNKNOWN;
        }
        let mut out: MetadataEntries = vec![("tokenizer.ggml.model", UNIGRAM.into())];
        out.push(("tokenizer.ggml.pre", "default".into()));
        self.put_around(&tokens, &mut out)?;
        out.push(("tokenizer.ggml.scores", scores.into()));
        out.push(("tokenizer.ggml.tokens", tokens.texts.into()));
        out.push(("tokenizer.ggml.token_type", tokens.kinds.into()));
        out.push(("tokenizer.ggml.add_space_prefix", true.into()));
        let merges = rules.merges_spaces;
        out.push(("tokenizer.ggml.remove_extra_whitespaces", merges.into()));
        if let Some(charsmap) = rules.charsmap {
            out.push(("tokenizer.ggml.precompiled_charsmap", charsmap.into()));
        }
        Ok((out, Vec::new()))
    }

    /// The numbers of special tokens. Encoders put one before a text and one behind it.
    fn put_around(&self, tokens: &Tokens, out: &mut MetadataEntries) -> Result<(), Error> {
        let config = self.files.tokenizer_config.as_ref();
        let tokenizer = Tokenizer::from_hf(self.json, config);
        let tokenizer = tokenizer.map_err(|error| self.error(error.to_string()))?;
        let (&[begin], &[end]) = (tokenizer.prefix(), tokenizer.suffix()) else {
            let reason = "tokenizer.json does not put one token before a text and one behind it, as GGUF files of \
                          encoders do";
            return Err(self.error(reason.to_owned()));
        };
        let named = |key: &str| {
            let token = config.and_then(|config| config.get(key))?;
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            tokens.ids.get(text).copied()
        };
        for (key, id) in [
            ("tokenizer.ggml.bos_token_id", Some(begin)),
            ("tokenizer.ggml.cls_token_id", Some(begin)),
            ("tokenizer.ggml.eos_token_id", Some(end)),
            // The first writer spelled it so, and all others since.
            ("tokenizer.ggml.seperator_token_id", Some(end)),
            ("tokenizer.ggml.unknown_token_id", tokenizer.unknown()),
            ("tokenizer.ggml.padding_token_id", named("pad_token")),
            ("tokenizer.ggml.mask_token_id", named("mask_token")),
        ] {
            out.extend(id.map(|id| (key, id.into())));
        }
        out.push(("tokenizer.ggml.add_bos_token", true.into()));
        out.push(("tokenizer.ggml.add_eos_token", true.into()));
        Ok(())
    }

    /// The tokens of a vocabulary that is written as an object.
    pub(super) fn vocab_by_text<'j>(&self, json: &'j Value) -> Result<Vec<(&'j str, u64)>, Error> {
        let vocab = json["model"]["vocab"].as_object();
        let vocab = vocab.ok_or_else(|| self.error("tokenizer.json has no vocabulary".into()))?;
        let entry = |(text, id): (&'j String, &Value)| {
            let reason = || self.error(format!("token {text:?} has number {id}, which is none"));
            Ok((text.as_str(), id.as_u64().ok_or_else(reason)?))
        };
        vocab.iter().map(entry).collect()
    }
}

impl Tokens {
    /// Tokens that begin a word get the mark, and those that go on lose theirs. Added ones stay.
    fn spell_as_word_piece(&mut self) {
        for (text, token_kind) in self.texts.iter_mut().zip(&self.kinds) {
            if *token_kind == kind::NORMAL {
                *text = match text.strip_prefix(GOES_ON) {
                    Some(rest) => rest.to_owned(),
                    None => format!("{SPACE_MARK}{text}"),
                };
            }
        }
    }
}

/// How a Unigram's text is normalised.
struct UnigramRules {
    charsmap: Option<Vec<u8>>,
    /// Several spaces count as one.
    merges_spaces: bool,
}

impl UnigramRules {
    fn of(json: &Value) -> Result<UnigramRules, String> {
        let mut rules = UnigramRules {
            charsmap: None,
            merges_spaces: false,
        };
        for step in steps(&json["normalizer"], "normalizers") {
            match step["type"].as_str() {
                Some("Precompiled") => {
                    let text = step["precompiled_charsmap"].as_str().unwrap_or_default();
                    let bytes = charsmap_bytes(text).map_err(|error| error.to_string())?;
                    rules.charsmap = Some(bytes);
                }
                Some("Replace")
                    if step["pattern"]["Regex"] == " {2,}" && step["content"] == " " =>
                {
                    rules.merges_spaces = true;
                }
                _ => {
                    return Err(format!(
                        "a Unigram whose normalizer has {step}; GGUF has no word for it"
                    ));
                }
            }
        }
        let mut has_mark = false;
        for step in steps(&json["pre_tokenizer"], "pretokenizers") {
            match step["type"].as_str() {
                Some("WhitespaceSplit") => rules.merges_spaces = true,
                // Files from before 2024 have a switch where newer ones have a scheme.
                Some("Metaspace")
                    if step["prepend_scheme"] == "always"
                        || step.get("prepend_scheme").is_none()
                            && step["add_prefix_space"] != false =>
                {
                    has_mark = true;
                }
                _ => {
                    return Err(format!(
                        "a Unigram whose pre-tokenizer has {step}; GGUF has no word for it"
                    ));
                }
            }
        }
        match has_mark {
            true => Ok(rules),
            false => Err(
                "a Unigram without SentencePiece's mark for spaces; GGUF has no word for it"
                    .to_owned(),
            ),
        }
    }
}

/// A part of a tokenizer as a list of steps.
fn steps<'j>(part: &'j Value, list: &str) -> Vec<&'j Value> {
    match (part, part[list].as_array()) {
        (Value::Null, _) => Vec::new(),
        (_, Some(steps)) => steps.iter().collect(),
        (one, None) => vec![one],
    }
}

#[cfg(test)]
mod tests {
    use super::UnigramRules;
    use serde_json::json;

    /// The parts of XLM-R's file, whose map is base 64 of four bytes here.
    #[test]
    fn steps_of_published_files_have_words() {
        let metaspace =
            json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always"});
        let spaces = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
        let map = json!({"type": "Precompiled", "precompiled_charsmap": "AQIDBA=="});
        let read = |normalizer, pre_tokenizer| {
            let json = json!({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer});
            UnigramRules::of(&json).map(|rules| (rules.charsmap, rules.merges_spaces))
        };
        let both = json!({"type": "Sequence", "normalizers": [&map, spaces]});
        let expected = Some(vec![1, 2, 3, 4]);
        assert_eq!(read(both, metaspace.clone()), Ok((expected.clone(), true)));
        let words =
            json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, &metaspace]});
        assert_eq!(read(map, words), Ok((expected, true)));
        assert_eq!(read(json!(null), metaspace), Ok((None, false)));
        for (normalizer, pre_tokenizer, word) in [
            (json!({"type": "Lowercase"}), json!(null), "Lowercase"),
            (json!(null), json!({"type": "Digits"}), "Digits"),
            (json!(null), json!(null), "mark for spaces"),
            (
                json!({"type": "Precompiled", "precompiled_charsmap": "?"}),
                json!(null),
                "base 64",
            ),
        ] {
            let error = read(normalizer, pre_tokenizer).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
