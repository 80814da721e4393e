//! Vocabularies with merges: over bytes (`gpt2`) and over characters (`gemma4`, `whitespace`, and `gpt2` with
//! the `pre` of such a vocabulary).

use super::{Defaults, GgufVocab, plain, push_marked, splitter};
use crate::byte_alphabet;
use crate::model::bpe::{BpeOptions, ByteBpe, CharBpe, Unknown};
use crate::model::merge::{Merges, check_count, halves, resolve};
use crate::model::{TokenModel, byte_of_text};
use crate::normalize::{NormalizeRule, Normalizer};
use crate::pretokenize::profile::{PretokenizerProfile, Spelling};
use crate::special::Splitter;
use crate::tokenizer::LeadingSpace;
use crate::vocab::{Reach, TokenKind, Vocab};
use crate::warning::Warning;
use crate::{Error, Tokenizer};

/// The name of the splitting rules. A `gemma4` or `whitespace` vocabulary has those of the same name.
pub(super) fn pre_of<'a>(model: &'a str, pre: Option<&'a str>) -> Option<&'a str> {
    match model {
        "gemma4" | "whitespace" => Some(model),
        _ => pre,
    }
}

pub(super) fn build(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    let Some(written) = &gguf.merges else {
        return Err(Error::Missing("tokenizer.ggml.merges"));
    };
    let pre = pre_of(gguf.model, gguf.pre);
    let profile = PretokenizerProfile::named(pre)?;
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    for (text, kind) in gguf.tokens.iter().zip(gguf.kinds()) {
        match profile.spelling {
            Spelling::Bytes => push_bytes(&mut vocab, text, kind)?,
            Spelling::Marked => push_marked(&mut vocab, text, kind)?,
            Spelling::Plain => vocab.push(text, kind, text.as_bytes(), Reach::of_kind(kind))?,
        };
    }
    let merges = merges(&vocab, written)?;
    let defaults = Defaults {
        add_bos: profile.add_bos,
        ..Defaults::default()
    };
    let mut ids = gguf.special_ids(&vocab, defaults)?;
    if let ("gemma4", Some(bos)) = (gguf.model, ids.bos) {
        // The first files of Gemma 4 deny it wrongly; llama.cpp overrides them too.
        (ids.prefix, ids.chat_prefix) = (vec![bos], vec![bos]);
    }
    let options = BpeOptions {
        ignore_merges: profile.ignore_merges,
        unknown: Unknown {
            id: plain(ids.unknown, &vocab),
            fuse: false,
        },
        byte_fallback: true,
        whole_line_ends: profile.whole_line_ends,
    };
    Ok(Tokenizer {
        special: splitter(&vocab)?,
        normalizer: normalizer(gguf, &profile),
        special_normalized: Splitter::default(),
        pre_tokenizer: profile.pre_tokenizer()?,
        model: match profile.spelling {
            Spelling::Bytes => TokenModel::ByteBpe(ByteBpe::new(&vocab, merges, options)),
            Spelling::Marked | Spelling::Plain => {
                TokenModel::CharBpe(CharBpe::new(&vocab, merges, options))
            }
        },
        ids,
        leading_space: LeadingSpace::Keep,
        warnings: match pre {
            None | Some("") => vec![Warning::PreTokenizerMissing],
            Some(_) => Vec::new(),
        },
        vocab,
    })
}

fn normalizer(gguf: &GgufVocab<'_>, profile: &PretokenizerProfile) -> Normalizer {
    let mut rules: Vec<_> = profile.form.map(NormalizeRule::Form).into_iter().collect();
    match profile.spelling {
        Spelling::Bytes => {}
        Spelling::Marked => rules.extend(Normalizer::sentencepiece(false).rules),
        Spelling::Plain if gguf.lowercase == Some(true) => rules.push(NormalizeRule::Lowercase),
        Spelling::Plain => {}
    }
    Normalizer { rules }
}

/// Appends a token whose text is in the byte alphabet.
fn push_bytes(vocab: &mut Vocab, text: &str, kind: TokenKind) -> Result<u32, Error> {
    let mut bytes = Vec::new();
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
    vocab.push(text, kind, &bytes, reach)
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
