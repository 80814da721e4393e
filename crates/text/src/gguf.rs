//! Tokenizers from the metadata of GGUF files.

use crate::byte_alphabet;
use crate::end_of_generation;
use crate::model::bpe::{BpeOptions, ByteBpe, Unknown};
use crate::model::merge::{Merges, check_count, halves, resolve};
use crate::model::spm::Spm;
use crate::model::{TokenModel, byte_of_text};
use crate::normalize::{NormalizeRule, Normalizer};
use crate::pretokenize::profile::PretokenizerProfile;
use crate::pretokenize::{PreTokenizer, Prepend, PretokenizeStep, SPACE_MARK};
use crate::special::{SpecialToken, Splitter};
use crate::tokenizer::{LeadingSpace, SpecialIds};
use crate::vocab::{Reach, TokenKind, Vocab};
use crate::warning::Warning;
use crate::{Error, Tokenizer};
use std::collections::HashSet;

/// What a GGUF file says of its vocabulary, under `tokenizer.ggml.`; absent keys are `None` or
/// empty.
#[derive(Clone, Debug, Default)]
pub struct GgufVocab<'a> {
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    pub model: &'a str,
    /// `pre`: the name of the splitting rules of a `gpt2` vocabulary.
    pub pre: Option<&'a str>,
    /// `tokens`: the texts, by id.
    pub tokens: Vec<&'a str>,
    /// `scores`, one a token; required by `llama`.
    pub scores: Vec<f32>,
    /// `token_type`, one a token; without it all tokens are ordinary.
    pub token_types: Vec<i32>,
    /// `merges`, as `left right`; required by `gpt2`, but may be empty.
    pub merges: Option<Vec<&'a str>>,
    /// `bos_token_id`
    pub bos: Option<u32>,
    /// `eos_token_id`
    pub eos: Option<u32>,
    /// `eot_token_id`: ends a turn.
    pub eot: Option<u32>,
    /// `eom_token_id`: ends a message.
    pub eom: Option<u32>,
    /// `fim_pad_token_id`, `fim_rep_token_id`, `fim_sep_token_id`: what a code model that fills
    /// gaps writes behind the gap.
    pub fill: [Option<u32>; 3],
    /// `eog_token_ids`: every other token that ends generation. Written by this program's
    /// conversion; llama.cpp has no key for more than two.
    pub ends: Vec<u32>,
    /// `unknown_token_id`
    pub unk: Option<u32>,
    /// `add_bos_token`
    pub add_bos: Option<bool>,
    /// `add_eos_token`
    pub add_eos: Option<bool>,
    /// `add_space_prefix`
    pub add_space_prefix: Option<bool>,
    /// `metaspace_prepend_scheme`, written by this program's conversion: where the space goes if not in
    /// front of every part between special tokens. `always`: of those that begin with none; `first`: of
    /// the part that begins the text.
    pub metaspace_prepend_scheme: Option<&'a str>,
}

const KNOWN_MODELS: &str = "gpt2, llama";

impl Tokenizer {
    /// Builds a tokenizer from the metadata of a GGUF file.
    ///
    /// Ids of special tokens that lie outside the vocabulary count as absent, as they do elsewhere.
    ///
    /// # Errors
    /// A vocabulary of another kind, an unknown `pre`, lists shorter than the list of tokens,
    /// missing scores or merges, malformed merges, `add_bos_token` or `add_eos_token` without such
    /// a token.
    pub fn from_gguf(gguf: GgufVocab<'_>) -> Result<Tokenizer, Error> {
        let n = gguf.tokens.len();
        for (list, found) in [
            ("tokenizer.ggml.token_type", gguf.token_types.len()),
            ("tokenizer.ggml.scores", gguf.scores.len()),
        ] {
            if found != 0 && found < n {
                return Err(Error::ListLength {
                    list,
                    expected: n,
                    found,
                });
            }
        }
        match gguf.model {
            _ if n == 0 => Err(Error::Missing("tokenizer.ggml.tokens")),
            "gpt2" => byte_level(&gguf),
            "llama" => sentencepiece(&gguf),
            other => Err(Error::UnsupportedModel {
                found: other.to_owned(),
                known: KNOWN_MODELS,
            }),
        }
    }
}

impl GgufVocab<'_> {
    /// Whether a text begins with the begin-of-sequence token where a file does not say
    /// (`add_bos_token`), by `model` and `pre`; `false` for names that are not known.
    pub fn begins_by_default(model: &str, pre: Option<&str>) -> bool {
        match model {
            "llama" => true,
            "gpt2" => PretokenizerProfile::named(pre).is_ok_and(|profile| profile.add_bos),
            _ => false,
        }
    }

    /// The kinds of all tokens.
    fn kinds(&self) -> Vec<TokenKind> {
        let all: HashSet<&str> = self.tokens.iter().copied().collect();
        let kind = |(id, text): (usize, &&str)| {
            let number = self.token_types.get(id);
            let kind = number.map_or(TokenKind::Normal, |number| TokenKind::from_gguf(*number));
            end_of_generation::kind_of(text, kind, |other| all.contains(other))
        };
        self.tokens.iter().enumerate().map(kind).collect()
    }

    fn id(&self, id: Option<u32>) -> Option<u32> {
        id.filter(|id| (*id as usize) < self.tokens.len())
    }

    /// The ids with a role, `bos`, `eos` and `unk` completed by the caller's defaults.
    fn special_ids(&self, vocab: &Vocab, default: Defaults) -> Result<SpecialIds, Error> {
        let or = |id: Option<u32>, default: Option<u32>| self.id(id).or(self.id(default));
        let (bos, eos) = (or(self.bos, default.bos), or(self.eos, default.eos));
        let prefix = match (self.add_bos.unwrap_or(default.add_bos), bos) {
            (true, None) if self.add_bos.is_some() => {
                return Err(Error::Missing(
                    "tokenizer.ggml.bos_token_id (add_bos_token is true)",
                ));
            }
            (true, bos) => bos,
            (false, _) => None,
        };
        let suffix = match (self.add_eos.unwrap_or(false), eos) {
            (true, None) => {
                return Err(Error::Missing(
                    "tokenizer.ggml.eos_token_id (add_eos_token is true)",
                ));
            }
            (true, eos) => eos,
            (false, _) => None,
        };
        let named = [eos, self.eot, self.eom].into_iter().flatten();
        let named = named.chain(self.ends.iter().copied());
        let named = named.filter(|id| (*id as usize) < self.tokens.len());
        let prefix: Vec<u32> = prefix.into_iter().collect();
        Ok(SpecialIds {
            bos,
            eos,
            unknown: or(self.unk, default.unknown),
            chat_prefix: prefix.clone(),
            prefix,
            suffix: suffix.into_iter().collect(),
            end_of_generation: end_of_generation::find(
                vocab,
                named,
                self.fill.map(|id| self.id(id)),
            ),
        })
    }
}

/// What holds where a file is silent.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults {
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    add_bos: bool,
}

fn byte_level(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    let Some(written) = &gguf.merges else {
        return Err(Error::Missing("tokenizer.ggml.merges"));
    };
    let profile = PretokenizerProfile::named(gguf.pre)?;
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    let mut bytes = Vec::new();
    for (text, kind) in gguf.tokens.iter().zip(gguf.kinds()) {
        bytes.clear();
        let is_word = matches!(kind, TokenKind::Normal | TokenKind::Unused)
            && byte_alphabet::decode_into(text, &mut bytes);
        match byte_of_text(text) {
            _ if is_word => {}
            Some(byte) if kind == TokenKind::Byte => bytes.push(byte),
            _ => bytes.extend_from_slice(text.as_bytes()),
        }
        let reach = match is_word {
            true => Reach::ByBytes,
            false => Reach::of_kind(kind),
        };
        vocab.push(text, kind, &bytes, reach)?;
    }
    let merges = merges(&vocab, written)?;
    let defaults = Defaults {
        add_bos: profile.add_bos,
        ..Defaults::default()
    };
    let ids = gguf.special_ids(&vocab, defaults)?;
    let options = BpeOptions {
        ignore_merges: profile.ignore_merges,
        unknown: Unknown {
            id: plain(ids.unknown, &vocab),
            fuse: false,
        },
        byte_fallback: false,
    };
    Ok(Tokenizer {
        special: splitter(&vocab)?,
        normalizer: Normalizer {
            rules: profile.form.map(NormalizeRule::Form).into_iter().collect(),
        },
        special_normalized: Splitter::default(),
        pre_tokenizer: profile.pre_tokenizer()?,
        model: TokenModel::ByteBpe(ByteBpe::new(&vocab, merges, options)),
        ids,
        leading_space: LeadingSpace::Keep,
        warnings: match gguf.pre {
            None | Some("") => vec![Warning::PreTokenizerMissing],
            Some(_) => Vec::new(),
        },
        vocab,
    })
}

/// What stands for a symbol without a token. A control token must not come out of a text for that.
fn plain(unknown: Option<u32>, vocab: &Vocab) -> Option<u32> {
    unknown.filter(|id| vocab.kind(*id) != TokenKind::Control)
}

/// The merges of a file. One whose tokens the vocabulary lacks can never apply and is left out.
fn merges(vocab: &Vocab, written: &[&str]) -> Result<Merges, Error> {
    check_count(written.len())?;
    let mut merges = Merges::with_capacity(written.len());
    let mut joined = String::new();
    for (rank, merge) in written.iter().enumerate() {
        let (left, right) = halves(rank, merge)?;
        if let Some(ids) = resolve(vocab, left, right, &mut joined)
            && vocab.is_reached(ids.2)
        {
            merges.insert(rank as u32, ids, false);
        }
    }
    Ok(merges)
}

fn sentencepiece(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    if gguf.scores.is_empty() {
        return Err(Error::Missing("tokenizer.ggml.scores"));
    }
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    for (text, kind) in gguf.tokens.iter().zip(gguf.kinds()) {
        let reach = Reach::of_kind(kind);
        let is_text = matches!(kind, TokenKind::Normal | TokenKind::Unused);
        match byte_of_text(text) {
            Some(byte) if kind == TokenKind::Byte => vocab.push(text, kind, &[byte], reach)?,
            _ if is_text && text.contains('▁') => {
                vocab.push(text, kind, text.replace('▁', " ").as_bytes(), reach)?
            }
            _ => vocab.push(text, kind, text.as_bytes(), reach)?,
        };
    }
    let space_prefix = gguf.add_space_prefix.unwrap_or(true);
    let prepend = match gguf.metaspace_prepend_scheme {
        Some("first") if space_prefix => Some(Prepend::First),
        Some("always") if space_prefix => Some(Prepend::Always),
        _ => None,
    };
    let metaspace = prepend.map(|prepend| PretokenizeStep::Metaspace {
        mark: SPACE_MARK,
        prepend,
        cut: false,
    });
    let defaults = Defaults {
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        add_bos: true,
    };
    let ids = gguf.special_ids(&vocab, defaults)?;
    Ok(Tokenizer {
        special: splitter(&vocab)?,
        normalizer: Normalizer::sentencepiece(space_prefix && metaspace.is_none()),
        special_normalized: Splitter::default(),
        pre_tokenizer: PreTokenizer {
            steps: metaspace.into_iter().collect(),
        },
        model: TokenModel::Spm(Spm::new(&vocab, &gguf.scores, plain(ids.unknown, &vocab))),
        ids,
        leading_space: if space_prefix {
            LeadingSpace::DropOne
        } else {
            LeadingSpace::Keep
        },
        warnings: Vec::new(),
        vocab,
    })
}

/// The tokens matched before anything else: control tokens, the unknown token, user-defined ones.
fn splitter(vocab: &Vocab) -> Result<Splitter, Error> {
    let tokens = (0..vocab.len() as u32).filter_map(|id| {
        let control = match vocab.kind(id) {
            TokenKind::Control | TokenKind::Unknown => true,
            TokenKind::UserDefined => false,
            TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => return None,
        };
        Some(SpecialToken::plain(id, vocab.text(id), control))
    });
    Splitter::new(tokens.collect())
}

#[cfg(test)]
mod tests;
