//! The `model` of `tokenizer.json`.

use super::json::{JsonMerge, JsonModel, JsonVocab};
use crate::Error;
use crate::model::TokenModel;
use crate::model::bpe::{BpeOptions, ByteBpe, CharBpe, Unknown};
use crate::model::merge::{Merges, check_count, halves, resolve};
use crate::model::unigram::{Unigram, UnigramOptions};
use crate::model::wordpiece::{MAX_WORD_CHARS, PieceSpelling, WordPiece};
use crate::vocab::Vocab;

const KNOWN_MODELS: &str = "BPE, WordPiece, Unigram";

/// The `type` of a model in `tokenizer.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bpe,
    WordPiece,
    Unigram,
}

/// `WordPiece`'s prefix of pieces that continue a word, where a file gives none.
const CONTINUING: &str = "##";

impl JsonModel<'_> {
    /// The text of the unknown token. Unigram names it by its place.
    pub(super) fn unknown_text(&self) -> Option<&str> {
        match &self.vocab {
            JsonVocab::List(list) => {
                let (text, _) = list.get(self.unk_id? as usize)?;
                Some(text)
            }
            JsonVocab::Absent | JsonVocab::Map(_) => self.unk_token.as_deref(),
        }
    }
}

/// The kind of a model.
///
/// # Errors
/// Kinds and settings that are not implemented, by name.
pub(super) fn check(model: &JsonModel<'_>) -> Result<Kind, Error> {
    let is_list = matches!(model.vocab, JsonVocab::List(_));
    let kind = match model.kind.as_deref() {
        Some("BPE") if !is_list => Kind::Bpe,
        Some("WordPiece") if !is_list => Kind::WordPiece,
        Some("Unigram") if is_list => Kind::Unigram,
        // Old files do not name the model; only BPE has merges, only Unigram a list.
        None if is_list => Kind::Unigram,
        None if !model.merges.0.is_empty() => Kind::Bpe,
        kind => {
            let form = if is_list { "a list" } else { "a map" };
            let found = kind.map_or_else(
                || "without a type".to_owned(),
                |kind| match kind {
                    "BPE" | "WordPiece" | "Unigram" => format!("{kind} with {form} of tokens"),
                    other => other.to_owned(),
                },
            );
            return Err(Error::UnsupportedModel {
                found,
                known: KNOWN_MODELS,
            });
        }
    };
    if kind != Kind::Bpe {
        return Ok(kind);
    }
    let affix = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    for (part, found) in [
        (
            "model.continuing_subword_prefix",
            affix(&model.continuing_subword_prefix),
        ),
        ("model.end_of_word_suffix", affix(&model.end_of_word_suffix)),
        (
            "model.dropout",
            model.dropout.filter(|p| *p != 0.0).map(|p| p.to_string()),
        ),
    ] {
        if let Some(found) = found {
            let found = format!("\"{found}\"");
            return Err(Error::UnsupportedSetting {
                part,
                found,
                hint: "expected none",
            });
        }
    }
    Ok(kind)
}

/// Builds the model that encodes pieces.
pub(super) fn build(
    json: &JsonModel<'_>,
    kind: Kind,
    vocab: &Vocab,
    unknown: Option<u32>,
    byte_level: bool,
) -> Result<TokenModel, Error> {
    if byte_level && kind != Kind::Bpe {
        return Err(Error::UnsupportedSetting {
            part: "pre_tokenizer",
            found: format!("ByteLevel with a model of type {kind:?}"),
            hint: "supported: with BPE",
        });
    }
    match kind {
        Kind::Bpe => bpe(json, vocab, unknown, byte_level),
        Kind::WordPiece => {
            let goes_on = json.continuing_subword_prefix.as_deref();
            let spelling = PieceSpelling {
                begins: String::new(),
                goes_on: goes_on.unwrap_or(CONTINUING).to_owned(),
            };
            let max_chars = json.max_input_chars_per_word.unwrap_or(MAX_WORD_CHARS);
            let model = WordPiece::new(vocab, spelling, unknown, max_chars);
            Ok(TokenModel::WordPiece(model))
        }
        Kind::Unigram => unigram(json, vocab, unknown),
    }
}

fn bpe(
    json: &JsonModel<'_>,
    vocab: &Vocab,
    unknown: Option<u32>,
    byte_level: bool,
) -> Result<TokenModel, Error> {
    let merges = merges(vocab, &json.merges.0)?;
    let options = BpeOptions {
        ignore_merges: json.ignore_merges,
        unknown: Unknown {
            id: unknown,
            fuse: json.fuse_unk,
        },
        byte_fallback: json.byte_fallback,
        whole_line_ends: false,
    };
    Ok(match byte_level {
        true => TokenModel::ByteBpe(ByteBpe::new(vocab, merges, options)),
        false => TokenModel::CharBpe(CharBpe::new(vocab, merges, options)),
    })
}

fn unigram(json: &JsonModel<'_>, vocab: &Vocab, unknown: Option<u32>) -> Result<TokenModel, Error> {
    let JsonVocab::List(list) = &json.vocab else {
        return Err(Error::Missing("tokenizer.json: the list of model.vocab"));
    };
    // Added tokens come after the list; no text becomes them.
    let mut scores: Vec<f64> = list.iter().map(|(_, score)| *score).collect();
    let min_score = scores.iter().copied().fold(f64::INFINITY, f64::min);
    scores.resize(vocab.len().max(scores.len()), 0.0);
    let options = UnigramOptions {
        unknown,
        byte_fallback: json.byte_fallback,
        min_score,
        by_words: false,
        byte_texts: true,
    };
    Ok(TokenModel::Unigram(Unigram::new(vocab, scores, options)?))
}

fn merges(vocab: &Vocab, written: &[JsonMerge<'_>]) -> Result<Merges, Error> {
    check_count(written.len())?;
    let mut merges = Merges::with_capacity(written.len());
    let mut joined = String::new();
    for (rank, merge) in written.iter().enumerate() {
        let (left, right) = match merge {
            JsonMerge::Pair(left, right) => (left.as_ref(), right.as_ref()),
            JsonMerge::Joined(text) => halves(rank, text)?,
        };
        let ids = resolve(vocab, left, right, &mut joined).ok_or_else(|| Error::Merge {
            index: rank,
            text: format!("{left} {right}"),
            reason: "one of the two tokens, or the one they make, is not in the vocabulary",
        })?;
        if vocab.is_reached(ids.2) {
            merges.insert(rank as u32, ids, true);
        }
    }
    Ok(merges)
}
