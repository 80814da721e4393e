//! WordPiece: the longest token that a word begins with, then the longest that continues it, and so on.

use super::merge::MergeScratch;
use crate::vocab::Vocab;

/// A WordPiece vocabulary (BERT and its descendants).
#[derive(Debug)]
pub(crate) struct WordPiece {
    spelling: PieceSpelling,
    /// Replaces a word that cannot be put together from tokens.
    unknown: Option<u32>,
    /// A longer word is unknown.
    max_chars: usize,
    /// The longest token, so that no longer text is looked up.
    longest_bytes: usize,
}

/// Prefixes of pieces in the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceSpelling {
    /// In front of a piece that begins a word.
    pub(crate) begins: String,
    /// In front of a piece that continues one.
    pub(crate) goes_on: String,
}

/// Default of the characters that a word may have (`tokenizers`, as BERT's own code).
pub(crate) const MAX_WORD_CHARS: usize = 100;

impl WordPiece {
    pub(crate) fn new(
        vocab: &Vocab,
        spelling: PieceSpelling,
        unknown: Option<u32>,
        max_chars: usize,
    ) -> WordPiece {
        let lengths = (0..vocab.len() as u32).map(|id| vocab.text(id).len());
        WordPiece {
            spelling,
            unknown,
            max_chars,
            longest_bytes: lengths.max().unwrap_or(0),
        }
    }

    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        word: &str,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        let n_before = out.len();
        let fits = word.chars().nth(self.max_chars).is_none();
        if !fits || !self.pieces(vocab, word, &mut scratch.text, out) {
            out.truncate(n_before);
            out.extend(self.unknown);
        }
    }

    /// Appends the tokens of a word; `false` if some part of it has none.
    fn pieces(&self, vocab: &Vocab, word: &str, text: &mut String, out: &mut Vec<u32>) -> bool {
        let mut start = 0;
        while start < word.len() {
            let prefix = match start {
                0 => &self.spelling.begins,
                _ => &self.spelling.goes_on,
            };
            let rest = &word[start..];
            // Where a mark begins words, a piece that continues one cannot begin with it.
            if start > 0 && prefix.is_empty() && rest.starts_with(&self.spelling.begins) {
                return false;
            }
            text.clear();
            text.push_str(prefix);
            text.push_str(&rest[..rest.floor_char_boundary(self.longest_bytes)]);
            let found = loop {
                if text.len() <= prefix.len() {
                    return false;
                }
                match vocab.find_in_text(text) {
                    Some(id) => break id,
                    None => text.pop(),
                };
            };
            out.push(found);
            start += text.len() - prefix.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{Reach, TokenKind};

    fn vocab(texts: &[&str]) -> Vocab {
        let mut vocab = Vocab::with_capacity(texts.len());
        for text in texts {
            let kind = match text.starts_with('[') {
                true => TokenKind::Control,
                false => TokenKind::Normal,
            };
            let pushed = vocab.push(text, kind, text.as_bytes(), Reach::of_kind(kind));
            pushed.unwrap();
        }
        vocab
    }

    fn encode(texts: &[&str], begins: &str, goes_on: &str, word: &str) -> Vec<u32> {
        let vocab = vocab(texts);
        let spelling = PieceSpelling {
            begins: begins.to_owned(),
            goes_on: goes_on.to_owned(),
        };
        let model = WordPiece::new(&vocab, spelling, Some(0), 6);
        let mut out = vec![9];
        model.encode(&vocab, word, &mut MergeScratch::default(), &mut out);
        assert_eq!(out.remove(0), 9);
        out
    }

    #[test]
    fn both_spellings_give_the_longest_pieces() {
        let hashes = ["[UNK]", "un", "##a", "##able", "##ab", "é", "able"];
        let marks = ["[UNK]", "▁un", "a", "able", "ab", "▁é", "▁able"];
        for (word, want) in [
            ("un", &[1][..]),
            ("unable", &[1, 3]),
            ("unab", &[1, 4]),
            ("una", &[1, 2]),
            ("éa", &[5, 2]),
            ("able", &[6]),
            // No token continues with `x`, so the whole word is unknown.
            ("unx", &[0]),
            ("x", &[0]),
            // Longer than six characters.
            ("unablea", &[0]),
            // A control token is not a piece.
            ("[UNK]", &[0]),
            ("un▁é", &[0]),
        ] {
            assert_eq!(encode(&hashes, "", "##", word), want, "{word}");
            assert_eq!(encode(&marks, "▁", "", word), want, "{word}");
        }
    }
}
