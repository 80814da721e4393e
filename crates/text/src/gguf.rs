//! Tokenizers from the metadata of GGUF files.

mod bpe;
mod rwkv;
mod sentencepiece;
mod wordpiece;

use crate::end_of_generation;
use crate::model::byte_of_text;
use crate::pretokenize::SPACE_MARK;
use crate::pretokenize::profile::PretokenizerProfile;
use crate::special::{SpecialToken, Splitter};
use crate::tokenizer::SpecialIds;
use crate::vocab::{Reach, TokenKind, Vocab};
use crate::{Error, Tokenizer};
use std::collections::HashSet;

/// A GGUF file's description of its vocabulary, under `tokenizer.ggml.`; absent keys are `None` or empty.
#[derive(Clone, Debug, Default)]
pub struct GgufVocab<'a> {
    /// `model`: `gpt2` (byte-level BPE), `gemma4` and `whitespace` (BPE over characters), `llama`
    /// (SentencePiece's BPE), `t5` (Unigram), `bert` (WordPiece) or `rwkv` (the longest byte strings).
    pub model: &'a str,
    /// `pre`: the name of the splitting rules of a vocabulary with merges.
    pub pre: Option<&'a str>,
    /// `tokens`: the texts, by id.
    pub tokens: Vec<&'a str>,
    /// `scores`, one a token; required by `llama` and `t5`.
    pub scores: Vec<f32>,
    /// `token_type`, one a token; without it all tokens are ordinary.
    pub token_types: Vec<i32>,
    /// `merges`, as `left right`; required by `gpt2` and the kinds
    /// over characters, but may be empty.
    pub merges: Option<Vec<&'a str>>,
    /// `bos_token_id`
    pub bos: Option<u32>,
    /// `eos_token_id`
    pub eos: Option<u32>,
    /// `eot_token_id`: ends a turn.
    pub eot: Option<u32>,
    /// `eom_token_id`: ends a message.
    pub eom: Option<u32>,
    /// `fim_pad_token_id`, `fim_rep_token_id`, `fim_sep_token_id`: tokens that a code model that
    /// fills gaps writes behind the gap.
    pub fill: [Option<u32>; 3],
    /// `eog_token_ids`: every other token that ends generation. Written by this program's
    /// conversion; llama.cpp has no key for more than two.
    pub ends: Vec<u32>,
    /// `unknown_token_id`
    pub unk: Option<u32>,
    /// `cls_token_id`: begins a text of a `bert` vocabulary, if `bos_token_id` is absent.
    pub cls: Option<u32>,
    /// `seperator_token_id` (spelled this way): ends a text of a `bert` vocabulary.
    pub sep: Option<u32>,
    /// `add_bos_token`
    pub add_bos: Option<bool>,
    /// `add_eos_token`
    pub add_eos: Option<bool>,
    /// `add_space_prefix`
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`: of a `t5` vocabulary.
    pub remove_extra_whitespaces: Option<bool>,
    /// `precompiled_charsmap`: which characters become which, of a `t5` vocabulary; empty if absent.
    pub precompiled_charsmap: Vec<u8>,
    /// `normalizer.lowercase`: of a `bert` or `whitespace` vocabulary.
    pub lowercase: Option<bool>,
    /// `normalizer.strip_accents`: of a `bert` vocabulary; as `lowercase` if absent.
    pub strip_accents: Option<bool>,
    /// `metaspace_prepend_scheme`, written by this program's conversion: where the space goes if not in
    /// front of every part between special tokens. `always`: before parts that do not begin with a
    /// space; `first`: before the part that begins the text.
    pub metaspace_prepend_scheme: Option<&'a str>,
}

const KNOWN_MODELS: &str = "gpt2, llama, gemma4, t5, bert, whitespace, rwkv";

impl Tokenizer {
    /// Builds a tokenizer from the metadata of a GGUF file.
    ///
    /// Ids of special tokens outside the vocabulary count as absent, as they do in other programs.
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
            "gpt2" | "gemma4" | "whitespace" => bpe::build(&gguf),
            "llama" => sentencepiece::by_score(&gguf),
            "t5" => sentencepiece::unigram(&gguf),
            "bert" => wordpiece::build(&gguf),
            "rwkv" => rwkv::build(&gguf),
            other => Err(Error::UnsupportedModel {
                found: other.to_owned(),
                known: KNOWN_MODELS,
            }),
        }
    }
}

impl GgufVocab<'_> {
    /// Whether a text begins with the begin-of-sequence token where a file does not say
    /// (`add_bos_token`), by `model` and `pre`; `false` for unknown names.
    pub fn begins_by_default(model: &str, pre: Option<&str>) -> bool {
        match model {
            "llama" | "bert" => true,
            "gpt2" | "gemma4" | "whitespace" => PretokenizerProfile::named(bpe::pre_of(model, pre))
                .is_ok_and(|profile| profile.add_bos),
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
        let suffix = match (self.add_eos.unwrap_or(default.add_eos), eos) {
            (true, None) if self.add_eos.is_some() => {
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

/// Adds a token of a vocabulary that marks spaces, with the text that it prints.
fn push_marked(vocab: &mut Vocab, text: &str, kind: TokenKind) -> Result<u32, Error> {
    let reach = Reach::of_kind(kind);
    let is_text = matches!(kind, TokenKind::Normal | TokenKind::Unused);
    match byte_of_text(text) {
        Some(byte) if kind == TokenKind::Byte => vocab.push(text, kind, &[byte], reach),
        _ if is_text && text.contains(SPACE_MARK) => {
            let printed = text.replace(SPACE_MARK, " ");
            vocab.push(text, kind, printed.as_bytes(), reach)
        }
        _ => vocab.push(text, kind, text.as_bytes(), reach),
    }
}

/// The token for symbols without one. It must not be a control token, which a text must not produce.
fn plain(unknown: Option<u32>, vocab: &Vocab) -> Option<u32> {
    unknown.filter(|id| vocab.kind(*id) != TokenKind::Control)
}

/// Values for keys that the file does not have.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults {
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    add_bos: bool,
    add_eos: bool,
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
