//! The models that turn a piece of text into token ids.

pub(crate) mod bpe;
pub(crate) mod longest;
pub(crate) mod merge;
mod prefixes;
pub(crate) mod spm;
pub(crate) mod unigram;
pub(crate) mod wordpiece;

use crate::vocab::Vocab;
use std::sync::atomic::{AtomicU8, Ordering};

/// Positions within a piece are 32 bits wide; a longer one is encoded in parts.
const MAX_PIECE_BYTES: usize = 1 << 30;

/// The model that encodes pieces of the pre-tokenizer.
#[derive(Debug)]
pub(crate) enum TokenModel {
    /// Byte-level BPE: pieces are bytes (GPT-2, Llama 3, Qwen, Tekken).
    ByteBpe(bpe::ByteBpe),
    /// BPE over characters, with bytes for the unknown ones (Llama 2, Mistral, Gemma in
    /// `tokenizer.json`).
    CharBpe(bpe::CharBpe),
    /// SentencePiece's merges by score (the same models in GGUF).
    Spm(spm::Spm),
    /// The path through a text with the highest sum of scores (T5, XLM-RoBERTa).
    Unigram(unigram::Unigram),
    /// The longest tokens from the left (BERT).
    WordPiece(wordpiece::WordPiece),
    /// The longest byte strings from the left (RWKV).
    Longest(longest::Longest),
}

impl TokenModel {
    /// Appends the ids of one piece.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        piece: &str,
        scratch: &mut merge::MergeScratch,
        out: &mut Vec<u32>,
    ) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (part, tail) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
            rest = tail;
            match self {
                TokenModel::ByteBpe(model) => model.encode(vocab, part, scratch, out),
                TokenModel::CharBpe(model) => model.encode(vocab, part, scratch, out),
                TokenModel::Spm(model) => model.encode(vocab, part, scratch, out),
                TokenModel::Unigram(model) => model.encode(vocab, part, scratch, out),
                TokenModel::WordPiece(model) => model.encode(vocab, part, scratch, out),
                TokenModel::Longest(model) => model.encode(vocab, part, out),
            }
        }
    }
}

/// For each token, whether encoding its whole text as a word gives the token, as far as known.
///
/// Most words of a text are such tokens, so remembering the answer saves nearly all merging. It is
/// learnt as words are met, and takes one byte a token. Threads may find an answer at the same
/// time: all of them write the same one.
#[derive(Debug)]
pub(crate) struct WholeWords(Vec<AtomicU8>);

const NOT_KNOWN: u8 = 0;
const ITSELF: u8 = 1;
const IN_PARTS: u8 = 2;

impl WholeWords {
    pub(crate) fn new(n_vocab: usize) -> WholeWords {
        WholeWords((0..n_vocab).map(|_| AtomicU8::new(NOT_KNOWN)).collect())
    }

    /// Whether the word that spells token `id` is that token; `None` if that is not known yet.
    #[inline]
    pub(crate) fn is_itself(&self, id: u32) -> Option<bool> {
        // Relaxed: the byte is the whole answer, and nothing else is published with it.
        match self.0[id as usize].load(Ordering::Relaxed) {
            ITSELF => Some(true),
            IN_PARTS => Some(false),
            _ => None,
        }
    }

    /// Remembers the encoding of the word of token `id`.
    pub(crate) fn learn(&self, id: u32, encoded: &[u32]) {
        let answer = if encoded == [id] { ITSELF } else { IN_PARTS };
        self.0[id as usize].store(answer, Ordering::Relaxed);
    }
}

/// The tokens for single bytes (`<0x00>` to `<0xFF>`), where a vocabulary has them.
#[derive(Debug)]
pub(crate) struct ByteTokens(Box<[Option<u32>; 256]>);

impl ByteTokens {
    /// Looks the byte tokens up by their texts; a control token that is spelled like one does not count.
    pub(crate) fn find(vocab: &Vocab) -> ByteTokens {
        let ids: Vec<_> = (0..=255u8)
            .map(|byte| vocab.find_in_text(&format!("<0x{byte:02X}>")))
            .collect();
        let ids: Box<[Option<u32>; 256]> = ids
            .into_boxed_slice()
            .try_into()
            .expect("there are 256 bytes");
        ByteTokens(ids)
    }

    #[inline]
    pub(crate) fn get(&self, byte: u8) -> Option<u32> {
        self.0[usize::from(byte)]
    }
}

/// The byte that a token's text names, as in `<0x0A>`.
pub(crate) fn byte_of_text(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Cuts a text in front of every space mark that follows another character.
///
/// Where no token has a mark behind another character, no merge crosses such a border. So the words
/// between them can be encoded one by one.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    const MARK: &[u8] = "▁".as_bytes();
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let bytes = rest.as_bytes();
        let lead = leading_marks(bytes);
        let mut end = lead;
        // Bytes of the mark occur aligned only: UTF-8 is self-synchronising.
        while end < bytes.len() && !bytes[end..].starts_with(MARK) {
            end += 1;
        }
        let (word, tail) = rest.split_at(end);
        rest = tail;
        Some(word)
    })
}

/// Length in bytes of the run of space marks that a text starts with.
fn leading_marks(bytes: &[u8]) -> usize {
    const MARK: &[u8] = "▁".as_bytes();
    bytes
        .chunks_exact(MARK.len())
        .take_while(|chunk| *chunk == MARK)
        .count()
        * MARK.len()
}

/// Whether a text has a space mark behind another character.
pub(crate) fn has_inner_mark(text: &str) -> bool {
    let lead = leading_marks(text.as_bytes());
    text[lead..].contains(crate::pretokenize::SPACE_MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_start_at_runs_of_marks() {
        let cut = |text| words(text).collect::<Vec<_>>();
        assert_eq!(cut("▁Hello▁world▁▁▁x"), ["▁Hello", "▁world", "▁▁▁x"]);
        assert_eq!(cut("ab▁"), ["ab", "▁"]);
        assert_eq!(cut("▁▁"), ["▁▁"]);
        assert!(cut("").is_empty());
        // Characters that share bytes with the mark.
        assert_eq!(cut("■▀▁□"), ["■▀", "▁□"]);
    }

    #[test]
    fn inner_marks() {
        assert!(has_inner_mark("a▁b") && has_inner_mark("▁a▁"));
        assert!(!has_inner_mark("▁▁a") && !has_inner_mark("▁") && !has_inner_mark("a"));
    }

    #[test]
    fn byte_texts() {
        assert_eq!(byte_of_text("<0x0A>"), Some(10));
        assert_eq!(byte_of_text("<0xff>"), Some(255));
        for text in ["<0x+1>", "<0x1>", "0x10", "<0x100>", ""] {
            assert_eq!(byte_of_text(text), None, "{text}");
        }
    }
}
