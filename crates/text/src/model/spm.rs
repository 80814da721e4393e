//! SentencePiece's BPE: the pair whose join has the highest score is merged first, the leftmost of
//! several.
//!
//! A GGUF file carries scores and no merges, so pairs are looked up by their joined text. Text that
//! does not become a token is written as bytes.

use super::{ByteTokens, WholeWords, has_inner_mark, merge, words};
use crate::pretokenize::SPACE_MARK;
use crate::vocab::{TokenKind, Vocab};
use std::collections::BinaryHeap;

/// A SentencePiece vocabulary with scores.
#[derive(Debug)]
pub(crate) struct Spm {
    /// Order of merging, derived from the scores: higher goes first. 0 for tokens no merge may
    /// make.
    priorities: Vec<u32>,
    bytes: ByteTokens,
    unknown: Option<u32>,
    /// Whether words can be encoded one by one (see [`words`]).
    by_words: bool,
    whole: WholeWords,
}

/// Space for encoding one word.
#[derive(Debug, Default)]
pub(crate) struct SpmScratch {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<MergeCandidate>,
}

/// A part of the text, linked to its neighbours.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u32,
    /// Equal to `start` once the symbol was merged into its left neighbour.
    end: u32,
    prev: u32,
    next: u32,
}

const END: u32 = u32::MAX;

/// A pair that could be merged. The order of the fields is the order of merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeCandidate {
    priority: u32,
    /// Complement of the left symbol's index: of equal scores the leftmost goes first.
    left_from_end: u32,
    /// Length of the joined text when the pair was found: another length means that the pair is
    /// gone.
    len: u32,
}

/// A score as a number that grows with it; never 0, which means "not mergeable".
fn priority(score: f32) -> u32 {
    // NaN orders nothing; treat it as the worst score. Adding 0.0 turns −0.0 into 0.0.
    let bits = if score.is_nan() {
        f32::NEG_INFINITY
    } else {
        score + 0.0
    }
    .to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | (1 << 31)
    }
}

impl Spm {
    /// The model of a vocabulary; `scores` has one entry a token.
    pub(crate) fn new(vocab: &Vocab, scores: &[f32], unknown: Option<u32>) -> Spm {
        let mergeable = |id: u32| {
            // Control tokens must not come out of ordinary text, for any spelling.
            let kind = vocab.kind(id);
            matches!(
                kind,
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused
            )
        };
        let n = vocab.len() as u32;
        let priorities = (0..n)
            .zip(scores)
            .map(|(id, s)| if mergeable(id) { priority(*s) } else { 0 })
            .collect();
        let mut buffer = [0; 4];
        let mark_is_known = vocab
            .find(SPACE_MARK.encode_utf8(&mut buffer))
            .is_some_and(mergeable);
        let by_words =
            mark_is_known && (0..n).all(|id| !mergeable(id) || !has_inner_mark(vocab.text(id)));
        Spm {
            priorities,
            bytes: ByteTokens::find(vocab),
            unknown,
            by_words,
            whole: WholeWords::new(vocab.len()),
        }
    }

    /// The token of a text, if merging may make it, with its priority.
    #[inline]
    fn find(&self, vocab: &Vocab, text: &str) -> Option<(u32, u32)> {
        let id = vocab.find(text)?;
        let priority = self.priorities[id as usize];
        (priority != 0).then_some((id, priority))
    }

    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        piece: &str,
        scratch: &mut merge::MergeScratch,
        out: &mut Vec<u32>,
    ) {
        if self.by_words {
            words(piece).for_each(|word| self.encode_word(vocab, word, &mut scratch.spm, out));
        } else {
            self.encode_word(vocab, piece, &mut scratch.spm, out);
        }
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, scratch: &mut SpmScratch, out: &mut Vec<u32>) {
        let whole = self.find(vocab, word).map(|(id, _)| id);
        if let Some(id) = whole
            && self.whole.is_itself(id) == Some(true)
        {
            out.push(id);
            return;
        }
        let start = out.len();
        self.merge(vocab, word, scratch);
        self.emit(vocab, word, &scratch.symbols, out);
        if let Some(id) = whole {
            self.whole.learn(id, &out[start..]);
        }
    }

    fn merge(&self, vocab: &Vocab, word: &str, scratch: &mut SpmScratch) {
        let SpmScratch { symbols, heap } = scratch;
        symbols.clear();
        heap.clear();
        for (start, c) in word.char_indices() {
            let (index, end) = (symbols.len() as u32, start + c.len_utf8());
            symbols.push(Symbol {
                start: start as u32,
                end: end as u32,
                prev: index.wrapping_sub(1),
                next: if end < word.len() { index + 1 } else { END },
            });
        }
        for left in 0..symbols.len() as u32 {
            self.consider(vocab, word, symbols, left, heap);
        }
        while let Some(candidate) = heap.pop() {
            let left = !candidate.left_from_end;
            let Symbol {
                start,
                end,
                next,
                prev,
            } = symbols[left as usize];
            if start == end || next == END {
                continue;
            }
            let right = symbols[next as usize];
            if right.end - start != candidate.len {
                continue;
            }
            symbols[next as usize].end = right.start;
            symbols[left as usize].end = right.end;
            symbols[left as usize].next = right.next;
            if right.next != END {
                symbols[right.next as usize].prev = left;
            }
            if prev != END {
                self.consider(vocab, word, symbols, prev, heap);
            }
            self.consider(vocab, word, symbols, left, heap);
        }
    }

    /// Remembers the pair that starts at a symbol, if its join is a token.
    #[inline]
    fn consider(
        &self,
        vocab: &Vocab,
        word: &str,
        symbols: &[Symbol],
        left: u32,
        heap: &mut BinaryHeap<MergeCandidate>,
    ) {
        let Symbol { start, next, .. } = symbols[left as usize];
        if next == END {
            return;
        }
        let end = symbols[next as usize].end;
        if let Some((_, priority)) = self.find(vocab, &word[start as usize..end as usize]) {
            heap.push(MergeCandidate {
                priority,
                left_from_end: !left,
                len: end - start,
            });
        }
    }

    /// Appends the tokens of the remaining symbols. A symbol that is not a token is written as bytes,
    /// or, if one of them has no token, as the unknown token, one for a run of such symbols.
    fn emit(&self, vocab: &Vocab, word: &str, symbols: &[Symbol], out: &mut Vec<u32>) {
        let mut at = if symbols.is_empty() { END } else { 0 };
        let mut follows_unknown = false;
        while at != END {
            let symbol = symbols[at as usize];
            let text = &word[symbol.start as usize..symbol.end as usize];
            let found = self.find(vocab, text).map(|(id, _)| id);
            let has_bytes = || text.bytes().all(|byte| self.bytes.get(byte).is_some());
            let is_known = found.is_some() || has_bytes();
            match found {
                Some(id) => out.push(id),
                None if is_known => out.extend(text.bytes().filter_map(|b| self.bytes.get(b))),
                None if follows_unknown => {}
                None => out.extend(self.unknown),
            }
            follows_unknown = !is_known;
            at = symbol.next;
        }
    }
}

#[cfg(test)]
mod tests;
