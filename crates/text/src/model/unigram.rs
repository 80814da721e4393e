//! Unigram: of all ways to cut a text into tokens the one with the highest sum of scores (Viterbi).

use super::merge::{MergeScratch, NO_TOKEN};
use super::prefixes::PrefixTable;
use super::{ByteTokens, has_inner_mark, words};
use crate::Error;
use crate::pretokenize::SPACE_MARK;
use crate::vocab::{TokenKind, Vocab};

/// A Unigram vocabulary with scores (T5, XLM-RoBERTa, ALBERT).
#[derive(Debug)]
pub(crate) struct Unigram {
    table: PrefixTable,
    /// One a token.
    scores: Vec<f64>,
    unknown: UnknownCharacter,
    /// Whether words can be encoded one by one (see [`words`]).
    by_words: bool,
}

/// Encoding of a character without a token.
#[derive(Debug)]
struct UnknownCharacter {
    /// The token of a run of them.
    id: Option<u32>,
    /// The score of one of them.
    score: f64,
    /// The tokens of its bytes, which come before the unknown token.
    bytes: Option<ByteTokens>,
}

/// Settings of a Unigram model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnigramOptions {
    pub(crate) unknown: Option<u32>,
    pub(crate) byte_fallback: bool,
    /// The lowest score of a token.
    pub(crate) min_score: f64,
    /// Whether to try to encode words one by one, as where a pre-tokenizer would cut them.
    pub(crate) by_words: bool,
    /// Whether a text that spells a byte token (`<0x41>`) becomes it, as in `tokenizers`.
    pub(crate) byte_texts: bool,
}

/// An unknown character scores less than the worst token by this number (SentencePiece's `kUnkPenalty`).
const UNKNOWN_PENALTY: f64 = 10.0;

/// A longer token would make the time depend on the product of two lengths that a file and a text choose.
const MAX_TOKEN_BYTES: usize = 1024;

/// Space for encoding one piece.
#[derive(Debug, Default)]
pub(crate) struct UnigramScratch {
    /// The best path to each place of the text.
    best: Vec<Way>,
    /// The tokens of the best path, the last first.
    tokens: Vec<(u32, u32)>,
}

/// The best last step to a place of the text.
#[derive(Clone, Copy, Debug)]
struct Way {
    score: f64,
    /// Where the last token starts.
    from: u32,
    id: u32,
}

/// A place that nothing reaches.
const NOWHERE: Way = Way {
    score: 0.0,
    from: u32::MAX,
    id: NO_TOKEN,
};

impl Way {
    fn is_worse_than(&self, score: f64) -> bool {
        self.from == u32::MAX || score > self.score
    }
}

impl Unigram {
    /// The model of a vocabulary; `scores` has one entry a token.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a token of more than [`MAX_TOKEN_BYTES`].
    pub(crate) fn new(
        vocab: &Vocab,
        scores: Vec<f64>,
        options: UnigramOptions,
    ) -> Result<Unigram, Error> {
        let is_text = |id: &u32| {
            vocab.is_reached(*id)
                && match vocab.kind(*id) {
                    TokenKind::Normal | TokenKind::UserDefined => true,
                    TokenKind::Byte => options.byte_texts,
                    TokenKind::Unknown | TokenKind::Control | TokenKind::Unused => false,
                }
        };
        let ids = || (0..vocab.len() as u32).filter(is_text);
        if ids().any(|id| vocab.text(id).len() > MAX_TOKEN_BYTES) {
            return Err(Error::TooLarge {
                what: "the bytes of a Unigram token",
                limit: MAX_TOKEN_BYTES as u64,
            });
        }
        let mut buffer = [0; 4];
        let mark = vocab.find_in_text(SPACE_MARK.encode_utf8(&mut buffer));
        let by_words = options.by_words
            && mark.is_some_and(|id| is_text(&id))
            && ids().all(|id| !has_inner_mark(vocab.text(id)));
        let worst = if options.min_score.is_finite() {
            options.min_score
        } else {
            0.0
        };
        Ok(Unigram {
            table: PrefixTable::new(vocab, ids()),
            scores,
            unknown: UnknownCharacter {
                id: options.unknown,
                score: worst - UNKNOWN_PENALTY,
                bytes: options.byte_fallback.then(|| ByteTokens::find(vocab)),
            },
            by_words,
        })
    }

    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        piece: &str,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        if self.by_words {
            words(piece).for_each(|word| self.encode_word(vocab, word, &mut scratch.unigram, out));
        } else {
            self.encode_word(vocab, piece, &mut scratch.unigram, out);
        }
    }

    fn encode_word(
        &self,
        vocab: &Vocab,
        text: &str,
        scratch: &mut UnigramScratch,
        out: &mut Vec<u32>,
    ) {
        self.find_ways(vocab, text, &mut scratch.best);
        scratch.tokens.clear();
        let mut end = text.len();
        while end > 0 {
            let Way { from, id, .. } = scratch.best[end];
            scratch.tokens.push((from, id));
            end = from as usize;
        }
        let mut tokens = scratch.tokens.iter().rev().peekable();
        while let Some((from, id)) = tokens.next() {
            if *id != NO_TOKEN {
                out.push(*id);
                continue;
            }
            while tokens.next_if(|(_, next)| *next == NO_TOKEN).is_some() {}
            let end = tokens
                .peek()
                .map_or(text.len(), |(start, _)| *start as usize);
            self.unknown.emit(&text[*from as usize..end], out);
        }
    }

    /// Fills in the best path to every place of a text.
    fn find_ways(&self, vocab: &Vocab, text: &str, best: &mut Vec<Way>) {
        best.clear();
        best.resize(text.len() + 1, NOWHERE);
        let bytes = text.as_bytes();
        for (start, c) in text.char_indices() {
            let so_far = best[start].score;
            let mut has_character = false;
            self.table.each(vocab, &bytes[start..], |length, id| {
                has_character |= length == c.len_utf8();
                let score = so_far + self.scores[id as usize];
                let way = &mut best[start + length];
                if way.is_worse_than(score) {
                    let from = start as u32;
                    *way = Way { score, from, id };
                }
            });
            if !has_character {
                let score = so_far + self.unknown.score;
                let way = &mut best[start + c.len_utf8()];
                if way.is_worse_than(score) {
                    *way = Way {
                        score,
                        from: start as u32,
                        id: NO_TOKEN,
                    };
                }
            }
        }
    }
}

impl UnknownCharacter {
    /// Appends the tokens of a run of unknown characters.
    fn emit(&self, run: &str, out: &mut Vec<u32>) {
        let n_before = out.len();
        if let Some(tokens) = &self.bytes {
            out.extend(run.bytes().filter_map(|byte| tokens.get(byte)));
            if out.len() == n_before + run.len() {
                return;
            }
            out.truncate(n_before);
        }
        out.extend(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::Reach;
    use proptest::prelude::*;

    fn vocab(texts: &[&str]) -> Vocab {
        let mut vocab = Vocab::with_capacity(texts.len());
        for text in texts {
            let kind = match *text {
                "<unk>" => TokenKind::Unknown,
                "<s>" => TokenKind::Control,
                _ => TokenKind::Normal,
            };
            let pushed = vocab.push(text, kind, b"", Reach::of_kind(kind));
            pushed.unwrap();
        }
        vocab
    }

    const OPTIONS: UnigramOptions = UnigramOptions {
        unknown: Some(0),
        byte_fallback: false,
        min_score: -5.0,
        by_words: false,
        byte_texts: false,
    };

    fn encode(texts: &[&str], scores: &[f64], options: UnigramOptions, text: &str) -> Vec<u32> {
        let vocab = vocab(texts);
        let model = Unigram::new(&vocab, scores.to_vec(), options).unwrap();
        let mut out = Vec::new();
        model.encode(&vocab, text, &mut MergeScratch::default(), &mut out);
        out
    }

    #[test]
    fn the_highest_sum_wins_and_unknown_runs_are_one() {
        let texts = ["<unk>", "<s>", "a", "b", "ab", "abc", "<0xC3>", "<0xA9>"];
        let scores = [0.0, 0.0, -1.0, -1.0, -2.5, -5.0, 0.0, 0.0];
        for (text, want) in [
            ("ab", &[2, 3][..]),
            ("abc", &[5]),
            ("xya", &[0, 2]),
            ("axéyb", &[2, 0, 3]),
            ("", &[]),
        ] {
            assert_eq!(encode(&texts, &scores, OPTIONS, text), want, "{text}");
        }
        // Of `<s>` only the text of a control token would match, and it must not.
        assert_eq!(encode(&texts, &scores, OPTIONS, "<s>"), [0]);
        let bytes = UnigramOptions {
            byte_fallback: true,
            ..OPTIONS
        };
        assert_eq!(encode(&texts, &scores, bytes, "éa"), [6, 7, 2]);
        assert_eq!(encode(&texts, &scores, bytes, "éxa"), [0, 2]);
        let none = UnigramOptions {
            unknown: None,
            ..OPTIONS
        };
        assert_eq!(encode(&texts, &scores, none, "axb"), [2, 3]);
    }

    #[test]
    fn an_unknown_character_costs_ten_more_than_the_worst_token() {
        // `a` and an unknown `b` sum up to −16.
        for (score, want) in [(-15.5, &[2][..]), (-16.5, &[1, 0])] {
            let scores = [0.0, -1.0, score];
            let texts = ["<unk>", "a", "ab"];
            assert_eq!(encode(&texts, &scores, OPTIONS, "ab"), want, "{score}");
        }
    }

    #[test]
    fn of_equal_sums_the_one_that_was_found_first_stays() {
        let scores = [0.0, -1.0, -1.0, -2.0, -2.0];
        // `a` + `b` reaches the end later than `ab`, which starts earlier.
        let texts = ["<unk>", "a", "b", "ab", "aa"];
        assert_eq!(encode(&texts, &scores, OPTIONS, "ab"), [3]);
        assert_eq!(encode(&texts, &scores, OPTIONS, "aaa"), [1, 4]);
    }

    #[test]
    fn no_score_makes_it_panic() {
        let score = prop_oneof![
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            -9.0..9.0f64
        ];
        let strategy = (prop::collection::vec(score, 6), "[abcé▁]{0,12}");
        let texts = ["<unk>", "a", "b", "ab", "▁", "▁a"];
        proptest!(|((scores, text) in strategy)| {
            for by_words in [false, true] {
                let options = UnigramOptions { by_words, min_score: scores[1], ..OPTIONS };
                let ids = encode(&texts, &scores, options, &text);
                prop_assert!(ids.iter().all(|id| *id < 6));
            }
        });
    }

    #[test]
    fn a_token_that_would_take_too_long_is_refused() {
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        let vocab = vocab(&["<unk>", &long]);
        let error = Unigram::new(&vocab, vec![0.0; 2], OPTIONS).unwrap_err();
        assert!(error.to_string().contains("1024"), "{error}");
    }
}
