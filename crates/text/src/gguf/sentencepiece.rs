//! SentencePiece's vocabularies: BPE by score (`llama`) and Unigram (`t5`).

use super::{Defaults, GgufVocab, plain, push_marked, splitter};
use crate::model::TokenModel;
use crate::model::spm::Spm;
use crate::model::unigram::{Unigram, UnigramOptions};
use crate::normalize::{Charsmap, NormalizeRule, Normalizer, SentencePieceRules};
use crate::pretokenize::{PreTokenizer, Prepend, PretokenizeStep, SPACE_MARK};
use crate::special::Splitter;
use crate::tokenizer::LeadingSpace;
use crate::vocab::{TokenKind, Vocab};
use crate::{Error, Tokenizer};

pub(super) fn by_score(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    if gguf.scores.is_empty() {
        return Err(Error::Missing("tokenizer.ggml.scores"));
    }
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    for (text, kind) in gguf.tokens.iter().zip(gguf.kinds()) {
        push_marked(&mut vocab, text, kind)?;
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
        add_eos: false,
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

/// T5, XLM-RoBERTa and their descendants.
pub(super) fn unigram(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    if gguf.scores.is_empty() {
        return Err(Error::Missing("tokenizer.ggml.scores"));
    }
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    for (text, kind) in gguf.tokens.iter().zip(gguf.kinds()) {
        push_marked(&mut vocab, text, kind)?;
    }
    let defaults = Defaults {
        eos: Some(1),
        unknown: Some(2),
        add_eos: true,
        ..Defaults::default()
    };
    let ids = gguf.special_ids(&vocab, defaults)?;
    let scores = (0..vocab.len() as u32).zip(&gguf.scores);
    let scores: Vec<f64> = scores
        .map(|(id, score)| match vocab.kind(id) {
            TokenKind::UserDefined => 0.0,
            _ => f64::from(*score),
        })
        .collect();
    let ordinary = (0..vocab.len() as u32).filter(|id| vocab.kind(*id) == TokenKind::Normal);
    let options = UnigramOptions {
        unknown: ids.unknown,
        byte_fallback: true,
        min_score: ordinary.fold(f64::INFINITY, |least, id| least.min(scores[id as usize])),
        by_words: true,
        byte_texts: false,
    };
    let charsmap = match gguf.precompiled_charsmap.as_slice() {
        [] => None,
        bytes => Some(Box::new(Charsmap::new(bytes)?)),
    };
    let space_prefix = gguf.add_space_prefix.unwrap_or(false);
    let rules = vec![NormalizeRule::SentencePiece(SentencePieceRules {
        charsmap,
        space_prefix,
        merge_spaces: gguf.remove_extra_whitespaces.unwrap_or(false),
    })];
    Ok(Tokenizer {
        special: splitter(&vocab)?,
        normalizer: Normalizer::new(rules)?,
        special_normalized: Splitter::default(),
        pre_tokenizer: PreTokenizer::default(),
        model: TokenModel::Unigram(Unigram::new(&vocab, scores, options)?),
        ids,
        leading_space: match space_prefix {
            true => LeadingSpace::DropOne,
            false => LeadingSpace::Keep,
        },
        warnings: Vec::new(),
        vocab,
    })
}
