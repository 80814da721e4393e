//! WordPiece (`bert`). GGUF files write a mark in front of tokens that begin a word, and nothing in front of
//! those that go on. These `tokenizer.json` writes with `##`.

use super::{Defaults, GgufVocab, splitter};
use crate::detokenize::clean_up;
use crate::model::TokenModel;
use crate::model::wordpiece::{MAX_WORD_CHARS, PieceSpelling, WordPiece};
use crate::normalize::{BertRules, NormalizeRule, Normalizer};
use crate::pretokenize::{PreTokenizer, PretokenizeStep, SPACE_MARK};
use crate::special::Splitter;
use crate::tokenizer::LeadingSpace;
use crate::vocab::{Reach, TokenKind, Vocab};
use crate::{Error, Tokenizer};

/// Numbers of BERT's own vocabulary, which apply where a file names none (llama.cpp).
const CLS: u32 = 101;
const SEP: u32 = 102;
const UNKNOWN: u32 = 100;

pub(super) fn build(gguf: &GgufVocab<'_>) -> Result<Tokenizer, Error> {
    let id = |named: Option<u32>, usual: u32| gguf.id(named).or_else(|| gguf.id(Some(usual)));
    let unknown = id(gguf.unk, UNKNOWN);
    let mut vocab = Vocab::with_capacity(gguf.tokens.len());
    for ((text, kind), id) in gguf.tokens.iter().zip(gguf.kinds()).zip(0u32..) {
        // Files call it a control token, but it represents text.
        let kind = match kind {
            TokenKind::Control if unknown == Some(id) => TokenKind::Unknown,
            other => other,
        };
        let printed = match text.strip_prefix(SPACE_MARK) {
            Some(word) => clean_up(&format!(" {word}")),
            None if matches!(kind, TokenKind::Control | TokenKind::Unknown) => format!(" {text}"),
            None => clean_up(text),
        };
        vocab.push(text, kind, printed.as_bytes(), Reach::of_kind(kind))?;
    }
    let defaults = Defaults {
        bos: gguf.id(gguf.cls).or(Some(CLS)),
        unknown,
        ..Defaults::default()
    };
    let mut ids = gguf.special_ids(&vocab, defaults)?;
    // Both are always there: `add_bos_token` does not count.
    ids.prefix = ids.bos.into_iter().collect();
    ids.chat_prefix = ids.prefix.clone();
    ids.suffix = id(gguf.sep, SEP).into_iter().collect();
    let spelling = PieceSpelling {
        begins: SPACE_MARK.to_string(),
        goes_on: String::new(),
    };
    let lowercase = gguf.lowercase.unwrap_or(true);
    let rules = BertRules {
        clean_text: true,
        space_ideographs: true,
        strip_accents: gguf.strip_accents.unwrap_or(lowercase),
        lowercase,
    };
    Ok(Tokenizer {
        special: splitter(&vocab)?,
        normalizer: Normalizer::new(vec![NormalizeRule::Bert(rules)])?,
        special_normalized: Splitter::default(),
        pre_tokenizer: PreTokenizer {
            steps: vec![PretokenizeStep::Bert],
        },
        model: TokenModel::WordPiece(WordPiece::new(&vocab, spelling, unknown, MAX_WORD_CHARS)),
        ids,
        leading_space: LeadingSpace::WordPiece,
        warnings: Vec::new(),
        vocab,
    })
}
