//! The table of merges, and merging by rank.
//!
//! BPE repeatedly merges the adjacent pair of lowest rank, the leftmost of several. Short words
//! rescan all pairs after each merge, which is fastest for them; long ones keep a heap, O(n log
//! n).

use crate::Error;
use crate::hash::Seed;
use crate::vocab::Vocab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The token that two adjacent tokens become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Place in the order of merges; lower ones come first.
    rank: u32,
    /// The token that takes the place of the two.
    id: u32,
}

/// Rank of a pair that does not merge.
const NEVER: Merge = Merge {
    rank: u32::MAX,
    id: u32::MAX,
};

/// A symbol without a token, which merges with nothing.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

/// Up to this many symbols, rescanning beats the heap.
const SHORT: usize = 32;

/// All merges of a vocabulary.
#[derive(Debug)]
pub(crate) struct Merges {
    table: HashMap<u64, Merge, Seed>,
}

/// Space for encoding one word, kept between words.
#[derive(Debug, Default)]
pub(crate) struct MergeScratch {
    /// The symbols of the word; after merging, its tokens.
    pub(crate) symbols: Vec<u32>,
    pairs: Vec<Merge>,
    links: Vec<SymbolLink>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
    pub(crate) spm: super::spm::SpmScratch,
    pub(crate) unigram: super::unigram::UnigramScratch,
    /// A text that is looked up.
    pub(crate) text: String,
}

/// Neighbours of a symbol in the heap algorithm.
#[derive(Clone, Copy, Debug)]
struct SymbolLink {
    prev: u32,
    next: u32,
}

const END: u32 = u32::MAX;

fn key(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32) | u64::from(right)
}

impl Merges {
    pub(crate) fn with_capacity(n: usize) -> Merges {
        Merges {
            table: HashMap::with_capacity_and_hasher(n, Seed::random()),
        }
    }

    /// Adds the merge with the next rank. `last_wins`: whether it replaces an earlier one of the
    /// same pair.
    pub(crate) fn insert(
        &mut self,
        rank: u32,
        (left, right, id): (u32, u32, u32),
        last_wins: bool,
    ) {
        let merge = Merge { rank, id };
        if last_wins {
            self.table.insert(key(left, right), merge);
        } else {
            self.table.entry(key(left, right)).or_insert(merge);
        }
    }

    /// The tokens that merges make.
    pub(crate) fn products(&self) -> impl Iterator<Item = u32> {
        self.table.values().map(|merge| merge.id)
    }

    #[inline]
    fn of(&self, left: u32, right: u32) -> Merge {
        self.table.get(&key(left, right)).copied().unwrap_or(NEVER)
    }

    /// Merges `scratch.symbols` in place, lowest rank first, until no pair merges any more.
    pub(crate) fn apply(&self, scratch: &mut MergeScratch) {
        match scratch.symbols.len() {
            0 | 1 => {}
            n if n <= SHORT => self.apply_short(&mut scratch.symbols, &mut scratch.pairs),
            _ => self.apply_long(scratch),
        }
    }

    fn apply_short(&self, symbols: &mut Vec<u32>, pairs: &mut Vec<Merge>) {
        pairs.clear();
        pairs.extend(symbols.windows(2).map(|pair| self.of(pair[0], pair[1])));
        loop {
            let mut best = (u32::MAX, 0);
            for (i, pair) in pairs.iter().enumerate() {
                if pair.rank < best.0 {
                    best = (pair.rank, i);
                }
            }
            let (rank, i) = best;
            if rank == u32::MAX {
                return;
            }
            symbols[i] = pairs[i].id;
            symbols.remove(i + 1);
            pairs.remove(i);
            if i < pairs.len() {
                pairs[i] = self.of(symbols[i], symbols[i + 1]);
            }
            if i > 0 {
                pairs[i - 1] = self.of(symbols[i - 1], symbols[i]);
            }
        }
    }

    fn apply_long(&self, scratch: &mut MergeScratch) {
        let MergeScratch {
            symbols,
            pairs,
            links,
            heap,
            ..
        } = scratch;
        let n = symbols.len();
        pairs.clear();
        pairs.extend(symbols.windows(2).map(|pair| self.of(pair[0], pair[1])));
        pairs.push(NEVER);
        links.clear();
        links.extend((0..n as u32).map(|i| SymbolLink {
            prev: i.wrapping_sub(1),
            next: if i as usize + 1 < n { i + 1 } else { END },
        }));
        heap.clear();
        let mergeable = pairs
            .iter()
            .enumerate()
            .filter(|(_, pair)| pair.rank != u32::MAX);
        heap.extend(mergeable.map(|(i, pair)| Reverse((pair.rank, i as u32))));

        while let Some(Reverse((rank, at))) = heap.pop() {
            let i = at as usize;
            // A pair that has changed since it was pushed has another rank, a symbol that no longer exists has none.
            if pairs[i].rank != rank {
                continue;
            }
            let gone = links[i].next as usize;
            symbols[i] = pairs[i].id;
            symbols[gone] = NO_TOKEN;
            pairs[gone] = NEVER;
            links[i].next = links[gone].next;
            pairs[i] = NEVER;
            let (prev, next) = (links[i].prev, links[i].next);
            if next != END {
                links[next as usize].prev = at;
                pairs[i] = self.of(symbols[i], symbols[next as usize]);
                push(heap, pairs[i], at);
            }
            if prev != END {
                let p = prev as usize;
                pairs[p] = self.of(symbols[p], symbols[i]);
                push(heap, pairs[p], prev);
            }
        }
        // Compact along the chain, which runs from left to right.
        let (mut at, mut kept) = (0, 0);
        while at != END {
            symbols[kept] = symbols[at as usize];
            kept += 1;
            at = links[at as usize].next;
        }
        symbols.truncate(kept);
    }
}

fn push(heap: &mut BinaryHeap<Reverse<(u32, u32)>>, pair: Merge, at: u32) {
    if pair.rank != u32::MAX {
        heap.push(Reverse((pair.rank, at)));
    }
}

/// Resolves a merge written as two texts to `(left, right, join)`; `None` if one of the three is
/// not a token. A join that [no text may become](Vocab::is_reached) must not be merged.
pub(crate) fn resolve(
    vocab: &Vocab,
    left: &str,
    right: &str,
    joined: &mut String,
) -> Option<(u32, u32, u32)> {
    joined.clear();
    joined.push_str(left);
    joined.push_str(right);
    Some((vocab.find(left)?, vocab.find(right)?, vocab.find(joined)?))
}

/// The two halves of a merge written as `left right`. A half may itself start with a space.
pub(crate) fn halves(index: usize, merge: &str) -> Result<(&str, &str), Error> {
    let first = merge.chars().next().map_or(0, char::len_utf8);
    match merge[first..].find(' ') {
        Some(at) if first + at + 1 < merge.len() => {
            Ok((&merge[..first + at], &merge[first + at + 1..]))
        }
        _ => Err(Error::Merge {
            index,
            text: merge.to_owned(),
            reason: "expected two tokens separated by a space",
        }),
    }
}

/// Checks that ranks fit: one merge a rank, the last rank reserved.
pub(crate) fn check_count(n_merges: usize) -> Result<(), Error> {
    if n_merges < u32::MAX as usize {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "the number of merges",
        limit: u64::from(u32::MAX) - 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference: rescan for the lowest rank, leftmost first, after every merge.
    fn oracle(merges: &Merges, mut symbols: Vec<u32>) -> Vec<u32> {
        loop {
            let pairs = symbols.windows(2).enumerate();
            let best = pairs
                .map(|(i, p)| (merges.of(p[0], p[1]), i))
                .min_by_key(|(m, i)| (m.rank, *i));
            match best {
                Some((merge, i)) if merge.rank != u32::MAX => {
                    symbols.splice(i..i + 2, [merge.id]);
                }
                _ => return symbols,
            }
        }
    }

    #[test]
    fn both_algorithms_follow_the_definition() {
        let strategy = (
            prop::collection::vec((0u32..12, 0u32..12, 4u32..12), 0..30),
            prop::collection::vec(0u32..4, 0..120),
        );
        proptest!(ProptestConfig::with_cases(2000), |((rules, word) in strategy)| {
            let mut merges = Merges::with_capacity(0);
            for (rank, &rule) in rules.iter().enumerate() {
                merges.insert(rank as u32, rule, false);
            }
            let want = oracle(&merges, word.clone());
            let mut scratch = MergeScratch { symbols: word.clone(), ..Default::default() };
            merges.apply(&mut scratch);
            prop_assert_eq!(&scratch.symbols, &want);
            let mut scratch = MergeScratch { symbols: word, ..Default::default() };
            if !scratch.symbols.is_empty() {
                merges.apply_long(&mut scratch);
                prop_assert_eq!(&scratch.symbols, &want);
            }
        });
    }

    #[test]
    fn a_long_word_takes_n_log_n() {
        let mut merges = Merges::with_capacity(0);
        // Doubling merges: 0 0 -> 1, 1 1 -> 2, …
        for rank in 0..20 {
            merges.insert(rank, (rank, rank, rank + 1), false);
        }
        let mut scratch = MergeScratch {
            symbols: vec![0; 1 << 18],
            ..Default::default()
        };
        merges.apply(&mut scratch);
        assert_eq!(scratch.symbols, [18]);
    }

    #[test]
    fn merges_are_written_with_one_space() {
        assert_eq!(halves(0, "a b").unwrap(), ("a", "b"));
        assert_eq!(halves(0, "  b").unwrap(), (" ", "b"));
        assert_eq!(halves(0, "é ▁b").unwrap(), ("é", "▁b"));
        for bad in ["", "a", "a ", " "] {
            assert!(
                halves(7, bad).unwrap_err().to_string().contains("merge 7"),
                "{bad:?}"
            );
        }
    }
}
